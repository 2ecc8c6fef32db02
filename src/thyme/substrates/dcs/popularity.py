"""Popularity: how often a node has heard of tags, to tell rare ones from common ones.

It hears of the objects that are published in its cell, its own among them: a fair sample, whatever
its own interests are. Bounded: when too many tags are known, all count half and the rare ones go.
Clauses: B10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from thyme.model.tags import Tag


class Popularity:
    """How often each tag was heard of."""

    def __init__(self, tags_max: int = 10_000) -> None:
        self._tags_max = tags_max
        self._counts: Counter[Tag] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def note(self, tags: Iterable[Tag]) -> None:
        """An object with these tags was published."""
        self._counts.update(tags)
        while len(self._counts) > self._tags_max:
            self._counts = Counter(
                {tag: count // 2 for tag, count in self._counts.items() if count > 1}
            )

    def of(self, tag: Tag) -> int:
        """How often a tag was heard of."""
        return self._counts[tag]
