"""Renewal: after unrest, nodes tell cells again what these should know of them.

Whenever a node begins or ceases to work for a cell, or keys change hands, something may get lost
that nobody notices. Beacons carry the instant of the latest such unrest, so that word of it gets
everywhere at no cost; and when it has, each node says again, some at a time, which objects it has
and which subscriptions (`location`). Cells that have lost something are told again. While nothing
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
        self._rng = floor.rng
        self._config = floor.config.renewal
        self._latest_s = 0
        """When the latest unrest was; 0 if there was none."""
        self._done_s = 0
        """The unrest after which this node said everything again, or does."""
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
            self.rounds += 1
            self._done_s = self._latest_s
            self._turn = [held.metadata.key for held in self._mine()]
        some: list[Metadata] = []
        while self._turn and len(some) < self._config.keys_max:
            held = self._replicas.get(self._turn.pop())
            if held is not None:
                some.append(held.metadata)
        self._location.say(some, now_us, subscriptions=first)
        if self._turn:
            self._wake(self._config.pace_us, now_us)
        elif self._latest_s > self._done_s:
            self._wake(self._config.calm_us, now_us)

    def _mine(self) -> Iterable[HeldObject]:
        """The objects of which it is on this node to tell: its own, those it retrieved, and what
        the cell holds for an owner that is not there, if this is the first who does."""
        colleagues = self._routing.nodes_in(self._routing.cell)
        first = not any(node < self._node_id for node in colleagues)
        yield from self._replicas.of_role(Role.PASSIVE)
        for held in self._replicas.of_role(Role.ACTIVE):
            named = any(at.node is not None for at in held.active)
            if held.metadata.owner not in colleagues and (first or named):
                yield held
        yield from self._replicas.of_role(Role.OWN)
