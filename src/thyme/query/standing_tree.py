"""The tree under the index of standing subscriptions: conjunctions filed by their tags.

A conjunction is filed under its positive tags, the two rarest together as the first step, so a new
object walks only the paths that its own tags spell. Where many conjunctions end at one place, what
they bring lies in one list and is copied whole: with a million subscriptions matching costs what
touching memory costs, and copying a list touches each result once, where a set or a loop would do
so several times. Copying whole brings no subscription twice, because of how `standing_plan` lays
out conjunctions.
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
# Guards stand inside guards; this bounds how deep a walk recurses for them.
GUARDS_MAX = 8


# There are many nodes, and few need all they may have: these stand in until they do, never changed.
_NO_LIST: list[Any] = []
_NO_DICT: dict[Any, Any] = {}

# A lone entry needs no container, and most are alone; several fit into the smallest one.
Few: TypeAlias = Entry[S] | tuple[Entry[S], ...]
Crowds: TypeAlias = dict[Tag, Few[S] | dict[Entry[S], None]]


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
        """Whether nothing is left here or further on."""
        return not (self.entries or self.branches or self.guarded)

    def gather(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], whole: bool
    ) -> None:
        """Appends to `out` what an object with these tags matches here and further on."""
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
        """Appends to `out` what an object with these tags matches where the steps lead."""
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
        """Takes back from the end of `out` those of this place that a tag speaks against."""
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
        # The last place goes first: what then moves into a gap is never itself to be struck.
        for place in sorted(set(struck), reverse=True) if len(struck) > 1 else struck:
            last = out.pop()
            if base + place < len(out):
                out[base + place] = last

    def file(self, entry: Entry[S]) -> None:
        """Puts an entry where its steps lead."""
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
            entry.head = bucket[0].head  # One copy serves all.
            if len(bucket) <= FEW_MAX:
                node.branches[step] = bucket
            else:
                child: Node[S] = Node(node.depth + 1)
                node.branches[step] = child
                waiting += [(child, moved) for moved in reversed(bucket)]

    def _end(self, entry: Entry[S]) -> None:
        """Takes an entry whose steps end here."""
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
        """Moves a crowd that one of the tags bars to a node of its own, to be passed by whole."""
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
        """The tags that bar an entry and are not known to be absent here."""
        if not self.guards:
            return entry.negative
        return tuple([tag for tag in entry.negative if tag not in self.guards])

    def remove(self, entry: Entry[S]) -> None:
        """Takes out an entry, and the places that it leaves empty."""
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
            self.branches = _NO_DICT  # An emptied dictionary would keep its size.

    def _let_go(self, entry: Entry[S]) -> None:
        """Takes out an entry that ends here, perhaps in a crowd apart."""
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
    """Entries by their tags, from two tops: for those of one positive tag, and those of more."""

    __slots__ = ("ones", "twos")

    def __init__(self) -> None:
        # Apart, because the first stays small and close at hand where the second grows large.
        self.ones: Node[S] = Node()
        self.twos: Node[S] = Node()

    def gather(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], whole: bool
    ) -> None:
        """Appends to `out` what an object with these tags, in order, matches.

        That is the values of subscriptions, each once; or all entries that hold, if `whole`.
        """
        if self.ones.branches:
            self.ones.follow(tags, tags, present, out, whole)
        if self.twos.branches and len(tags) > 1:
            self.twos.follow(combinations(tags, 2), tags, present, out, whole)

    def file(self, entry: Entry[S]) -> None:
        """Puts an entry where its steps lead."""
        self._top(entry).file(entry)

    def remove(self, entry: Entry[S]) -> None:
        """Takes out an entry, and the places that it leaves empty."""
        self._top(entry).remove(entry)

    def _top(self, entry: Entry[S]) -> Node[S]:
        return self.ones if isinstance(entry.head, str) else self.twos


def _each(some: Entry[S] | Iterable[Entry[S]]) -> Iterable[Entry[S]]:
    return (some,) if isinstance(some, Entry) else some


def _rest(few: Few[S], entry: Entry[S]) -> Few[S]:
    """What an entry leaves when it goes: nothing, one, or several."""
    rest = tuple([other for other in _each(few) if other is not entry])
    return rest[0] if len(rest) == 1 else rest


def _joined(crowds: Crowds[S], tags: Tags, entry: Entry[S]) -> Crowds[S]:
    """The crowds, with an entry in those of the tags."""
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
    """Takes an entry out of the crowds of the tags."""
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
