"""Flooding: a message for everybody, carried from neighbour to neighbour.

Each node broadcasts a message again the first time it sees it, after a random moment, so that
neighbours who heard it together do not speak together. What it has seen it remembers for a while,
bounded in time and number. There is no acknowledgement: a flood reaches whom it reaches. Where
that is not enough, every node says it more than once (`repeats`).
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
"""Who began a flood, and its number there."""


class FloodingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a flood spreads."""

    jitter_us_max: int = 20_000
    """The longest a node waits before it broadcasts again what it heard."""
    hops_max: int = 64
    """How many links a flood crosses at most."""
    repeats: int = 1
    """How often each node broadcasts the same message."""
    repeat_us: int = SECOND_US // 8
    """The time between repeats, to which a new jitter is added."""
    memory_us: int = 60 * SECOND_US
    """How long a node remembers what it has seen: longer than any flood lasts."""
    memory_max: int = 10_000


class Rebroadcast(msgspec.Struct, frozen=True):
    """The timer at which a flood is broadcast by this node, once more or for the first time."""

    flood: FloodId


class ForgetFloods(msgspec.Struct, frozen=True):
    """The timer at which the oldest floods may be forgotten."""


@dataclass(slots=True)
class _Spreading:
    message: Flooded
    times_left: int


class Flooding:
    """The floods that pass through one node, and those that begin here."""

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
        # A node that lost its memory must not number its floods as in its earlier life.
        self._next_number = rng.getrandbits(48)
        self._seen_until_us: dict[FloodId, int] = {}
        self._spreading: dict[FloodId, _Spreading] = {}
        self.duplicates = 0

    def flood(self, message: Message, now_us: int) -> None:
        """Begins a flood; it is not delivered here."""
        flooded = Flooded(self._node_id, self._next_number, 0, message)
        self._next_number += 1
        self._outbox.broadcast(flooded)
        self._remember(_id(flooded), now_us)
        if self._config.repeats > 1:
            self._spread(flooded, self._config.repeats - 1, self._config.repeat_us, now_us)

    def on_flooded(self, flooded: Flooded, now_us: int) -> None:
        """Delivers and passes on what is seen for the first time."""
        flood = _id(flooded)
        if flooded.origin == self._node_id or flood in self._seen_until_us:
            self.duplicates += 1
            return
        self._remember(flood, now_us)
        hops = flooded.hops + 1
        if hops < self._config.hops_max:
            onward = Flooded(flooded.origin, flooded.number, hops, flooded.message)
            self._spread(onward, self._config.repeats, 0, now_us)
        self._deliver(flooded.origin, flooded.message, now_us)

    def on_rebroadcast(self, timer: Rebroadcast, now_us: int) -> None:
        """Broadcasts a flood whose moment has come."""
        spreading = self._spreading.pop(timer.flood, None)
        if spreading is None:
            return
        self._outbox.broadcast(spreading.message)
        if spreading.times_left > 1:
            times_left, wait_us = spreading.times_left - 1, self._config.repeat_us
            self._spread(spreading.message, times_left, wait_us, now_us)

    def on_forget(self, now_us: int) -> None:
        """Forgets the floods of long ago."""
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
        """Asserts what must hold between any two inputs."""
        assert len(self._seen_until_us) <= self._config.memory_max
        assert len(self._spreading) <= self._config.memory_max


def _id(flooded: Flooded) -> FloodId:
    return flooded.origin, flooded.number
