"""Incoming: parts from one neighbour, put together to messages.

Each message comes out once, whatever is sent twice. What is begun and never finished is dropped
after a while, and there is a bound to what may be begun.
Clauses: M25.
"""

from __future__ import annotations

from thyme.live.datagrams import BODY_BYTES_MAX, MORE_BITS, Got, Part
from thyme.live.terms import Bounds


class _Pile:
    """The parts of a message that have come."""

    __slots__ = ("below", "count", "parts", "touched_us")

    def __init__(self, count: int) -> None:
        self.count = count
        self.parts: dict[int, bytes] = {}
        self.below = 0
        """All parts below this one have come."""
        self.touched_us = 0

    def add(self, part: Part) -> bool:
        """Keeps a part; returns whether it was the next in order."""
        in_order = part.index == self.below
        self.parts[part.index] = part.body
        while self.below in self.parts:
            self.below += 1
        return in_order

    def got(self, number: int) -> Got:
        more = 0
        for place in range(MORE_BITS):
            if self.below + place in self.parts:
                more |= 1 << place
        return Got(number, self.below, more)


class Incoming:
    """What one neighbour sends."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._piles: dict[int, _Pile] = {}
        self._done: dict[int, int] = {}
        """How many parts each complete message had."""
        self._parts = 0
        self.refused = 0
        """Parts that there was no room for, or that contradict another."""

    def on_part(self, part: Part, now_us: int) -> tuple[bytes | None, Got | None]:
        """Takes a part; returns the message, if this completes it, and the word to give."""
        count = self._done.get(part.number)
        if count is not None:
            return None, Got(part.number, count)
        pile = self._piles.get(part.number)
        if pile is None:
            pile = self._begin(part)
        if pile is None or pile.count != part.count or len(part.body) > BODY_BYTES_MAX:
            self.refused += 1
            return None, None
        pile.touched_us = now_us
        if part.index in pile.parts:
            return None, pile.got(part.number)
        in_order = pile.add(part)
        self._parts += 1
        if pile.below == pile.count:
            return self._finish(part.number, pile), Got(part.number, pile.count)
        wanted = not in_order or not len(pile.parts) % self._bounds.word_every
        return None, pile.got(part.number) if wanted else None

    def expire(self, now_us: int) -> None:
        """Drops what was begun and left."""
        for number, pile in list(self._piles.items()):
            if pile.touched_us + self._bounds.idle_us <= now_us:
                self._parts -= len(pile.parts)
                del self._piles[number]

    def _begin(self, part: Part) -> _Pile | None:
        full = (self._parts + part.count) * BODY_BYTES_MAX > self._bounds.bytes_max
        if full or len(self._piles) >= self._bounds.messages_max:
            return None
        pile = self._piles[part.number] = _Pile(part.count)
        return pile

    def _finish(self, number: int, pile: _Pile) -> bytes:
        del self._piles[number]
        self._parts -= len(pile.parts)
        self._done[number] = pile.count
        if len(self._done) > self._bounds.remembered_max:
            del self._done[next(iter(self._done))]
        return b"".join(pile.parts[index] for index in range(pile.count))
