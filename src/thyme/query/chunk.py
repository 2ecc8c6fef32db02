"""Chunks of history: some thousands of consecutive objects, stored in order of arrival.

Each object gets a slot on arrival. While objects arrive in the order of history, slots are in that
order, too, and the most recent of some objects are the highest bits of an integer in which bit n
stands for slot n. Late objects are marked in a second such integer and sorted into each answer,
until this has cost as much as sorting the whole chunk. `postings` finds the slots for a query;
`index` finds the chunk of an object.
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
"""A sort key in the order of history: (time, key) is an object's own, (time,) sorts before all
objects of that instant, () before all objects."""

_PIECE_BITS = 2048
_MANY = 256


def position(metadata: Metadata) -> Bound:
    """Returns the sort key of an object in history: publication time, then key."""
    return (metadata.published_us, metadata.key)


class Chunk:
    """Consecutive objects of history.

    `number` identifies the chunk; `objects` has an entry per slot, None for a removed object;
    `live_count` is the number of objects; `needs_reorder` is set when late objects have cost as
    much as sorting the whole chunk.
    """

    __slots__ = ("_debt", "_head", "_late", "_times", "_top", "live", "number", "objects", "untidy")

    def __init__(self, number: int, objects: Sequence[Metadata] = ()) -> None:
        """`objects` must be in the order of history."""
        self.number = number
        self.live = len(objects)
        self.objects: list[Metadata | None] = list(objects)
        # The latest time stamp up to each slot: the object's own unless it is late; always sorted.
        self._times = array("q", [metadata.published_us for metadata in objects])
        self._top: Bound = position(objects[-1]) if objects else ()
        self._head = 0
        self._late = 0
        self._debt = 0
        self.untidy = False

    def precedes(self, place: Bound) -> bool:
        """Whether an object with this sort key would not be late."""
        return self._top <= place

    def add(self, metadata: Metadata) -> int:
        """Adds an object, in order or late; returns its slot."""
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
        """Removes an object; its slot remains empty."""
        self.objects[slot] = None
        if self._late:
            self._late &= ~(1 << slot)
        self.live -= 1
        # The oldest objects are removed first, so remember where to find the oldest one.
        while self._head < len(self.objects) and self.objects[self._head] is None:
            self._head += 1

    def slot_in_order(self, metadata: Metadata) -> int | None:
        """Returns the slot of an object of this chunk; None if the object was late."""
        low = bisect_left(self._times, metadata.published_us)
        high = bisect_right(self._times, metadata.published_us, low)
        for slot in range(low, high):
            if self.objects[slot] is metadata:
                return slot
        return None

    def slot_among(self, bits: int, metadata: Metadata) -> int:
        """Returns the slot of a late object; `bits` are the candidate slots."""
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
        """Returns the slots, of those in `bits`, whose objects sort before the bound."""
        late = bits & self._late
        inside = bits & (1 << self._slots_before(bound)) - 1
        if late:
            inside &= ~late
            for slot in self._late_slots(late):
                if self._position(slot) < bound:
                    inside |= 1 << slot
        return inside

    def newest(self, bits: int, count: int) -> list[Metadata]:
        """Returns the `count` most recent objects in these slots, newest first."""
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
        """Returns the number of slots before a bound, ignoring late objects."""
        if not bound:
            return 0
        slot = bisect_left(self._times, bound[0])
        if len(bound) == 1:
            return slot
        # Objects of one instant are ordered by key; skip empty slots and late objects.
        while slot < len(self._times) and self._times[slot] == bound[0]:
            metadata = self.objects[slot]
            if metadata and metadata.published_us == bound[0] and position(metadata) >= bound:
                break
            slot += 1
        return slot

    def _position(self, slot: int) -> Bound:
        metadata = self.objects[slot]
        assert metadata is not None, "the bits of removed objects are cleared"
        return position(metadata)


def _slots(bits: int, count: int = SLOTS_MAX) -> list[int]:
    """Returns the numbers of the `count` highest set bits, highest first."""
    if count > _MANY:
        return _many_slots(bits, count)
    # Each step copies the integer: if bits are dense, use its highest part only.
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
    """`_highest_slots` by way of the binary digits: much faster for a large `count`."""
    zeros_before_each = f"{bits:b}".split("1", count)[:-1]
    top = bits.bit_length() - 1
    zeros_passed = accumulate(map(len, zeros_before_each))
    return [top - ones - zeros for ones, zeros in enumerate(zeros_passed)]
