"""Disjoint conjunctions: rewrites the conjunctions of a subscription so that at most one matches.

Entry point: `make_disjoint`. Several conjunctions of a formula may match the same object. Instead
of removing duplicates from the results, each conjunction excludes the earlier ones: `a | b & c`
becomes `a` and `b & c & !a`. Where that would take many conjunctions, an overlap tag is noted,
without which the earlier conjunction cannot match; only objects with this tag are checked.
Clauses: M7, M15.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag

Tags = tuple[Tag, ...]


class PlannedConjunction(msgspec.Struct, frozen=True):
    """A conjunction to be indexed: positive tags, negative tags, overlap tags."""

    positive: Tags
    negative: Tags
    overlap_tags: Tags = ()


class TagRegistry:
    """The tags in use: the number of uses, and one shared copy of each."""

    def __init__(self) -> None:
        self.interned: dict[Tag, _InternedTag] = {}

    def __len__(self) -> int:
        return len(self.interned)

    def rarest_first(self, tags: Tags) -> Tags:
        """Sorts tags by number of uses, then alphabetically."""
        return tuple(sorted(tags, key=self._use_count)) if len(tags) > 1 else tags

    def acquire(self, tags: Tags) -> Tags:
        """Counts one more use of each tag; returns the shared copies."""
        if not tags:
            return ()
        interned = [
            self.interned.get(tag) or self.interned.setdefault(tag, _InternedTag(tag))
            for tag in tags
        ]
        for entry in interned:
            entry.use_count += 1
        return (
            interned[0].single
            if len(interned) == 1
            else tuple([entry.single[0] for entry in interned])
        )

    def release(self, tags: Tags) -> None:
        """Counts one use less of each tag; removes unused tags."""
        for tag in tags:
            entry = self.interned[tag]
            entry.use_count -= 1
            if not entry.use_count:
                del self.interned[tag]

    def _use_count(self, tag: Tag) -> tuple[int, Tag]:
        entry = self.interned.get(tag)
        return (0 if entry is None else entry.use_count), tag


class _InternedTag:
    """A tag in use, in a one-element tuple that most entries share."""

    __slots__ = ("single", "use_count")

    def __init__(self, tag: Tag) -> None:
        self.single = (tag,)
        self.use_count = 0


def plan_conjunctions(
    conjunctions: Sequence[Conjunction], tags: TagRegistry
) -> list[PlannedConjunction]:
    """Returns the conjunctions with their positive tags sorted, rarest first."""
    return [PlannedConjunction(tags.rarest_first(c.positive), c.negative) for c in conjunctions]


def make_disjoint(conjunctions: list[PlannedConjunction]) -> list[PlannedConjunction]:
    """Returns conjunctions of which exactly one matches each object that any matched before."""
    if len(conjunctions) == 1:
        return conjunctions
    # Short conjunctions first: excluding one with few literals takes few literals.
    conjunctions = sorted(conjunctions, key=_literal_counts)
    result: list[PlannedConjunction] = []
    for number, conjunction in enumerate(conjunctions):
        pieces = [conjunction]
        for earlier in conjunctions[:number]:
            pieces = [piece for whole in pieces for piece in _subtract(whole, earlier)]
        result += pieces
    return result


def _subtract(
    conjunction: PlannedConjunction, other: PlannedConjunction
) -> tuple[PlannedConjunction, ...]:
    """Returns a conjunction minus another one, as disjoint conjunctions."""
    positive, negative = conjunction.positive, conjunction.negative
    required = [tag for tag in other.positive if tag not in positive]
    excluded = [tag for tag in other.negative if tag not in negative]
    if _intersects(required, negative) or _intersects(excluded, positive):
        return (conjunction,)
    match required, excluded:
        case [], []:
            return ()
        case [tag], []:
            return (PlannedConjunction(positive, (*negative, tag), conjunction.overlap_tags),)
        case [], [absent]:
            return (PlannedConjunction((*positive, absent), negative, conjunction.overlap_tags),)
        case [tag], [absent] if len(positive) == 1:
            return (
                PlannedConjunction(positive, (*negative, tag), conjunction.overlap_tags),
                PlannedConjunction((*positive, tag, absent), negative, conjunction.overlap_tags),
            )
    overlap_tag = required[0] if required else positive[0]
    return (
        conjunction
        if overlap_tag in conjunction.overlap_tags
        else PlannedConjunction(positive, negative, (*conjunction.overlap_tags, overlap_tag)),
    )


def _intersects(tags: list[Tag], others: Tags) -> bool:
    return bool(tags and others) and not set(others).isdisjoint(tags)


def _literal_counts(conjunction: PlannedConjunction) -> tuple[int, int]:
    return len(conjunction.positive) + len(conjunction.negative), len(conjunction.positive)
