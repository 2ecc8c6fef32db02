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

S = TypeVar("S")
Tags = tuple[Tag, ...]
Step = Tag | tuple[Tag, Tag]
"""What leads from one place in the tree to the next: a tag, or at first two in order."""

# Measured with benchmarks/bench_matching.py; half or twice as many change little.
FEW_MAX = 8
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

    `head` and then `more` are the steps to it: its positive tags. A tag of `negative` bars it. With
    a tag of `doubts`, an earlier entry of the subscription may hold too, and then goes first.
    """

    __slots__ = ("doubts", "earlier", "head", "more", "negative", "node", "place", "standing")

    def __init__(
        self,
        standing: Standing[S],
        head: Step,
        more: Tags = (),
        negative: Tags = (),
        doubts: Tags = (),
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
        "parent",
        "step",
        "values",
    )

    def __init__(
        self,
        parent: Node[S] | None = None,
        step: Step | None = None,
        depth: int = 0,
        guards: Tags = (),
    ) -> None:
        self.parent = parent
        self.step = step
        self.depth = depth
        self.guards = guards
        self.entries: list[Entry[S]] = _NO_LIST
        self.values: list[S] = _NO_LIST
        self.barred: Crowds[S] = _NO_DICT
        self.doubted: Crowds[S] = _NO_DICT
        self.guarded: dict[Tag, Node[S]] = _NO_DICT
        self.branches: dict[Step, Few[S] | Node[S]] = _NO_DICT

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
            self._follow(tags, tags, present, out, whole)

    def _follow(
        self,
        steps: Iterable[Step],
        tags: Sequence[Tag],
        present: frozenset[Tag],
        out: list[Any],
        whole: bool,
    ) -> None:
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
                if node.depth == 0 and branch.step is not None:
                    entry.head = branch.step  # One copy serves all.
                waiting.append((branch, entry))
                continue
            entry.node = node
            if branch is None:
                node.branches[step] = entry
                continue
            bucket = (*_each(branch), entry)
            entry.head = bucket[0].head
            if len(bucket) <= FEW_MAX:
                node.branches[step] = bucket
            else:
                child: Node[S] = Node(node, step, node.depth + 1)
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
        entry.node = node
        entry.place = len(node.entries)
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
            members = tuple(_each(self.barred[tag]))
            if len(members) <= CROWD_MAX:
                continue
            for entry in members:
                self._unend(entry)
            if not self.guarded:
                self.guarded = {}
            child = self.guarded[tag] = Node(self, tag, self.depth, (*self.guards, tag))
            for entry in members:
                child._end(entry)
            return

    def _bars(self, entry: Entry[S]) -> Tags:
        """The tags that bar an entry and are not known to be absent here."""
        if not self.guards:
            return entry.negative
        return tuple([tag for tag in entry.negative if tag not in self.guards])

    def remove(self, entry: Entry[S]) -> None:
        """Takes out an entry of this place or of its buckets; places left empty go too."""
        step = entry.step(self.depth)
        if step is None:
            self._unend(entry)
        else:
            bucket = self.branches[step]
            assert not isinstance(bucket, Node)
            rest = _rest(bucket, entry)
            if rest:
                self.branches[step] = rest
            else:
                del self.branches[step]
        entry.node = None
        self._prune()

    def _unend(self, entry: Entry[S]) -> None:
        last, value = self.entries.pop(), self.values.pop()
        if last is not entry:
            self.entries[entry.place], self.values[entry.place] = last, value
            last.place = entry.place
        _leave(self.doubted, entry.doubts, entry)
        _leave(self.barred, self._bars(entry), entry)

    def _prune(self) -> None:
        node = self
        while not (node.entries or node.branches or node.guarded):
            parent, step = node.parent, node.step
            if parent is None or step is None:
                node.branches = _NO_DICT
                return
            if node.guards and isinstance(step, str):
                del parent.guarded[step]
            else:
                del parent.branches[step]
            node = parent


class Tree(Node[S]):
    """The tree from its top, which a single tag or two together lead on from."""

    __slots__ = ()

    def gather(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], whole: bool
    ) -> None:
        """Appends to `out` what an object with these tags, in order, matches.

        That is the values of subscriptions, each once; or all entries that hold, if `whole`.
        """
        self._follow(tags, tags, present, out, whole)
        if len(tags) > 1:
            self._follow(combinations(tags, 2), tags, present, out, whole)


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
