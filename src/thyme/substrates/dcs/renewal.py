"""Renewal: after unrest, nodes tell cells again what these should know of them.

Whenever a node begins or ceases to work for a cell, or keys change hands, something may get lost
that nobody notices. Beacons carry the instant of the latest such unrest, so that word of it gets
everywhere at no cost; and when it is calm again, each node says again, some at a time, which
objects it has, which subscriptions (`location`), and what it deleted (`deletions`). Where it never
gets calm, it says so now and then. Cells that have lost something are told again. While nothing
happens, nothing is said.
Clauses: B1, B2.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.location import Location
from thyme.substrates.dcs.replicas import HeldObject, Role

_WORD_BYTES = 4


class RenewTimer(msgspec.Struct, frozen=True):
    """Time to tell cells again what they should know."""


class Renewal:
    """What one node knows of unrest, and does about it."""

    def __init__(self, floor: Floor, location: Location) -> None:
        self._node_id = floor.node_id
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._replicas = floor.replicas
        self._location = location
        self._deletions = floor.deletions
        self._rng = floor.rng
        self._config = floor.config.renewal
        self._latest_s = 0
        """When the latest unrest was; 0 if there was none."""
        self._since_us: int | None = None
        """When this node first heard of unrest after which it has not said everything again."""
        self._turn: list[Key] = []
        """What is still to be told, last first."""
        self._due = False
        self.rounds = 0

    # Word of it

    @property
    def word(self) -> bytes:
        """What beacons say of the latest unrest."""
        if not self._config.on:
            return b""
        return self._latest_s.to_bytes(_WORD_BYTES, "big")

    def note(self, now_us: int) -> None:
        """Something happened here."""
        self._learn(now_us // SECOND_US, now_us)

    def on_word(self, word: bytes, now_us: int) -> None:
        """What a neighbour says of the latest unrest; it cannot be in the future."""
        if self._config.on and len(word) == _WORD_BYTES:
            heard_s = int.from_bytes(word, "big")
            if heard_s * SECOND_US <= now_us + self._config.skew_us:
                self._learn(heard_s, now_us)

    def _learn(self, at_s: int, now_us: int) -> None:
        if self._config.on and 0 <= at_s < 256**_WORD_BYTES and at_s > self._latest_s:
            self._latest_s = at_s
            if self._since_us is None:
                self._since_us = now_us
            if not self._due:
                self._wake(self._config.calm_us, now_us)

    def _wake(self, wait_us: int, now_us: int) -> None:
        self._due = True
        self._outbox.set_timer(RenewTimer(), now_us + wait_us + self._rng.randint(0, wait_us))

    # What is done

    def on_timer(self, now_us: int) -> None:
        """Tells of the next few objects; at first, and of the subscriptions."""
        self._due = False
        if not self._routing.serving:
            self._turn.clear()
            return  # to be told when this node has joined a cell, which is unrest, too
        first = not self._turn
        if first:
            calm = now_us - self._latest_s * SECOND_US >= self._config.calm_us
            self._deletions.tell(now_us, calm=calm)
            if not calm and self._can_wait(now_us):
                self._wake(self._config.calm_us, now_us)
                return
            self.rounds += 1
            self._since_us = None
            self._turn = [held.metadata.key for held in self._mine(retrieved=calm)]
        some: list[Metadata] = []
        while self._turn and len(some) < self._config.keys_max:
            held = self._replicas.get(self._turn.pop())
            if held is not None:
                some.append(held.metadata)
        self._location.say(some, now_us, subscriptions=first)
        if self._turn:
            self._wake(self._config.pace_us, now_us)
        elif self._since_us is not None:
            self._wake(self._config.calm_us, now_us)

    def _can_wait(self, now_us: int) -> bool:
        """Whether there is time yet for it to get calm: else all is to be said again soon."""
        return self._since_us is not None and now_us - self._since_us < self._config.wait_us

    def _mine(self, *, retrieved: bool) -> Iterable[HeldObject]:
        """The objects of which it is on this node to tell: its own, what the cell holds for an
        owner that is not there, if this is the first who does, and those it retrieved: of these it
        has many, they are there for convenience, and can wait until it is calm."""
        colleagues = self._routing.nodes_in(self._routing.cell)
        first = not any(node < self._node_id for node in colleagues)
        if retrieved:
            yield from self._replicas.of_role(Role.PASSIVE)
        for held in self._replicas.of_role(Role.ACTIVE):
            named = any(at.node is not None for at in held.active)
            if held.metadata.owner not in colleagues and (first or named):
                yield held
        yield from self._replicas.of_role(Role.OWN)
