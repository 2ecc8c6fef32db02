"""State merge: merges state received from another cell, and matches it with the local records.

The sender has matched its records with each other. Combined with the receiver's, a subscription and
an object may meet for the first time. New records are therefore matched with the local records that
the sender did not name, once all parts have arrived, by the one node of the cell that received
them. Entry point: `StateMerge.add_state`.
Clauses: D24, D25, D17.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellState
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.cell_state import merge_state

_MATCH_DELAY_US = SECOND_US // 2
"""How long to wait for further parts of a transferred state before it is matched with the local
records."""
_PAST_MATCHES_MAX = 1_000
"""The maximum number of past matches for which a merged subscription is notified."""

NotifySubscribers = Callable[[Metadata, list[SubscriptionRecord], int], None]


class MergeMatchTimer(msgspec.Struct, frozen=True):
    """The timer at which all state for a cell from one sender has arrived."""

    cell: CellId
    source: CellId


@dataclass(slots=True)
class _MergeSession:
    """The records that the sender named, and those of them that were new here."""

    objects: dict[Key, None] = field(default_factory=dict)
    subscriptions: dict[SubscriptionKey, None] = field(default_factory=dict)
    new_objects: dict[Key, None] = field(default_factory=dict)
    new_subscriptions: dict[SubscriptionKey, None] = field(default_factory=dict)


class StateMerge:
    """The state that one node is merging."""

    def __init__(self, context: NodeContext, notify: NotifySubscribers) -> None:
        self._outbox = context.outbox
        self._index = context.index
        self._replicas = context.replicas
        self._notify = notify
        self._sessions: dict[MergeMatchTimer, _MergeSession] = {}
        self.rejected = 0

    def add_state(
        self,
        key_cell: CellId,
        source: CellId,
        state: CellState,
        now_us: int,
        *,
        match: bool,
    ) -> None:
        """Merges one part of a cell's state; its new records are matched soon."""
        timer = MergeMatchTimer(key_cell, source)
        session = self._sessions.setdefault(timer, _MergeSession())
        session.objects.update((indexed.metadata.key, None) for indexed in state.objects)
        subscription_keys = [
            cell_subscription.subscription.key for cell_subscription in state.subscriptions
        ]
        session.subscriptions.update(dict.fromkeys(subscription_keys))
        result = merge_state(state, self._index, self._replicas, now_us)
        self.rejected += result.rejected
        if match:
            session.new_objects.update(dict.fromkeys(result.objects))
            session.new_subscriptions.update(dict.fromkeys(result.subscriptions))
        self._outbox.set_timer(timer, now_us + _MATCH_DELAY_US)

    def on_timer(self, timer: MergeMatchTimer, now_us: int, *, notify: bool) -> None:
        """Notifies subscribers of matches that neither side could find alone (D25), if this node
        still serves."""
        session = self._sessions.pop(timer, None)
        if session is None or not notify:
            return
        for key, subscriptions in self._new_matches(session).items():
            metadata = self._index.get_object(key)
            assert metadata is not None, "matched records are in the history"
            self._notify(metadata, list(subscriptions.values()), now_us)

    def _new_matches(
        self, session: _MergeSession
    ) -> dict[Key, dict[SubscriptionKey, SubscriptionRecord]]:
        index = self._index
        matched: dict[Key, dict[SubscriptionKey, SubscriptionRecord]] = {}
        for key in session.new_objects:
            metadata = index.get_object(key)
            for subscription in [] if metadata is None else index.matching_subscriptions(metadata):
                if subscription.key not in session.subscriptions:
                    matched.setdefault(key, {})[subscription.key] = subscription
        for sub_key in session.new_subscriptions:
            new_subscription = index.get_subscription(sub_key)
            if new_subscription is None:
                continue
            for metadata in index.latest_matches(new_subscription, _PAST_MATCHES_MAX):
                if metadata.key not in session.objects:
                    matched.setdefault(metadata.key, {})[sub_key] = new_subscription
        return matched
