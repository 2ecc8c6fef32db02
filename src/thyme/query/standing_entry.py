"""Entries of the subscription trie: a subscription and its conjunctions.

A subscription has a few of these objects, so they are small (`__slots__`).
Clauses: M7, M10, M15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from thyme.model.tags import Tag

if TYPE_CHECKING:
    from thyme.query.standing_tree import Node

S = TypeVar("S")
Tags = tuple[Tag, ...]
Step = Tag | tuple[Tag, Tag]
"""The label of an edge of the trie: a tag, or two sorted tags at the root."""


class Standing(Generic[S]):
    """One active subscription: the value to return, and its time frame."""

    __slots__ = ("end_us", "last", "start_us", "value")

    def __init__(self, value: S, start_us: int, end_us: int) -> None:
        self.value = value
        self.start_us = start_us
        self.end_us = end_us
        self.last: Entry[S] | None = None

    def entries(self) -> list[Entry[S]]:
        """Returns the entries of the subscription, the last one first."""
        found = []
        entry = self.last
        while entry is not None:
            found.append(entry)
            entry = entry.earlier
        return found


class Entry(Generic[S]):
    """One conjunction of a subscription in the trie, linked to the `previous` entry.

    `root_edge` and `more_tags` are the path to it: its positive tags. A tag of `negative` excludes
    it. For an object with a tag of `overlap_tags`, a previous entry of the subscription may match
    as well and takes precedence. If its path ends at a node, `index` is its index in the entries of
    `node`.
    """

    __slots__ = ("doubts", "earlier", "head", "more", "negative", "node", "place", "standing")

    def __init__(
        self, standing: Standing[S], head: Step, more: Tags, negative: Tags, doubts: Tags
    ) -> None:
        self.standing = standing
        self.earlier = standing.last
        standing.last = self
        self.head = head
        self.more = more
        self.negative = negative
        self.doubts = doubts
        self.node: Node[S] | None = None
        self.place = 0

    @property
    def positive(self) -> Tags:
        """The positive tags of the conjunction."""
        return ((self.head,) if isinstance(self.head, str) else self.head) + self.more

    def step(self, depth: int) -> Step | None:
        """Returns the edge from a node of this depth; None at the end of the path."""
        if depth == 0:
            return self.head
        return self.more[depth - 1] if depth <= len(self.more) else None

    def holds(self, present: frozenset[Tag]) -> bool:
        """Whether an object with these tags satisfies the conjunction."""
        return present.issuperset(self.positive) and present.isdisjoint(self.negative)

    def first(self, present: frozenset[Tag]) -> bool:
        """Whether no previous entry of the subscription matches an object with these tags."""
        entry = self.earlier
        while entry is not None:
            if entry.holds(present):
                return False
            entry = entry.earlier
        return True
