"""Postings: for every tag, the slots of the objects that carry it, chunk by chunk.

Inside a chunk a common tag's posting is an integer whose bit n stands for slot n, so that a query
takes a few `&` and `|` and counting is `bit_count`; a rare tag's is the tuple of its slots. The
postings of one tag lie together, because that is how queries read them: the cost of a query into
a large history is the memory it touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag

Posting = int | tuple[int, ...]
Column = Callable[[int], Posting | None]
"""Tells the posting of one tag in a chunk."""

SLOTS_MAX = 16_384
_TUPLE_MAX = 8
# CPython makes a new object for every larger integer; all tuples share these.
_SLOTS = tuple(range(SLOTS_MAX))


class Plan(NamedTuple):
    """What a query looks up: every one of `all_of`, none of `none_of`, and, unless both are None,
    one of `any_of` or one of `parts`.

    `a & b & !d | a & c & !d` is looked up as `a & (b | c) & !d`, as people wrote it before it was
    brought into disjunctive normal form.
    """

    all_of: Sequence[Column]
    none_of: Sequence[Column]
    any_of: Sequence[Column] | None = None
    parts: Sequence[Plan] = ()


class Postings:
    """Where each tag occurs."""

    def __init__(self) -> None:
        self._by_tag: dict[Tag, dict[int, Posting]] = {}

    def add(self, tags: Iterable[Tag], chunk: int, slot: int) -> None:
        """Enters an object's tags."""
        bit = 1 << slot
        slot = _SLOTS[slot]
        by_tag = self._by_tag
        for tag in tags:
            column = by_tag.get(tag)
            if column is None:
                by_tag[tag] = {chunk: (slot,)}
                continue
            posting = column.get(chunk, ())
            if isinstance(posting, int):
                column[chunk] = posting | bit
            elif len(posting) < _TUPLE_MAX:
                column[chunk] = (*posting, slot)
            else:
                column[chunk] = _bitmap(posting) | bit

    def plan(self, conjunctions: Sequence[Conjunction]) -> Plan | None:
        first = conjunctions[0]
        if len(conjunctions) == 1:
            return self._plan(first.positive, first.negative)
        all_of = [t for t in first.positive]
        none_of = [t for t in first.negative]
        for c in conjunctions[1:]:
            for t in first.positive:
                if t in all_of and t not in c.positive:
                    all_of.remove(t)
            for t in first.negative:
                if t in none_of and t not in c.negative:
                    none_of.remove(t)
        shared = self._plan(all_of, none_of)
        if shared is None:
            return None
        any_of = []
        parts = []
        get = self._by_tag.get
        for c in conjunctions:
            positive = [t for t in c.positive if t not in all_of]
            negative = [t for t in c.negative if t not in none_of]
            if not positive:
                parts = [p for c in conjunctions if (p := self._plan(c.positive, c.negative))]
                return Plan((), (), (), parts) if parts else None
            if len(positive) == 1 and not negative:
                col = get(positive[0])
                if col is not None:
                    any_of.append(col.get)
            elif part := self._plan(positive, negative):
                parts.append(part)
        if not any_of and not parts:
            return None
        return Plan(shared.all_of, shared.none_of, any_of, parts)

    def _plan(self, positive, negative):
        get = self._by_tag.get
        all_of = []
        for t in positive:
            c = get(t)
            if c is None:
                return None
            all_of.append(c.get)
        none_of = []
        for t in negative:
            c = get(t)
            if c is not None:
                none_of.append(c.get)
        return Plan(all_of, none_of)


def matches(plan: Plan, chunk: int) -> int:
    bits: int | None = None
    few: Sequence[int] | None = None
    for column in plan.all_of:
        posting = column(chunk)
        if posting is None:
            return 0
        if isinstance(posting, int):
            bits = posting if bits is None else bits & posting
        elif few is None:
            few = posting
        else:
            few = [slot for slot in few if slot in posting]
    if few is not None:
        if bits is not None:
            few = [slot for slot in few if bits >> slot & 1]
        bits = _bitmap(few)
    if plan.any_of is not None:
        either = 0
        for column in plan.any_of:
            posting = column(chunk)
            if posting is not None:
                either |= posting if isinstance(posting, int) else _bitmap(posting)
        for part in plan.parts:
            either |= matches(part, chunk)
        bits = either if bits is None else bits & either
    if not bits:
        return 0
    for column in plan.none_of:
        posting = column(chunk)
        if posting is not None:
            bits ^= bits & (posting if isinstance(posting, int) else _bitmap(posting))
    return bits


def _bitmap(slots: Iterable[int]) -> int:
    bits = 0
    for slot in slots:
        bits |= 1 << slot
    return bits
