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


class Row(msgspec.Struct, frozen=True):
    """A conjunction to be indexed: positive tags, negative tags, overlap tags."""

    positive: Tags
    negative: Tags
    doubts: Tags = ()


class Vocabulary:
    """The tags in use: the number of uses, and one shared copy of each."""

    def __init__(self) -> None:
        self.words: dict[Tag, _Word] = {}

    def __len__(self) -> int:
        return len(self.words)

    def rarest_first(self, tags: Tags) -> Tags:
        """Sorts tags by number of uses, then alphabetically."""
        return tuple(sorted(tags, key=self._rank)) if len(tags) > 1 else tags

    def take(self, tags: Tags) -> Tags:
        """Counts one more use of each tag; returns the shared copies."""
        if not tags:
            return ()
        words = [self.words.get(tag) or self.words.setdefault(tag, _Word(tag)) for tag in tags]
        for word in words:
            word.uses += 1
        return words[0].alone if len(words) == 1 else tuple([word.alone[0] for word in words])

    def release(self, tags: Tags) -> None:
        """Counts one use less of each tag; removes unused tags."""
        for tag in tags:
            word = self.words[tag]
            word.uses -= 1
            if not word.uses:
                del self.words[tag]

    def _rank(self, tag: Tag) -> tuple[int, Tag]:
        word = self.words.get(tag)
        return (0 if word is None else word.uses), tag


class _Word:
    """A tag in use, in a one-element tuple that most entries share."""

    __slots__ = ("alone", "uses")

    def __init__(self, tag: Tag) -> None:
        self.alone = (tag,)
        self.uses = 0


def rows_of(conjunctions: Sequence[Conjunction], words: Vocabulary) -> list[Row]:
    """Returns the conjunctions with their positive tags sorted, rarest first."""
    return [Row(words.rarest_first(c.positive), c.negative) for c in conjunctions]


def planned(rows: list[Row]) -> list[Row]:
    """Returns conjunctions of which exactly one matches each object that any matched before."""
    if len(rows) == 1:
        return rows
    # Short conjunctions first: excluding one with few literals takes few literals.
    rows = sorted(rows, key=_length)
    plan: list[Row] = []
    for number, row in enumerate(rows):
        pieces = [row]
        for earlier in rows[:number]:
            pieces = [piece for whole in pieces for piece in _without(whole, earlier)]
        plan += pieces
    return plan


def _without(row: Row, other: Row) -> tuple[Row, ...]:
    """Returns a conjunction minus another one, as disjoint conjunctions."""
    positive, negative = row.positive, row.negative
    wanted = [tag for tag in other.positive if tag not in positive]
    unwanted = [tag for tag in other.negative if tag not in negative]
    if _any_in(wanted, negative) or _any_in(unwanted, positive):
        return (row,)
    match wanted, unwanted:
        case [], []:
            return ()
        case [tag], []:
            return (Row(positive, (*negative, tag), row.doubts),)
        case [], [absent]:
            return (Row((*positive, absent), negative, row.doubts),)
        case [tag], [absent] if len(positive) == 1:
            return (
                Row(positive, (*negative, tag), row.doubts),
                Row((*positive, tag, absent), negative, row.doubts),
            )
    doubt = wanted[0] if wanted else positive[0]
    return (row if doubt in row.doubts else Row(positive, negative, (*row.doubts, doubt)),)


def _any_in(some: list[Tag], others: Tags) -> bool:
    return bool(some and others) and not set(others).isdisjoint(some)


def _length(row: Row) -> tuple[int, int]:
    return len(row.positive) + len(row.negative), len(row.positive)
