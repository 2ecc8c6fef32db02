"""Tag popularity: how often a node has seen each tag, to tell rare tags from common ones.

A node counts the tags of objects published in its cell, including its own. This sample does not
depend on the node's own subscriptions. The table is bounded: when it holds too many tags, all
counts are halved and the rare tags are dropped. Entry point: `TagPopularity`.
Clauses: B10.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from thyme.model.tags import Tag


class TagPopularity:
    """The number of times each tag was seen."""

    def __init__(self, tags_max: int = 10_000) -> None:
        self._tags_max = tags_max
        self._counts: Counter[Tag] = Counter()

    def __len__(self) -> int:
        return len(self._counts)

    def add_tags(self, tags: Iterable[Tag]) -> None:
        """Counts the tags of a published object."""
        self._counts.update(tags)
        while len(self._counts) > self._tags_max:
            self._counts = Counter(
                {tag: count // 2 for tag, count in self._counts.items() if count > 1}
            )

    def count_of(self, tag: Tag) -> int:
        """The number of times a tag was seen."""
        return self._counts[tag]
