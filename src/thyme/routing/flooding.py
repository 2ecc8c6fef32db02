"""Flooding: sends a message to all nodes of the network.

Entry points: `Flooding.flood` and `Flooding.on_flooded`. Each node broadcasts a message again the
first time it receives it, after a random delay, so that neighbours do not transmit at the same
time. Ids of floods already seen are kept for a limited time and in limited number. A flood is not
acknowledged; `repeats` makes every node broadcast it several times. With `received_enough` it stops
once it has received the flood from some neighbours, which shows that these have it.
Clauses: L2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Flooded, Message
from thyme.protocol.outbox import Outbox
from thyme.routing.flood_budgets import FloodBudgets

FloodId = tuple[NodeId, int]
"""Node where a flood started, and its number at that node."""


class FloodingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of flooding."""

    jitter_us_max: int = 20_000
    """Maximum delay before a node rebroadcasts a received flood."""
    hops_max: int = 64
    """Maximum number of links that a flood crosses."""
    repeats: int = 1
    """Number of times each node broadcasts the same flood."""
    repeat_us: int = SECOND_US // 8
    """Time between repeats; a random jitter is added to each."""
    received_enough: int | None = None
    """A flood that a node has received from so many neighbours, or from all, is not repeated; None
    to repeat it in any case."""
    seen_us: int = 60 * SECOND_US
    """How long a node remembers a flood as seen; must be longer than a flood lasts."""
    seen_max: int = 10_000
    per_neighbour_per_s: float | None = None
    """How many new floods per second a node takes from one neighbour and of one origin, and starts
    itself at most; None for no limit (B5)."""


class RebroadcastTimer(msgspec.Struct, frozen=True):
    """Timer at which this node broadcasts a flood, for the first time or again."""

    flood_id: FloodId


class FloodExpiryTimer(msgspec.Struct, frozen=True):
    """Timer at which the oldest seen floods expire."""


@dataclass(slots=True)
class _PendingRebroadcast:
    message: Flooded
    repeats_left: int
    is_first: bool
    received_from: set[NodeId]
    """The neighbours that broadcast it; only collected if that ends the repeats."""


class Flooding:
    """Starts, receives and rebroadcasts floods on one node."""

    def __init__(
        self,
        node_id: NodeId,
        outbox: Outbox,
        rng: Random,
        config: FloodingConfig,
        deliver: Callable[[NodeId, Message, int], None],
        neighbours: Callable[[int], Collection[NodeId]] = lambda now_us: (),
    ) -> None:
        """`neighbours` returns the nodes from which something was received lately."""
        self._node_id = node_id
        self._outbox = outbox
        self._rng = rng
        self._config = config
        self._deliver = deliver
        self._neighbours = neighbours
        # Random, so that a restarted node does not reuse numbers of its earlier incarnation.
        self._next_number = rng.getrandbits(48)
        self._seen_until_us: BoundedDict[FloodId, int] = BoundedDict(config.seen_max)
        self._pending: dict[FloodId, _PendingRebroadcast] = {}
        per_s = config.per_neighbour_per_s
        self._budgets = None if per_s is None else FloodBudgets(per_s)
        self.duplicates = 0
        self.refused = 0
        """Number of floods of nodes that started or sent too many."""

    def flood(self, message: Message, now_us: int) -> None:
        """Starts a flood; the message is not delivered to this node. If this node has started more
        than others take, the flood waits for its turn; if that is too far away, it is dropped."""
        wait_us = 0 if self._budgets is None else self._budgets.own_wait_us(now_us)
        if wait_us is None:
            self.refused += 1
            return
        flooded = Flooded(self._node_id, self._next_number, 0, message)
        self._next_number += 1
        if not wait_us:
            self._outbox.broadcast(flooded)
        self._mark_seen(_flood_id(flooded), now_us)
        if wait_us:
            pending = _PendingRebroadcast(flooded, self._config.repeats, True, set())
            self._schedule_rebroadcast(pending, wait_us, now_us)
        elif self._config.repeats > 1:
            pending = _PendingRebroadcast(flooded, self._config.repeats - 1, False, set())
            self._schedule_rebroadcast(pending, self._config.repeat_us, now_us)

    def on_flooded(self, sender: NodeId, flooded: Flooded, now_us: int) -> None:
        """Delivers and rebroadcasts a flood received for the first time from any neighbour."""
        flood_id = _flood_id(flooded)
        if flooded.origin == self._node_id or flood_id in self._seen_until_us:
            self.duplicates += 1
            self._note_received(sender, flood_id)
            return
        budgets, wait_us = self._budgets, 0
        if budgets is not None:
            admitted_us = budgets.admit(sender, flooded.origin, now_us)
            if admitted_us is None:
                self.refused += 1
                return
            wait_us = admitted_us
        self._mark_seen(flood_id, now_us)
        hops = flooded.hops + 1
        if hops < self._config.hops_max:
            copy = Flooded(flooded.origin, flooded.number, hops, flooded.message)
            repeats = 1 if wait_us else self._config.repeats
            pending = _PendingRebroadcast(copy, repeats, True, {sender})
            self._schedule_rebroadcast(pending, wait_us, now_us)
        self._deliver(flooded.origin, flooded.message, now_us)

    def on_rebroadcast_timer(self, timer: RebroadcastTimer, now_us: int) -> None:
        """Broadcasts a pending flood, and schedules its next repeat if there is one."""
        pending = self._pending.pop(timer.flood_id, None)
        if pending is None or not (pending.is_first or self._is_lacking(pending, now_us)):
            return
        self._outbox.broadcast(pending.message)
        if pending.repeats_left > 1:
            pending.repeats_left -= 1
            pending.is_first = False
            self._schedule_rebroadcast(pending, self._config.repeat_us, now_us)

    def _note_received(self, sender: NodeId, flood_id: FloodId) -> None:
        if self._config.received_enough is not None:
            pending = self._pending.get(flood_id)
            if pending is not None and len(pending.received_from) < self._config.received_enough:
                pending.received_from.add(sender)

    def _is_lacking(self, pending: _PendingRebroadcast, now_us: int) -> bool:
        """Whether too few neighbours are known to have a flood."""
        enough, received_from = self._config.received_enough, pending.received_from
        if enough is None:
            return True
        return len(received_from) < enough and any(
            node not in received_from for node in self._neighbours(now_us)
        )

    def on_expiry_timer(self, now_us: int) -> None:
        """Removes expired ids from the floods already seen."""
        while self._seen_until_us:
            oldest, until_us = next(iter(self._seen_until_us.items()))
            if until_us > now_us:
                self._outbox.set_timer(FloodExpiryTimer(), until_us)
                return
            del self._seen_until_us[oldest]

    def _schedule_rebroadcast(
        self, pending: _PendingRebroadcast, wait_us: int, now_us: int
    ) -> None:
        flood_id = _flood_id(pending.message)
        self._pending[flood_id] = pending
        jitter_us = self._rng.randint(0, self._config.jitter_us_max)
        self._outbox.set_timer(RebroadcastTimer(flood_id), now_us + wait_us + jitter_us)

    def _mark_seen(self, flood_id: FloodId, now_us: int) -> None:
        if not self._seen_until_us:
            self._outbox.set_timer(FloodExpiryTimer(), now_us + self._config.seen_us)
        evicted = self._seen_until_us.put(flood_id, now_us + self._config.seen_us)
        if evicted is not None:
            self._pending.pop(evicted, None)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._seen_until_us) <= self._config.seen_max
        assert len(self._pending) <= self._config.seen_max


def _flood_id(flooded: Flooded) -> FloodId:
    return flooded.origin, flooded.number
