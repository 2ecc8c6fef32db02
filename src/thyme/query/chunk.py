"""Chunks: some thousands of consecutive objects of history, in the order they arrived.

An object has a slot in its chunk, handed out on arrival. As long as objects arrive in the order of
history, slots are in that order too, and the most recent of some objects are the highest bits of
an integer in which bit n stands for slot n. Objects that arrive late are marked in one more such
integer, and put in their place in each answer until that has cost as much as putting the whole
chunk in order. Which slots a query asks for is told by `postings`, which chunk an object belongs
to by `history`.
Clauses: M11, M14, M17.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.query.postings import SLOTS_MAX

Bound = tuple[int | Key, ...]
"""A point in the order of history: (time, key) is an object's own, (time,) lies before all objects
of that instant, () before everything."""

_PIECE_BITS = 2048
_MANY = 256


def position(metadata: Metadata) -> Bound:
    """Where an object stands in history."""
    return (metadata.published_us, metadata.key)


class Chunk:
    """The objects of one stretch of history.

    `number` is its name; `objects` has an entry per slot, None where one was removed; `live` says
    how many are there; `untidy`, that late ones have cost as much as putting all in order would.
    """

    __slots__ = ("_debt", "_head", "_late", "_times", "_top", "live", "number", "objects", "untidy")

    def __init__(self, number: int, objects: Sequence[Metadata] = ()) -> None:
        """Starts with objects that are in order already."""
        self.number = number
        self.live = len(objects)
        self.objects: list[Metadata | None] = list(objects)
        # The latest stamp up to each slot: the object's own unless it is late, and always sorted.
        self._times = array("q", [metadata.published_us for metadata in objects])
        self._top: Bound = position(objects[-1]) if objects else ()
        self._head = 0
        self._late = 0
        self._debt = 0
        self.untidy = False

    def precedes(self, place: Bound) -> bool:
        """Whether an object at this place would not be late."""
        return self._top <= place

    def add(self, metadata: Metadata) -> int:
        """Takes one more object, in order or late; returns its slot."""
        slot = len(self.objects)
        place = position(metadata)
        if self._top <= place:
            self._top = place
            self._times.append(metadata.published_us)
        else:
            self._late |= 1 << slot
            self._times.append(self._times[-1])
        self.objects.append(metadata)
        self.live += 1
        return slot

    def remove(self, slot: int) -> None:
        """Forgets an object; its slot stays as a hole."""
        self.objects[slot] = None
        if self._late:
            self._late &= ~(1 << slot)
        self.live -= 1
        # History is forgotten from its old end first: whoever asks for the oldest finds it here.
        while self._head < len(self.objects) and self.objects[self._head] is None:
            self._head += 1

    def slot_in_order(self, metadata: Metadata) -> int | None:
        """The slot of an object that is here, unless it came late."""
        low = bisect_left(self._times, metadata.published_us)
        high = bisect_right(self._times, metadata.published_us, low)
        for slot in range(low, high):
            if self.objects[slot] is metadata:
                return slot
        return None

    def slot_among(self, bits: int, metadata: Metadata) -> int:
        """The slot of an object that came late, given bits that it is among."""
        late = _slots(bits & self._late)
        return next(slot for slot in late if self.objects[slot] is metadata)

    def __iter__(self) -> Iterator[Metadata]:
        """All objects, oldest first."""
        if self._late:
            self._owe(self.live)
            there = [metadata for metadata in self.objects if metadata is not None]
            yield from sorted(there, key=position)
        else:
            for slot in range(self._head, len(self.objects)):
                if (metadata := self.objects[slot]) is not None:
                    yield metadata

    def before(self, bits: int, bound: Bound) -> int:
        """Those of the slots whose objects stand before the bound."""
        late = bits & self._late
        inside = bits & (1 << self._slots_before(bound)) - 1
        if late:
            inside &= ~late
            for slot in self._late_slots(late):
                if self._position(slot) < bound:
                    inside |= 1 << slot
        return inside

    def newest(self, bits: int, count: int) -> list[Metadata]:
        """The most recent `count` of the objects in these slots, newest first."""
        late = bits & self._late if self._late else 0
        if not late:
            objects = self.objects
            return [objects[slot] for slot in _slots(bits, count)]  # type: ignore[misc]
        slots = _slots(bits ^ late, count) + self._late_slots(late)
        slots.sort(key=self._position, reverse=True)
        return [self.objects[slot] for slot in slots[:count]]  # type: ignore[misc]

    def _late_slots(self, bits: int) -> list[int]:
        slots = _slots(bits)
        self._owe(len(slots))
        return slots

    def _owe(self, steps: int) -> None:
        self._debt += steps
        self.untidy = self._debt > len(self.objects)

    def _slots_before(self, bound: Bound) -> int:
        """How many slots come before a bound, going by the objects that are not late."""
        if not bound:
            return 0
        slot = bisect_left(self._times, bound[0])
        if len(bound) == 1:
            return slot
        # Objects of one instant are told apart by key, as far as they are there and of it.
        while slot < len(self._times) and self._times[slot] == bound[0]:
            metadata = self.objects[slot]
            if metadata and metadata.published_us == bound[0] and position(metadata) >= bound:
                break
            slot += 1
        return slot

    def _position(self, slot: int) -> Bound:
        metadata = self.objects[slot]
        assert metadata is not None, "the bits of what was removed are cleared"
        return position(metadata)


def _slots(bits: int, count: int = SLOTS_MAX) -> list[int]:
    """The numbers of the bits that are set, of at most the `count` highest, highest first."""
    if count > _MANY:
        return _many_slots(bits, count)
    # Every step copies what it works on: where bits are dense the highest few will do.
    base = bits.bit_length() - _PIECE_BITS
    if base > 0 and (piece := bits >> base).bit_count() >= count:
        bits = piece
    else:
        base = 0
    slots: list[int] = []
    for _ in range(count):
        if not bits:
            break
        top = bits.bit_length() - 1
        slots.append(base + top)
        bits ^= 1 << top
    return slots


def _many_slots(bits: int, count: int) -> list[int]:
    """The same by way of the binary digits: no faster for the first, much faster for the rest."""
    zeros_before_each = f"{bits:b}".split("1", count)[:-1]
    top = bits.bit_length() - 1
    zeros_passed = accumulate(map(len, zeros_before_each))
    return [top - ones - zeros for ones, zeros in enumerate(zeros_passed)]
