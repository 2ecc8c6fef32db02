"""The tree under the index of standing subscriptions: conjunctions filed by their tags.

A conjunction is filed under its positive tags, rarest first, so a new object walks only the paths
that its own tags spell. Where many conjunctions end at one place, what they bring lies in one list
and is copied whole: with a million subscriptions matching costs what touching memory costs, and
copying a list touches each result once, where a set or a loop would do so several times.
Copying whole brings no subscription twice, because of how `standing_plan` lays out conjunctions.
Clauses: M11, M15.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from thyme.model.tags import Tag

S = TypeVar("S")
Tags = tuple[Tag, ...]

# Measured with benchmarks/bench_matching.py; half or twice as many change little.
BUCKET_MAX = 4
CROWD_MAX = 64
# Guards stand inside guards; this bounds how deep a walk recurses for them.
GUARDS_MAX = 8


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

    `positive` is in the order of the path. A tag of `negative` bars the entry. With a tag of
    `doubts`, an earlier entry of the subscription may hold too, and then goes first.
    """

    __slots__ = ("doubts", "earlier", "negative", "node", "place", "positive", "standing")

    def __init__(
        self, standing: Standing[S], positive: Tags, negative: Tags = (), doubts: Tags = ()
    ) -> None:
        self.standing = standing
        self.earlier = standing.last
        standing.last = self
        self.positive = positive
        self.negative = negative
        self.doubts = doubts
        self.node: Node[S] | None = None
        self.place = 0

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


# A lone entry needs no container, and most are alone.
Bucket: TypeAlias = Entry[S] | tuple[Entry[S], ...]
Crowds: TypeAlias = dict[Tag, Entry[S] | dict[Entry[S], None]]


class Node(Generic[S]):
    """A place in the tree, reached when the literals on the way to it hold.

    `entries` end here, and `values` in step with them is what they bring. `barred` and `doubted`
    find among them those that a tag speaks against. A crowd barred by the same tag stands apart,
    in a node under `guarded`. `branches` leads to entries with more positive tags: few in a bucket
    where each is asked, many in a node.
    """

    __slots__ = (
        "barred",
        "branches",
        "depth",
        "doubted",
        "entries",
        "guarded",
        "guards",
        "parent",
        "tag",
        "values",
    )

    def __init__(
        self,
        parent: Node[S] | None = None,
        tag: Tag | None = None,
        depth: int = 0,
        guards: Tags = (),
    ) -> None:
        self.parent = parent
        self.tag = tag
        self.depth = depth
        self.guards = guards
        self.entries: list[Entry[S]] = []
        self.values: list[S] = []
        # None while not needed: there are many nodes, and few need all of these.
        self.barred: Crowds[S] | None = None
        self.doubted: Crowds[S] | None = None
        self.guarded: dict[Tag, Node[S]] | None = None
        self.branches: dict[Tag, Bucket[S] | Node[S]] | None = None

    def gather(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], whole: bool
    ) -> None:
        """Appends to `out` what an object with these tags matches: values, or whole entries."""
        if self.entries:
            base = len(out)
            out += self.entries if whole else self.values
            barred, doubted = self.barred, self.doubted
            if (barred and not barred.keys().isdisjoint(tags)) or (
                doubted and not doubted.keys().isdisjoint(tags)
            ):
                self._strike(tags, present, out, base)
        if self.guarded:
            for tag, guarded in self.guarded.items():
                if tag not in present:
                    guarded.gather(tags, present, out, whole)
        branches = self.branches
        if not branches:
            return
        for tag in tags:
            branch = branches.get(tag)
            if branch is None:
                continue
            if isinstance(branch, Node):
                branch.gather(tags, present, out, whole)
                continue
            for entry in (branch,) if isinstance(branch, Entry) else branch:
                # `holds`, written out: a call would cost as much as the answer.
                if (
                    present.issuperset(entry.positive)
                    and present.isdisjoint(entry.negative)
                    and (not entry.doubts or entry.first(present))
                ):
                    out.append(entry if whole else entry.standing.value)

    def _strike(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], base: int
    ) -> None:
        """Takes back from the end of `out` those of this place that a tag speaks against."""
        struck: list[int] = []
        if barred := self.barred:
            for tag in tags:
                if tag in barred:
                    struck += [entry.place for entry in _each(barred[tag])]
        if doubted := self.doubted:
            for tag in tags:
                if tag in doubted:
                    crowd = _each(doubted[tag])
                    struck += [entry.place for entry in crowd if not entry.first(present)]
        # The last place goes first: what then moves into a gap is never itself to be struck.
        for place in sorted(set(struck), reverse=True) if len(struck) > 1 else struck:
            last = out.pop()
            if base + place < len(out):
                out[base + place] = last

    def file(self, entry: Entry[S]) -> None:
        """Puts an entry where its tags lead."""
        waiting = [(self, entry)]
        while waiting:
            node, entry = waiting.pop()
            if node.depth == len(entry.positive):
                node._end(entry)
                continue
            tag = entry.positive[node.depth]
            if node.branches is None:
                node.branches = {}
            branch = node.branches.get(tag)
            if isinstance(branch, Node):
                waiting.append((branch, entry))
                continue
            entry.node = node
            bucket = entry if branch is None else (*_each(branch), entry)
            if isinstance(bucket, Entry) or len(bucket) <= BUCKET_MAX:
                node.branches[tag] = bucket
            else:
                child: Node[S] = Node(node, tag, node.depth + 1)
                node.branches[tag] = child
                waiting += [(child, moved) for moved in reversed(bucket)]

    def _end(self, entry: Entry[S]) -> None:
        """Takes an entry that has no more positive tags."""
        node = self
        while node.guarded:
            tag = next(filter(node.guarded.__contains__, entry.negative), None)
            if tag is None:
                break
            node = node.guarded[tag]
        entry.node = node
        entry.place = len(node.entries)
        node.entries.append(entry)
        node.values.append(entry.standing.value)
        if entry.doubts:
            node.doubted = _joined(node.doubted, entry.doubts, entry)
        bars = node._bars(entry)
        if bars:
            node.barred = _joined(node.barred, bars, entry)
            if len(node.entries) > CROWD_MAX and len(node.guards) < GUARDS_MAX:
                node._part(bars)

    def _part(self, tags: Tags) -> None:
        """Moves a crowd that one of the tags bars to a node of its own, to be passed by whole."""
        assert self.barred is not None
        for tag in tags:
            crowd = self.barred[tag]
            if isinstance(crowd, Entry) or len(crowd) <= CROWD_MAX:
                continue
            members = list(crowd)
            for entry in members:
                self._unend(entry)
            if self.guarded is None:
                self.guarded = {}
            child = self.guarded[tag] = Node(self, tag, self.depth, (*self.guards, tag))
            for entry in members:
                child._end(entry)
            return

    def remove(self, entry: Entry[S]) -> None:
        """Takes out an entry of this place or its buckets; places left empty go too."""
        if len(entry.positive) == self.depth:
            self._unend(entry)
        else:
            assert self.branches is not None
            tag = entry.positive[self.depth]
            bucket = self.branches[tag]
            assert not isinstance(bucket, Node)
            match [other for other in _each(bucket) if other is not entry]:
                case []:
                    del self.branches[tag]
                case [alone]:
                    self.branches[tag] = alone
                case several:
                    self.branches[tag] = tuple(several)
        entry.node = None
        self._prune()

    def _unend(self, entry: Entry[S]) -> None:
        last, value = self.entries.pop(), self.values.pop()
        if last is not entry:
            self.entries[entry.place], self.values[entry.place] = last, value
            last.place = entry.place
        if entry.doubts:
            self.doubted = _left(self.doubted, entry.doubts, entry)
        self.barred = _left(self.barred, self._bars(entry), entry)

    def _bars(self, entry: Entry[S]) -> Tags:
        """The tags that bar an entry and are not known to be absent here."""
        if not self.guards:
            return entry.negative
        return tuple([tag for tag in entry.negative if tag not in self.guards])

    def _prune(self) -> None:
        node = self
        while not (node.entries or node.branches or node.guarded):
            parent = node.parent
            if parent is None:
                node.branches = None
                return
            assert node.tag is not None
            if node.guards:
                assert parent.guarded is not None
                del parent.guarded[node.tag]
            else:
                assert parent.branches is not None
                del parent.branches[node.tag]
            node = parent


def _each(some: Entry[S] | Iterable[Entry[S]]) -> Iterable[Entry[S]]:
    return (some,) if isinstance(some, Entry) else some


def _joined(crowds: Crowds[S] | None, tags: Tags, entry: Entry[S]) -> Crowds[S]:
    """The crowds with an entry in those of the tags."""
    if crowds is None:
        crowds = {}
    for tag in tags:
        crowd = crowds.get(tag)
        if crowd is None:
            crowds[tag] = entry
        elif isinstance(crowd, Entry):
            crowds[tag] = {crowd: None, entry: None}
        else:
            crowd[entry] = None
    return crowds


def _left(crowds: Crowds[S] | None, tags: Tags, entry: Entry[S]) -> Crowds[S] | None:
    """The crowds without an entry in those of the tags; None when that leaves none."""
    if crowds is None:
        return None
    for tag in tags:
        crowd = crowds[tag]
        if isinstance(crowd, Entry):
            del crowds[tag]
            continue
        del crowd[entry]
        if len(crowd) == 1:
            crowds[tag] = next(iter(crowd))
    return crowds or None
