"""Conjunction trie: stores the conjunctions of subscriptions by their tags.

Entry point: `ConjunctionTrie`. The path of a conjunction consists of its positive tags; the first
edge is the pair of the two rarest ones. A new object visits only paths made of its own tags. The
values of the conjunctions that end at one node are in one list, which is copied as a whole: with a
million subscriptions, memory access dominates the cost of matching, and copying a list accesses
each result once. No subscription is copied twice, because `disjoint` makes conjunctions disjoint.
Clauses: M11, M15.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any, Generic, TypeAlias, TypeVar

from thyme.model.tags import Tag
from thyme.query.standing_entry import Entry, Step, Tags

S = TypeVar("S")

# Measured with benchmarks/bench_matching.py; half or twice as many change little.
FEW_MAX = 8
CROWD_MAX = 64
# Nodes for absent tags can nest; this bounds the depth of the recursion.
GUARDS_MAX = 8


# Most nodes need few of their containers: these shared empty ones are never changed.
_NO_LIST: list[Any] = []
_NO_DICT: dict[Any, Any] = {}

# Most buckets have one entry, which needs no container.
Few: TypeAlias = Entry[S] | tuple[Entry[S], ...]
Crowds: TypeAlias = dict[Tag, Few[S] | dict[Entry[S], None]]


class Node(Generic[S]):
    """A node of the trie, reached by objects that satisfy the literals on the path to it.

    `entries` end here; `values` are their values, at the same index. `by_negative_tag` and
    `by_overlap_tag` find the entries that a tag may exclude. Many entries excluded by the same tag
    are moved to a node in `children_if_absent`. `children` leads to entries with more positive
    tags: a few entries in a bucket, of which each is checked, or many in a node.
    """

    __slots__ = (
        "barred",
        "branches",
        "depth",
        "doubted",
        "entries",
        "guarded",
        "guards",
        "values",
    )

    def __init__(self, depth: int = 0, guards: Tags = ()) -> None:
        self.depth = depth
        self.guards = guards
        self.entries: list[Entry[S]] = _NO_LIST
        self.values: list[S] = _NO_LIST
        self.barred: Crowds[S] = _NO_DICT
        self.doubted: Crowds[S] = _NO_DICT
        self.guarded: dict[Tag, Node[S]] = _NO_DICT
        self.branches: dict[Step, Few[S] | Node[S]] = _NO_DICT

    @property
    def empty(self) -> bool:
        """Whether the node has no entries and no children."""
        return not (self.entries or self.branches or self.guarded)

    def gather(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], whole: bool
    ) -> None:
        """Appends to `out` the matches of an object at this node and below."""
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
        if self.branches:
            self.follow(tags, tags, present, out, whole)

    def follow(
        self,
        steps: Iterable[Step],
        tags: Sequence[Tag],
        present: frozenset[Tag],
        out: list[Any],
        whole: bool,
    ) -> None:
        """Appends to `out` the matches of an object along these edges."""
        branches = self.branches
        for step in steps:
            branch = branches.get(step)
            if branch is None:
                continue
            if isinstance(branch, Node):
                branch.gather(tags, present, out, whole)
                continue
            for entry in (branch,) if isinstance(branch, Entry) else branch:
                if (
                    (not entry.more or present.issuperset(entry.more))
                    and present.isdisjoint(entry.negative)
                    and (not entry.doubts or entry.first(present))
                ):
                    out.append(entry if whole else entry.standing.value)

    def _strike(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], base: int
    ) -> None:
        """Removes from the end of `out` the entries of this node that a tag excludes."""
        struck: list[int] = []
        barred, doubted = self.barred, self.doubted
        for tag in tags:
            crowd = barred.get(tag)
            if isinstance(crowd, Entry):
                struck.append(crowd.place)
            elif crowd is not None:
                struck += [entry.place for entry in crowd]
            if tag in doubted:
                struck += [e.place for e in _each(doubted[tag]) if not e.first(present)]
        # Highest index first: the element moved into a gap is never one to be removed.
        for place in sorted(set(struck), reverse=True) if len(struck) > 1 else struck:
            last = out.pop()
            if base + place < len(out):
                out[base + place] = last

    def file(self, entry: Entry[S]) -> None:
        """Adds an entry at the end of its path."""
        waiting = [(self, entry)]
        while waiting:
            node, entry = waiting.pop()
            step = entry.step(node.depth)
            if step is None:
                node._end(entry)
                continue
            if not node.branches:
                node.branches = {}
            branch = node.branches.get(step)
            if isinstance(branch, Node):
                waiting.append((branch, entry))
                continue
            if branch is None:
                node.branches[step] = entry
                continue
            bucket = (*_each(branch), entry)
            entry.head = bucket[0].head  # Share one copy.
            if len(bucket) <= FEW_MAX:
                node.branches[step] = bucket
            else:
                child: Node[S] = Node(node.depth + 1)
                node.branches[step] = child
                waiting += [(child, moved) for moved in reversed(bucket)]

    def _end(self, entry: Entry[S]) -> None:
        """Adds an entry whose path ends here."""
        node = self
        while node.guarded:
            tag = next(filter(node.guarded.__contains__, entry.negative), None)
            if tag is None:
                break
            node = node.guarded[tag]
        if not node.entries:
            node.entries, node.values = [], []
        else:
            entry.head = node.entries[0].head
        entry.node, entry.place = node, len(node.entries)
        node.entries.append(entry)
        node.values.append(entry.standing.value)
        node.doubted = _joined(node.doubted, entry.doubts, entry)
        bars = node._bars(entry)
        node.barred = _joined(node.barred, bars, entry)
        if len(node.entries) > CROWD_MAX and len(node.guards) < GUARDS_MAX:
            node._part(bars)

    def _part(self, tags: Tags) -> None:
        """Moves many entries excluded by the same tag to a node of their own."""
        for tag in tags:
            crowd = self.barred[tag]
            if isinstance(crowd, Entry) or len(crowd) <= CROWD_MAX:
                continue
            members = tuple(crowd)
            for entry in members:
                self._unend(entry)
            if not self.guarded:
                self.guarded = {}
            child = self.guarded[tag] = Node(self.depth, (*self.guards, tag))
            for entry in members:
                child._end(entry)
            return

    def _bars(self, entry: Entry[S]) -> Tags:
        """Returns the negative tags of an entry that are not known to be absent here."""
        if not self.guards:
            return entry.negative
        return tuple([tag for tag in entry.negative if tag not in self.guards])

    def remove(self, entry: Entry[S]) -> None:
        """Removes an entry, and the nodes that become empty."""
        way: list[tuple[Node[S], Step]] = []
        node = self
        while (step := entry.step(node.depth)) is not None:
            way.append((node, step))
            branch = node.branches[step]
            if not isinstance(branch, Node):
                node._replace(step, _rest(branch, entry))
                break
            node = branch
        else:
            node._let_go(entry)
        for parent, step in reversed(way):
            child = parent.branches.get(step)
            if isinstance(child, Node) and child.empty:
                parent._replace(step, ())

    def _replace(self, step: Step, few: Few[S]) -> None:
        if few:
            self.branches[step] = few
            return
        del self.branches[step]
        if not self.branches:
            self.branches = _NO_DICT  # An emptied dictionary would keep its memory.

    def _let_go(self, entry: Entry[S]) -> None:
        """Removes an entry that ends here or in a node of `children_if_absent`."""
        home = entry.node
        assert home is not None
        home._unend(entry)
        way = [self]
        for tag in home.guards:
            way.append(way[-1].guarded[tag])
        for parent, tag in zip(reversed(way[:-1]), reversed(home.guards), strict=True):
            if parent.guarded[tag].empty:
                del parent.guarded[tag]

    def _unend(self, entry: Entry[S]) -> None:
        last, value = self.entries.pop(), self.values.pop()
        if last is not entry:
            self.entries[entry.place], self.values[entry.place] = last, value
            last.place = entry.place
        _leave(self.doubted, entry.doubts, entry)
        _leave(self.barred, self._bars(entry), entry)


class Tree(Generic[S]):
    """Entries by tags, with two roots: for entries of one positive tag, and of more."""

    __slots__ = ("ones", "twos")

    def __init__(self) -> None:
        # Separate, because the first stays small and in the cache while the second grows large.
        self.ones: Node[S] = Node()
        self.twos: Node[S] = Node()

    def gather(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], whole: bool
    ) -> None:
        """Appends to `out` the matches of an object with these tags, which are sorted.

        The matches are the values of subscriptions, each once, or with `as_entries` all entries.
        """
        if self.ones.branches:
            self.ones.follow(tags, tags, present, out, whole)
        if self.twos.branches and len(tags) > 1:
            self.twos.follow(combinations(tags, 2), tags, present, out, whole)

    def file(self, entry: Entry[S]) -> None:
        """Adds an entry at the end of its path."""
        self._top(entry).file(entry)

    def remove(self, entry: Entry[S]) -> None:
        """Removes an entry, and the nodes that become empty."""
        self._top(entry).remove(entry)

    def _top(self, entry: Entry[S]) -> Node[S]:
        return self.ones if isinstance(entry.head, str) else self.twos


def _each(some: Entry[S] | Iterable[Entry[S]]) -> Iterable[Entry[S]]:
    return (some,) if isinstance(some, Entry) else some


def _rest(few: Few[S], entry: Entry[S]) -> Few[S]:
    """Returns a bucket without an entry: empty, one entry, or several."""
    rest = tuple([other for other in _each(few) if other is not entry])
    return rest[0] if len(rest) == 1 else rest


def _joined(crowds: Crowds[S], tags: Tags, entry: Entry[S]) -> Crowds[S]:
    """Adds an entry to the buckets of these tags; returns the buckets."""
    if tags and not crowds:
        crowds = {}
    for tag in tags:
        crowd = crowds.get(tag)
        if crowd is None:
            crowds[tag] = entry
        elif isinstance(crowd, dict):
            crowd[entry] = None
        else:
            more = (*_each(crowd), entry)
            crowds[tag] = more if len(more) <= FEW_MAX else dict.fromkeys(more)
    return crowds


def _leave(crowds: Crowds[S], tags: Tags, entry: Entry[S]) -> None:
    """Removes an entry from the buckets of these tags."""
    for tag in tags:
        crowd = crowds[tag]
        if isinstance(crowd, dict):
            del crowd[entry]
            if len(crowd) == 1:
                crowds[tag] = next(iter(crowd))
        elif rest := _rest(crowd, entry):
            crowds[tag] = rest
        else:
            del crowds[tag]
