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
from thyme.model.subscriptions import Subscription, SubscriptionKey
from thyme.protocol.cell_messages import CellState
from thyme.protocol.cells import CellId
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.learning import learn

_NEWS_MAX = 1_000
"""The maximum number of past matches for which a merged subscription is notified."""

Notify = Callable[[Metadata, list[Subscription], int], None]


class MatchTimer(msgspec.Struct, frozen=True):
    """The timer at which all state for a cell from one sender has arrived."""

    cell: CellId
    source: CellId


@dataclass(slots=True)
class _Meeting:
    """The records that the sender named, and those of them that were new here."""

    objects: dict[Key, None] = field(default_factory=dict)
    subscriptions: dict[SubscriptionKey, None] = field(default_factory=dict)
    new_objects: dict[Key, None] = field(default_factory=dict)
    new_subscriptions: dict[SubscriptionKey, None] = field(default_factory=dict)


class Meetings:
    """The state that one node is merging."""

    def __init__(self, floor: Floor, notify: Notify) -> None:
        self._outbox = floor.outbox
        self._index = floor.index
        self._replicas = floor.replicas
        self._match_us = floor.config.hand_over.match_us
        self._notify = notify
        self._meetings: dict[MatchTimer, _Meeting] = {}
        self.unlearnt = 0

    def take_in(
        self,
        home: CellId,
        source: CellId,
        state: CellState,
        now_us: int,
        *,
        match: bool,
    ) -> None:
        """Merges one part of a cell's state; its new records are matched soon."""
        timer = MatchTimer(home, source)
        session = self._meetings.setdefault(timer, _Meeting())
        session.objects.update((indexed.metadata.key, None) for indexed in state.objects)
        subscription_keys = [
            cell_subscription.subscription.key for cell_subscription in state.interests
        ]
        session.subscriptions.update(dict.fromkeys(subscription_keys))
        result = learn(state, self._index, self._replicas, now_us)
        self.unlearnt += result.refused
        if match:
            session.new_objects.update(dict.fromkeys(result.objects))
            session.new_subscriptions.update(dict.fromkeys(result.subscriptions))
        self._outbox.set_timer(timer, now_us + self._match_us)

    def on_timer(self, timer: MatchTimer, now_us: int, *, tell: bool) -> None:
        """Notifies subscribers of matches that neither side could find alone (D25), if this node
        still serves."""
        session = self._meetings.pop(timer, None)
        if session is None or not tell:
            return
        history = self._index.broker.catalogue.history
        for key, subscriptions in self._matched(session).items():
            metadata = history.get(key)
            assert metadata is not None, "matched records are in the history"
            self._notify(metadata, list(subscriptions.values()), now_us)

    def _matched(self, meeting: _Meeting) -> dict[Key, dict[SubscriptionKey, Subscription]]:
        broker = self._index.broker
        matched: dict[Key, dict[SubscriptionKey, Subscription]] = {}
        for key in meeting.new_objects:
            metadata = broker.catalogue.history.get(key)
            for subscription in [] if metadata is None else broker.matching(metadata):
                if subscription.key not in meeting.subscriptions:
                    matched.setdefault(key, {})[subscription.key] = subscription
        for sub_key in meeting.new_subscriptions:
            new_subscription = broker.standing(sub_key)
            if new_subscription is None:
                continue
            past_matches = broker.catalogue.history.latest(
                new_subscription.conjunctions, new_subscription.frame, _NEWS_MAX, None
            )
            for metadata in past_matches:
                if metadata.key not in meeting.objects:
                    matched.setdefault(metadata.key, {})[sub_key] = new_subscription
        return matched
