"""Reassembly: joins the fragments from one neighbour to messages.

Each message is returned once, even if its fragments arrive several times. Incomplete messages are
limited in number and size, and dropped after a while without a new fragment.
Entry point: `Reassembler.on_fragment`. The sending side is `send_window`.
Clauses: M25.
"""

from __future__ import annotations

from thyme.live.datagrams import BODY_BYTES_MAX, MORE_BITS, Got, Part
from thyme.live.terms import Bounds


class _Pile:
    """The fragments received so far of one message."""

    __slots__ = ("below", "count", "parts", "touched_us")

    def __init__(self, count: int) -> None:
        self.count = count
        self.parts: dict[int, bytes] = {}
        self.below = 0
        """All fragments below this index were received."""
        self.touched_us = 0

    def add(self, part: Part) -> bool:
        """Stores a fragment; returns whether it was the next in order."""
        in_order = part.index == self.below
        self.parts[part.index] = part.body
        while self.below in self.parts:
            self.below += 1
        return in_order

    def got(self, number: int) -> Got:
        bits = 0
        for offset in range(MORE_BITS):
            if self.below + offset in self.parts:
                bits |= 1 << offset
        return Got(number, self.below, bits)


class Incoming:
    """Reassembles the messages of one neighbour."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._piles: dict[int, _Pile] = {}
        self._done: dict[int, int] = {}
        """Number of fragments of each completed message, by message number."""
        self._parts = 0
        self.refused = 0
        """Fragments refused: over the limits, or inconsistent with earlier fragments."""

    def on_part(self, part: Part, now_us: int) -> tuple[bytes | None, Got | None]:
        """Stores a fragment; returns the message, once complete, and the ack to send, if any."""
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
        ack_due = not in_order or not len(pile.parts) % self._bounds.word_every
        return None, pile.got(part.number) if ack_due else None

    def expire(self, now_us: int) -> None:
        """Drops incomplete messages without a new fragment for `idle_us`."""
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
