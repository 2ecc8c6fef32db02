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

from thyme.model.frames import SECOND_US
from thyme.model.ids import NodeId
from thyme.protocol.messages import Flooded, Message
from thyme.protocol.outbox import Outbox

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
    memory_us: int = 60 * SECOND_US
    """How long a node remembers a flood as seen; must be longer than a flood lasts."""
    memory_max: int = 10_000


class Rebroadcast(msgspec.Struct, frozen=True):
    """Timer at which this node broadcasts a flood, for the first time or again."""

    flood: FloodId


class ForgetFloods(msgspec.Struct, frozen=True):
    """Timer at which the oldest seen floods expire."""


@dataclass(slots=True)
class _Spreading:
    message: Flooded
    times_left: int


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
        self._seen_until_us: dict[FloodId, int] = {}
        self._spreading: dict[FloodId, _Spreading] = {}
        self.duplicates = 0

    def flood(self, message: Message, now_us: int) -> None:
        """Starts a flood; the message is not delivered to this node."""
        flooded = Flooded(self._node_id, self._next_number, 0, message)
        self._next_number += 1
        self._outbox.broadcast(flooded)
        self._remember(_id(flooded), now_us)
        if self._config.repeats > 1:
            self._spread(flooded, self._config.repeats - 1, self._config.repeat_us, now_us)

    def on_flooded(self, flooded: Flooded, now_us: int) -> None:
        """Delivers and rebroadcasts a flood received for the first time."""
        flood = _id(flooded)
        if flooded.origin == self._node_id or flood in self._seen_until_us:
            self.duplicates += 1
            return
        self._remember(flood, now_us)
        hops = flooded.hops + 1
        if hops < self._config.hops_max:
            copy = Flooded(flooded.origin, flooded.number, hops, flooded.message)
            self._spread(copy, self._config.repeats, 0, now_us)
        self._deliver(flooded.origin, flooded.message, now_us)

    def on_rebroadcast(self, timer: Rebroadcast, now_us: int) -> None:
        """Broadcasts a pending flood, and schedules its next repeat if there is one."""
        spreading = self._spreading.pop(timer.flood, None)
        if spreading is None:
            return
        self._outbox.broadcast(spreading.message)
        if spreading.times_left > 1:
            times_left, wait_us = spreading.times_left - 1, self._config.repeat_us
            self._spread(spreading.message, times_left, wait_us, now_us)

    def on_forget(self, now_us: int) -> None:
        """Removes expired ids from the floods already seen."""
        while self._seen_until_us:
            oldest, until_us = next(iter(self._seen_until_us.items()))
            if until_us > now_us:
                self._outbox.set_timer(ForgetFloods(), until_us)
                return
            del self._seen_until_us[oldest]

    def _spread(self, flooded: Flooded, times: int, wait_us: int, now_us: int) -> None:
        flood = _id(flooded)
        self._spreading[flood] = _Spreading(flooded, times)
        jitter_us = self._rng.randint(0, self._config.jitter_us_max)
        self._outbox.set_timer(Rebroadcast(flood), now_us + wait_us + jitter_us)

    def _remember(self, flood: FloodId, now_us: int) -> None:
        if not self._seen_until_us:
            self._outbox.set_timer(ForgetFloods(), now_us + self._config.memory_us)
        self._seen_until_us[flood] = now_us + self._config.memory_us
        if len(self._seen_until_us) > self._config.memory_max:
            oldest = next(iter(self._seen_until_us))
            del self._seen_until_us[oldest]
            self._spreading.pop(oldest, None)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._seen_until_us) <= self._config.memory_max
        assert len(self._spreading) <= self._config.memory_max


def _id(flooded: Flooded) -> FloodId:
    return flooded.origin, flooded.number
