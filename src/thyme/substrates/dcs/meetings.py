"""Meetings: what comes from elsewhere for a cell is learnt, and matched with what was here.

Whoever kept keys has matched them with each other. Where they join others, a subscription and an
object that were never together may be so now. So what is new is matched with what the other side
did not name, once all of it is here; by one node of the cell, the one that got it.
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
"""How much of the past a subscription that comes from elsewhere is told of."""

Notify = Callable[[Metadata, list[Subscription], int], None]


class MatchTimer(msgspec.Struct, frozen=True):
    """All that came for a cell, from one that kept it, is here."""

    cell: CellId
    source: CellId


@dataclass(slots=True)
class _Meeting:
    """What the other side named, and what of it was new here."""

    objects: dict[Key, None] = field(default_factory=dict)
    subscriptions: dict[SubscriptionKey, None] = field(default_factory=dict)
    new_objects: dict[Key, None] = field(default_factory=dict)
    new_subscriptions: dict[SubscriptionKey, None] = field(default_factory=dict)


class Meetings:
    """What one node takes in for its cell from others."""

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
        """Learns what another cell knows of one; what is new is matched soon."""
        timer = MatchTimer(home, source)
        meeting = self._meetings.setdefault(timer, _Meeting())
        meeting.objects.update((indexed.metadata.key, None) for indexed in state.objects)
        subscribers = [interest.subscription.key for interest in state.interests]
        meeting.subscriptions.update(dict.fromkeys(subscribers))
        learnt = learn(state, self._index, self._replicas, now_us)
        self.unlearnt += learnt.refused
        if match:
            meeting.new_objects.update(dict.fromkeys(learnt.objects))
            meeting.new_subscriptions.update(dict.fromkeys(learnt.subscriptions))
        self._outbox.set_timer(timer, now_us + self._match_us)

    def on_timer(self, timer: MatchTimer, now_us: int, *, tell: bool) -> None:
        """Tells subscribers what neither side could match alone (D25), if this is still the node
        to do so."""
        meeting = self._meetings.pop(timer, None)
        if meeting is None or not tell:
            return
        history = self._index.broker.catalogue.history
        for key, subscriptions in self._matched(meeting).items():
            metadata = history.get(key)
            assert metadata is not None, "looked up just now"
            self._notify(metadata, list(subscriptions.values()), now_us)

    def _matched(self, meeting: _Meeting) -> dict[Key, dict[SubscriptionKey, Subscription]]:
        broker = self._index.broker
        matched: dict[Key, dict[SubscriptionKey, Subscription]] = {}
        for key in meeting.new_objects:
            metadata = broker.catalogue.history.get(key)
            for held in [] if metadata is None else broker.matching(metadata):
                if held.key not in meeting.subscriptions:
                    matched.setdefault(key, {})[held.key] = held
        for sub_key in meeting.new_subscriptions:
            stands = broker.standing(sub_key)
            if stands is None:
                continue
            past = broker.catalogue.history.latest(
                stands.conjunctions, stands.frame, _NEWS_MAX, None
            )
            for metadata in past:
                if metadata.key not in meeting.objects:
                    matched.setdefault(metadata.key, {})[sub_key] = stands
        return matched
