"""Chunks: some thousands of consecutive objects of history, with a posting for every tag.

An object has a slot in its chunk, handed out on arrival. The posting of a common tag is an integer
whose bit n stands for slot n, so that a query takes a handful of `&` and `|`, and counting is
`bit_count`; that of a rare tag is the tuple of its slots. As long as objects arrive in the order
of history, slots are in that order too, and the most recent matches are the highest bits. Objects
that arrive late are marked in one more such integer, and put in their place in each answer until
that has cost as much as putting the whole chunk in order.
Which chunk an object belongs to is decided by `history`.
Clauses: M11, M14, M17.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.query.plan import Plan

Bound = tuple[int | Key, ...]
"""A point in the order of history: (time, key) is an object's own, (time,) lies before all objects
of that instant, () before everything."""

Posting = int | tuple[int, ...]

SLOTS_MAX = 16_384
_TUPLE_MAX = 8
# CPython makes a new object for every larger integer; the tuples of all chunks share these.
_STRIDE = 480
_SLOTS = tuple(range(SLOTS_MAX))


def position(metadata: Metadata) -> Bound:
    """Where an object stands in history."""
    return (metadata.published_us, metadata.key)


class Chunk:
    """The objects of one stretch of history; `live` says how many are there."""

    __slots__ = ("_debt", "_late", "_objects", "_postings", "_times", "_top", "live")

    def __init__(self, objects: Sequence[Metadata] = ()) -> None:
        """Takes objects that are in order, none of them removed."""
        self.live = len(objects)
        self._objects: list[Metadata | None] = list(objects)
        # The latest stamp up to each slot: the object's own unless it is late, and always sorted.
        self._times = array("q", [metadata.published_us for metadata in objects])
        self._top: Bound = position(objects[-1]) if objects else ()
        self._postings = _postings(objects)
        self._late = 0
        self._debt = 0

    @property
    def slots(self) -> int:
        """How many slots are handed out: to objects that are there, and holes that others left."""
        return len(self._objects)

    @property
    def untidy(self) -> bool:
        """Whether late objects have cost as much as a tidy chunk would."""
        return self._debt > len(self._objects)

    def precedes(self, place: Bound) -> bool:
        """Whether an object at this place would not be late."""
        return self._top <= place

    def add(self, metadata: Metadata) -> None:
        """Takes one more object, in order or late."""
        slot = _SLOTS[len(self._objects)]
        bit = 1 << slot
        place = position(metadata)
        if place >= self._top:
            self._top = place
            self._times.append(metadata.published_us)
        else:
            self._late |= bit
            self._times.append(self._times[-1])
        self._objects.append(metadata)
        self.live += 1
        postings = self._postings
        for tag in metadata.tags:
            posting = postings.get(tag, ())
            if isinstance(posting, int):
                postings[tag] = posting | bit
            elif len(posting) < _TUPLE_MAX:
                postings[tag] = (*posting, slot)
            else:
                postings[tag] = _bitmap(posting) | bit

    def remove(self, metadata: Metadata) -> None:
        """Forgets an object of this chunk; its slot stays as a hole."""
        slot = self._slot_of(metadata)
        self._objects[slot] = None
        self._late &= ~(1 << slot)
        self.live -= 1
        for tag in metadata.tags:
            posting = self._postings[tag]
            if isinstance(posting, int):
                rest: Posting = posting ^ 1 << slot
            else:
                rest = tuple(other for other in posting if other != slot)
            if rest:
                self._postings[tag] = rest
            else:
                del self._postings[tag]

    def in_order(self) -> list[Metadata]:
        """All objects, oldest first."""
        there = [metadata for metadata in self._objects if metadata is not None]
        if self._late:
            there.sort(key=position)
        return there

    def matches(self, plan: Plan) -> int:
        """The slots of the objects that satisfy the plan, as bits."""
        get = self._postings.get
        bits: int | None = None
        for tag in plan.all_of:
            posting = get(tag)
            if posting is None:
                return 0
            if not isinstance(posting, int):
                return self._accepted(plan, posting)
            bits = posting if bits is None else bits & posting
        if plan.any_of or plan.parts:
            either = 0
            few: list[int] = []
            for tag in plan.any_of:
                posting = get(tag, 0)
                if isinstance(posting, int):
                    either |= posting
                else:
                    few += posting
            for part in plan.parts:
                either |= self.matches(part)
            if few:
                if not either:
                    return self._accepted(plan, few)
                either |= _bitmap(few)
            bits = either if bits is None else bits & either
        if not bits:
            return 0
        for tag in plan.none_of:
            posting = get(tag, 0)
            bits ^= bits & (posting if isinstance(posting, int) else _bitmap(posting))
        return bits

    def _accepted(self, plan: Plan, slots: Sequence[int]) -> int:
        bits = 0
        for slot in slots:
            if plan.accepts(self._objects[slot].tags):
                bits |= 1 << slot
        return bits

    def before(self, bits: int, high: Bound) -> int:
        late = bits & self._late
        inside = (bits ^ late) & (1 << self._slots_before(high)) - 1
        for slot in self._late_slots(late):
            if self._position(slot) < high:
                inside |= 1 << slot
        return inside

    def since(self, bits: int, low: Bound) -> int:
        late = bits & self._late
        below = self._slots_before(low)
        inside = (bits ^ late) >> below << below
        for slot in self._late_slots(late):
            if self._position(slot) >= low:
                inside |= 1 << slot
        return inside

    def within(self, bits: int, low: Bound, high: Bound) -> int:
        """Those of the slots whose objects stand at or after `low` and before `high`."""
        late = bits & self._late
        inside = (bits ^ late) & (1 << self._slots_before(high)) - 1
        if below := self._slots_before(low):
            inside = inside >> below << below
        for slot in self._late_slots(late):
            if low <= self._position(slot) < high:
                inside |= 1 << slot
        return inside

    def newest(self, bits: int, count: int) -> list[Metadata]:
        """The most recent `count` of the objects in these slots, newest first."""
        late = bits & self._late
        slots = _slots(bits ^ late if late else bits, count)
        if late:
            slots += self._late_slots(late)
            slots = sorted(slots, key=self._position, reverse=True)[:count]
        return [self._objects[slot] for slot in slots]  # type: ignore[misc]

    def _late_slots(self, bits: int) -> list[int]:
        slots = _slots(bits)
        self._debt += len(slots)
        return slots

    def _slots_before(self, bound: Bound) -> int:
        """How many slots come before a bound, going by the objects that are not late."""
        if not bound:
            return 0
        slot = bisect_left(self._times, bound[0])
        if len(bound) == 1:
            return slot
        # Objects of one instant are told apart by key, as far as they are there and of it.
        at_us, key = bound
        while slot < len(self._times) and self._times[slot] == at_us:
            metadata = self._objects[slot]
            if metadata and metadata.published_us == at_us and metadata.key >= key:
                break
            slot += 1
        return slot

    def _slot_of(self, metadata: Metadata) -> int:
        low = bisect_left(self._times, metadata.published_us)
        high = bisect_right(self._times, metadata.published_us, low)
        there = self._late | (1 << high) - (1 << low)
        candidates = self.matches(Plan(metadata.tags)) & there
        return next(slot for slot in _slots(candidates) if self._objects[slot] is metadata)

    def _position(self, slot: int) -> Bound:
        metadata = self._objects[slot]
        assert metadata is not None, "the bits of what was removed are cleared"
        return position(metadata)


def _postings(objects: Sequence[Metadata]) -> dict[Tag, Posting]:
    slots_by_tag: dict[Tag, list[int]] = {}
    for slot, metadata in zip(_SLOTS, objects, strict=False):
        for tag in metadata.tags:
            slots_by_tag.setdefault(tag, []).append(slot)
    return {
        tag: tuple(slots) if len(slots) <= _TUPLE_MAX else _bitmap(slots)
        for tag, slots in slots_by_tag.items()
    }


def _bitmap(slots: Sequence[int]) -> int:
    bits = 0
    for slot in slots:
        bits |= 1 << slot
    return bits


def _slots(bits: int, count: int = SLOTS_MAX) -> list[int]:
    """The numbers of the highest `count` bits that are set, highest first."""
    slots: list[int] = []
    base = bits.bit_length()
    while bits:
        # Every step copies what it works on, so it works on small pieces.
        base = bits.bit_length() - _STRIDE
        if base < 0:
            base = 0
        piece = bits >> base
        while piece:
            top = piece.bit_length() - 1
            slots.append(base + top)
            if len(slots) == count:
                return slots
            piece ^= 1 << top
        bits &= (1 << base) - 1
    return slots
