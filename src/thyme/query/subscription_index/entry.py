"""Entries of the subscription trie: a subscription and its conjunctions.

A subscription has a few of these objects, so they are small (`__slots__`).
Clauses: M7, M10, M15.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from thyme.model.tags import Tag

if TYPE_CHECKING:
    from thyme.query.subscription_index.trie import TrieNode

S = TypeVar("S")
Tags = tuple[Tag, ...]
EdgeLabel = Tag | tuple[Tag, Tag]
"""The label of an edge of the trie: a tag, or two sorted tags at the root."""


class IndexedSubscription(Generic[S]):
    """One active subscription: the value to return, and its time frame."""

    __slots__ = ("end_us", "last_entry", "start_us", "value")

    def __init__(self, value: S, start_us: int, end_us: int) -> None:
        self.value = value
        self.start_us = start_us
        self.end_us = end_us
        self.last_entry: ConjunctionEntry[S] | None = None

    def entries(self) -> list[ConjunctionEntry[S]]:
        """Returns the entries of the subscription, the last one first."""
        found = []
        entry = self.last_entry
        while entry is not None:
            found.append(entry)
            entry = entry.previous
        return found


class ConjunctionEntry(Generic[S]):
    """One conjunction of a subscription in the trie, linked to the `previous` entry.

    `root_edge` and `more_tags` are the path to it: its positive tags. A tag of `negative` excludes
    it. For an object with a tag of `overlap_tags`, a previous entry of the subscription may match
    as well and takes precedence. If its path ends at a node, `index` is its index in the entries of
    `node`.
    """

    __slots__ = (
        "index",
        "more_tags",
        "negative",
        "node",
        "overlap_tags",
        "previous",
        "root_edge",
        "subscription",
    )

    def __init__(
        self,
        subscription: IndexedSubscription[S],
        root_edge: EdgeLabel,
        more_tags: Tags,
        negative: Tags,
        overlap_tags: Tags,
    ) -> None:
        self.subscription = subscription
        self.previous = subscription.last_entry
        subscription.last_entry = self
        self.root_edge = root_edge
        self.more_tags = more_tags
        self.negative = negative
        self.overlap_tags = overlap_tags
        self.node: TrieNode[S] | None = None
        self.index = 0

    @property
    def positive(self) -> Tags:
        """The positive tags of the conjunction."""
        return (
            (self.root_edge,) if isinstance(self.root_edge, str) else self.root_edge
        ) + self.more_tags

    def edge_at(self, depth: int) -> EdgeLabel | None:
        """Returns the edge from a node of this depth; None at the end of the path."""
        if depth == 0:
            return self.root_edge
        return self.more_tags[depth - 1] if depth <= len(self.more_tags) else None

    def matches(self, present: frozenset[Tag]) -> bool:
        """Whether an object with these tags satisfies the conjunction."""
        return present.issuperset(self.positive) and present.isdisjoint(self.negative)

    def is_first_match(self, present: frozenset[Tag]) -> bool:
        """Whether no previous entry of the subscription matches an object with these tags."""
        entry = self.previous
        while entry is not None:
            if entry.matches(present):
                return False
            entry = entry.previous
        return True
