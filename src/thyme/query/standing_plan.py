"""How the conjunctions of one subscription are laid out, so that at most one of them brings it.

The conjunctions of a formula may match the same object. Rather than look for doubles among the
results, the plan puts the conjunctions in a row and bars each by what lets an earlier one match:
`a | b & c` is filed as `a` and `b & c & !a`. Where that would take many pieces, the plan names a
tag without which the earlier one cannot match; only an object with it needs a second look.
Clauses: M7, M15.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag

Tags = tuple[Tag, ...]


class Row(msgspec.Struct, frozen=True):
    """A conjunction to be filed: its path, the tags that bar it, the tags that cast doubt on it."""

    positive: Tags
    negative: Tags
    doubts: Tags = ()


class Vocabulary:
    """The tags in use: how often each is, and one copy of it for all."""

    def __init__(self) -> None:
        self.words: dict[Tag, _Word] = {}

    def __len__(self) -> int:
        return len(self.words)

    def rarest_first(self, tags: Tags) -> Tags:
        """The tags by how often they are in use, then by spelling."""
        return tuple(sorted(tags, key=self._rank)) if len(tags) > 1 else tags

    def take(self, tags: Tags) -> Tags:
        """Counts one more use of each tag; returns them in the copies to keep."""
        if not tags:
            return ()
        words = [self.words.get(tag) or self.words.setdefault(tag, _Word(tag)) for tag in tags]
        for word in words:
            word.uses += 1
        return words[0].alone if len(words) == 1 else tuple([word.alone[0] for word in words])

    def release(self, tags: Tags) -> None:
        """Counts one use less of each; a tag out of use is forgotten."""
        for tag in tags:
            word = self.words[tag]
            word.uses -= 1
            if not word.uses:
                del self.words[tag]

    def _rank(self, tag: Tag) -> tuple[int, Tag]:
        word = self.words.get(tag)
        return (0 if word is None else word.uses), tag


class _Word:
    """A tag in use. Most entries hold it alone in a tuple: one such tuple serves them all."""

    __slots__ = ("alone", "uses")

    def __init__(self, tag: Tag) -> None:
        self.alone = (tag,)
        self.uses = 0


def rows_of(conjunctions: Sequence[Conjunction], words: Vocabulary) -> list[Row]:
    """The conjunctions as they are, to be filed under their rarest tags."""
    return [Row(words.rarest_first(c.positive), c.negative) for c in conjunctions]


def planned(rows: list[Row]) -> list[Row]:
    """The rows such that an object that any of them matches is brought by exactly one."""
    if len(rows) == 1:
        return rows
    # Short ones first: the fewer literals a row has, the fewer it takes to tell another apart.
    rows = sorted(rows, key=_length)
    plan: list[Row] = []
    for number, row in enumerate(rows):
        pieces = [row]
        for earlier in rows[:number]:
            pieces = [piece for whole in pieces for piece in _without(whole, earlier)]
        plan += pieces
    return plan


def _without(row: Row, other: Row) -> tuple[Row, ...]:
    """What of a row another leaves to it, as rows of which an object matches at most one."""
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
