"""Flooding: sends a message to all nodes of the network.

Entry points: `Flooding.flood` and `Flooding.on_flooded`. Each node broadcasts a message again the
first time it receives it, after a random delay, so that neighbours do not transmit at the same
time. Ids of floods already seen are kept for a limited time and in limited number. A flood is not
acknowledged; `repeats` makes every node broadcast it several times.
Clauses: L2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import Flooded, Message
from thyme.protocol.outbox import Outbox

_NEIGHBOURS_MAX = 1_000
_BURST_S = 5
"""A neighbour may send the floods of so many seconds at once."""
_UNKNOWN = NodeId(b"")
"""All nodes together of which no flood was received before."""

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
    seen_us: int = 60 * SECOND_US
    """How long a node remembers a flood as seen; must be longer than a flood lasts."""
    seen_max: int = 10_000
    per_neighbour_per_s: float | None = None
    """How many new floods per second a node takes from one neighbour, which need not have started
    them, and of one origin; each costs all nodes of the network several broadcasts. None for no
    limit (B5)."""


class RebroadcastTimer(msgspec.Struct, frozen=True):
    """Timer at which this node broadcasts a flood, for the first time or again."""

    flood_id: FloodId


class FloodExpiryTimer(msgspec.Struct, frozen=True):
    """Timer at which the oldest seen floods expire."""


@dataclass(slots=True)
class _PendingRebroadcast:
    message: Flooded
    repeats_left: int


class Flooding:
    """Starts, receives and rebroadcasts floods on one node."""

    def __init__(
        self,
        node_id: NodeId,
        outbox: Outbox,
        rng: Random,
        config: FloodingConfig,
        deliver: Callable[[NodeId, Message, int], None],
    ) -> None:
        self._node_id = node_id
        self._outbox = outbox
        self._rng = rng
        self._config = config
        self._deliver = deliver
        # Random, so that a restarted node does not reuse numbers of its earlier incarnation.
        self._next_number = rng.getrandbits(48)
        self._seen_until_us: BoundedDict[FloodId, int] = BoundedDict(config.seen_max)
        self._pending: dict[FloodId, _PendingRebroadcast] = {}
        self._budgets: BoundedDict[NodeId, tuple[float, int]] = BoundedDict(_NEIGHBOURS_MAX)
        """The floods that each node may send or start, and when they were counted."""
        self.duplicates = 0
        self.refused = 0
        """Number of floods of neighbours that sent too many."""

    def flood(self, message: Message, now_us: int) -> None:
        """Starts a flood; the message is not delivered to this node."""
        flooded = Flooded(self._node_id, self._next_number, 0, message)
        self._next_number += 1
        self._outbox.broadcast(flooded)
        self._mark_seen(_flood_id(flooded), now_us)
        if self._config.repeats > 1:
            self._schedule_rebroadcast(
                flooded, self._config.repeats - 1, self._config.repeat_us, now_us
            )

    def on_flooded(self, sender: NodeId, flooded: Flooded, now_us: int) -> None:
        """Delivers and rebroadcasts a flood received for the first time from any neighbour."""
        flood_id = _flood_id(flooded)
        if flooded.origin == self._node_id or flood_id in self._seen_until_us:
            self.duplicates += 1
            return
        if not self._is_admitted(sender, flooded.origin, now_us):
            self.refused += 1
            return
        self._mark_seen(flood_id, now_us)
        hops = flooded.hops + 1
        if hops < self._config.hops_max:
            copy = Flooded(flooded.origin, flooded.number, hops, flooded.message)
            self._schedule_rebroadcast(copy, self._config.repeats, 0, now_us)
        self._deliver(flooded.origin, flooded.message, now_us)

    def _is_admitted(self, sender: NodeId, origin: NodeId, now_us: int) -> bool:
        """Charges a flood to the neighbour that sent it, and to the node where it began, or to all
        unknown ones together; False if one of them has too many. Otherwise the neighbours of a
        node that floods would pass on many more than it may send to each of them."""
        per_s = self._config.per_neighbour_per_s
        if per_s is None:
            return True
        if not self._consume(sender, per_s, now_us):
            return False
        if origin == sender:
            return True
        if origin not in self._budgets and not self._consume(_UNKNOWN, per_s, now_us):
            return False
        return self._consume(origin, per_s, now_us)

    def _consume(self, name: NodeId, per_s: float, now_us: int) -> bool:
        """Charges a flood to a node; False if it has too many."""
        burst = per_s * _BURST_S
        left, at_us = self._budgets.get(name, (burst, now_us))
        left = min(burst, left + max(0, now_us - at_us) / SECOND_US * per_s)
        self._budgets.refresh(name, (max(left - 1, 0.0) if left >= 1 else left, now_us))
        return left >= 1

    def on_rebroadcast_timer(self, timer: RebroadcastTimer, now_us: int) -> None:
        """Broadcasts a pending flood, and schedules its next repeat if there is one."""
        pending = self._pending.pop(timer.flood_id, None)
        if pending is None:
            return
        self._outbox.broadcast(pending.message)
        if pending.repeats_left > 1:
            repeats_left, wait_us = pending.repeats_left - 1, self._config.repeat_us
            self._schedule_rebroadcast(pending.message, repeats_left, wait_us, now_us)

    def on_expiry_timer(self, now_us: int) -> None:
        """Removes expired ids from the floods already seen."""
        while self._seen_until_us:
            oldest, until_us = next(iter(self._seen_until_us.items()))
            if until_us > now_us:
                self._outbox.set_timer(FloodExpiryTimer(), until_us)
                return
            del self._seen_until_us[oldest]

    def _schedule_rebroadcast(
        self, flooded: Flooded, repeats: int, wait_us: int, now_us: int
    ) -> None:
        flood_id = _flood_id(flooded)
        self._pending[flood_id] = _PendingRebroadcast(flooded, repeats)
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
