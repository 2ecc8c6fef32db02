"""What is filed in the tree of standing subscriptions: the subscription, entry by entry.

There are a few of these for every subscription, so they are as small as Python makes them.
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
"""What leads from one place in the tree to the next: a tag, or at first two in order."""


class Standing(Generic[S]):
    """One standing subscription: what the broker wants back, and from when to when."""

    __slots__ = ("end_us", "last", "start_us", "value")

    def __init__(self, value: S, start_us: int, end_us: int) -> None:
        self.value = value
        self.start_us = start_us
        self.end_us = end_us
        self.last: Entry[S] | None = None

    def entries(self) -> list[Entry[S]]:
        """Its conjunctions as filed, the last first."""
        found = []
        entry = self.last
        while entry is not None:
            found.append(entry)
            entry = entry.earlier
        return found


class Entry(Generic[S]):
    """One conjunction of a subscription as it is filed, after the `earlier` ones.

    `head` and then `more` are the steps to it: its positive tags. A tag of `negative` bars it. With
    a tag of `doubts`, an earlier entry of the subscription may hold too, and then goes first.
    If its steps end at a node, `place` is where it stands among the entries of that `node`.
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
        """The tags it asks for."""
        return ((self.head,) if isinstance(self.head, str) else self.head) + self.more

    def step(self, depth: int) -> Step | None:
        """The step from a place of this depth; None at the end."""
        if depth == 0:
            return self.head
        return self.more[depth - 1] if depth <= len(self.more) else None

    def holds(self, present: frozenset[Tag]) -> bool:
        """Whether an object with these tags satisfies the conjunction."""
        return present.issuperset(self.positive) and present.isdisjoint(self.negative)

    def first(self, present: frozenset[Tag]) -> bool:
        """Whether no earlier entry of the subscription holds."""
        entry = self.earlier
        while entry is not None:
            if entry.holds(present):
                return False
            entry = entry.earlier
        return True
