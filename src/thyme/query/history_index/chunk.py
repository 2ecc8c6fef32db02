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
from thyme.query.history_index.postings import SLOTS_MAX

Bound = tuple[int | Key, ...]
"""A sort key in the order of history: (time, key) is an object's own, (time,) sorts before all
objects of that instant, () before all objects."""

_PIECE_BITS = 2048
_FEW_MAX = 256


def order_key(metadata: Metadata) -> Bound:
    """Returns the sort key of an object in history: publication time, then key."""
    return (metadata.published_us, metadata.key)


class Chunk:
    """Consecutive objects of history.

    `number` identifies the chunk; `objects` has an entry per slot, None for a removed object;
    `live_count` is the number of objects; `needs_reorder` is set when late objects have cost as
    much as sorting the whole chunk.
    """

    __slots__ = (
        "_first_used",
        "_last_key",
        "_late_bits",
        "_reorder_cost",
        "_times",
        "live_count",
        "needs_reorder",
        "number",
        "objects",
    )

    def __init__(self, number: int, objects: Sequence[Metadata] = ()) -> None:
        """`objects` must be in the order of history."""
        self.number = number
        self.live_count = len(objects)
        self.objects: list[Metadata | None] = list(objects)
        # The latest time stamp up to each slot: the object's own unless it is late; always sorted.
        self._times = array("q", [metadata.published_us for metadata in objects])
        self._last_key: Bound = order_key(objects[-1]) if objects else ()
        self._first_used = 0
        self._late_bits = 0
        self._reorder_cost = 0
        self.needs_reorder = False

    def precedes(self, key: Bound) -> bool:
        """Whether an object with this sort key would not be late."""
        return self._last_key <= key

    def add(self, metadata: Metadata) -> int:
        """Adds an object, in order or late; returns its slot."""
        slot = len(self.objects)
        key = order_key(metadata)
        if self._last_key <= key:
            self._last_key = key
            self._times.append(metadata.published_us)
        else:
            self._late_bits |= 1 << slot
            self._times.append(self._times[-1])
        self.objects.append(metadata)
        self.live_count += 1
        return slot

    def remove(self, slot: int) -> None:
        """Removes an object; its slot remains empty."""
        self.objects[slot] = None
        if self._late_bits:
            self._late_bits &= ~(1 << slot)
        self.live_count -= 1
        # The oldest objects are removed first, so remember where to find the oldest one.
        while self._first_used < len(self.objects) and self.objects[self._first_used] is None:
            self._first_used += 1

    def find_slot(self, metadata: Metadata) -> int | None:
        """Returns the slot of an object of this chunk; None if the object was late."""
        low = bisect_left(self._times, metadata.published_us)
        high = bisect_right(self._times, metadata.published_us, low)
        for slot in range(low, high):
            if self.objects[slot] is metadata:
                return slot
        return None

    def find_late_slot(self, bits: int, metadata: Metadata) -> int:
        """Returns the slot of a late object; `bits` are the candidate slots."""
        late = _highest_slots(bits & self._late_bits)
        return next(slot for slot in late if self.objects[slot] is metadata)

    def __iter__(self) -> Iterator[Metadata]:
        """All objects, oldest first."""
        if self._late_bits:
            self._charge_reorder(self.live_count)
            present = [metadata for metadata in self.objects if metadata is not None]
            yield from sorted(present, key=order_key)
        else:
            for slot in range(self._first_used, len(self.objects)):
                if (metadata := self.objects[slot]) is not None:
                    yield metadata

    def filter_before(self, bits: int, bound: Bound) -> int:
        """Returns the slots, of those in `bits`, whose objects sort before the bound."""
        late = bits & self._late_bits
        inside = bits & (1 << self._slots_before(bound)) - 1
        if late:
            inside &= ~late
            for slot in self._late_slots(late):
                if self._order_key_at(slot) < bound:
                    inside |= 1 << slot
        return inside

    def newest_objects(self, bits: int, count: int) -> list[Metadata]:
        """Returns the `count` most recent objects in these slots, newest first."""
        late = bits & self._late_bits if self._late_bits else 0
        if not late:
            objects = self.objects
            return [objects[slot] for slot in _highest_slots(bits, count)]  # type: ignore[misc]
        slots = _highest_slots(bits ^ late, count) + self._late_slots(late)
        slots.sort(key=self._order_key_at, reverse=True)
        return [self.objects[slot] for slot in slots[:count]]  # type: ignore[misc]

    def oldest_objects(self, bits: int, count: int) -> list[Metadata]:
        """Returns the `count` earliest objects in these slots, oldest first."""
        late = bits & self._late_bits
        slots = _lowest_slots(bits ^ late, count)
        if late:
            slots += self._late_slots(late)
            slots.sort(key=self._order_key_at)
        return [self.objects[slot] for slot in slots[:count]]  # type: ignore[misc]

    def _late_slots(self, bits: int) -> list[int]:
        slots = _highest_slots(bits)
        self._charge_reorder(len(slots))
        return slots

    def _charge_reorder(self, cost: int) -> None:
        self._reorder_cost += cost
        self.needs_reorder = self._reorder_cost > len(self.objects)

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
            if metadata and metadata.published_us == bound[0] and order_key(metadata) >= bound:
                break
            slot += 1
        return slot

    def _order_key_at(self, slot: int) -> Bound:
        metadata = self.objects[slot]
        assert metadata is not None, "the bits of removed objects are cleared"
        return order_key(metadata)


def _highest_slots(bits: int, count: int = SLOTS_MAX) -> list[int]:
    """Returns the numbers of the `count` highest set bits, highest first."""
    if count > _FEW_MAX:
        return _highest_slots_many(bits, count)
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


def _lowest_slots(bits: int, count: int) -> list[int]:
    """Returns the numbers of the `count` lowest set bits, lowest first."""
    base = 0
    if bits:
        base = (bits & -bits).bit_length() - 1
        bits >>= base
    # Each step copies the integer: if bits are dense, use its lowest part only.
    piece = bits & (1 << _PIECE_BITS) - 1
    if piece.bit_count() >= count:
        bits = piece
    slots: list[int] = []
    while bits and len(slots) < count:
        lowest = bits & -bits
        slots.append(base + lowest.bit_length() - 1)
        bits ^= lowest
    return slots


def _highest_slots_many(bits: int, count: int) -> list[int]:
    """`_highest_slots` by way of the binary digits: much faster for a large `count`."""
    zeros_before_each = f"{bits:b}".split("1", count)[:-1]
    top = bits.bit_length() - 1
    zeros_passed = accumulate(map(len, zeros_before_each))
    return [top - ones - zeros for ones, zeros in enumerate(zeros_passed)]
