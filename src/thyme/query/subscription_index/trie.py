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
from thyme.query.subscription_index.entry import ConjunctionEntry, EdgeLabel, Tags

S = TypeVar("S")

# Measured with benchmarks/bench_matching.py; half or twice as many change little.
SMALL_BUCKET_MAX = 8
BUCKET_MAX = 64
# Nodes for absent tags can nest; this bounds the depth of the recursion.
ABSENT_TAGS_MAX = 8


# Most nodes need few of their containers: these shared empty ones are never changed.
_NO_LIST: list[Any] = []
_NO_DICT: dict[Any, Any] = {}

# Most buckets have one entry, which needs no container.
SmallBucket: TypeAlias = ConjunctionEntry[S] | tuple[ConjunctionEntry[S], ...]
BucketsByTag: TypeAlias = dict[Tag, SmallBucket[S] | dict[ConjunctionEntry[S], None]]


class TrieNode(Generic[S]):
    """A node of the trie, reached by objects that satisfy the literals on the path to it.

    `entries` end here; `values` are their values, at the same index. `by_negative_tag` and
    `by_overlap_tag` find the entries that a tag may exclude. Many entries excluded by the same tag
    are moved to a node in `children_if_absent`. `children` leads to entries with more positive
    tags: a few entries in a bucket, of which each is checked, or many in a node.
    """

    __slots__ = (
        "absent_tags",
        "by_negative_tag",
        "by_overlap_tag",
        "children",
        "children_if_absent",
        "depth",
        "entries",
        "values",
    )

    def __init__(self, depth: int = 0, absent_tags: Tags = ()) -> None:
        self.depth = depth
        self.absent_tags = absent_tags
        self.entries: list[ConjunctionEntry[S]] = _NO_LIST
        self.values: list[S] = _NO_LIST
        self.by_negative_tag: BucketsByTag[S] = _NO_DICT
        self.by_overlap_tag: BucketsByTag[S] = _NO_DICT
        self.children_if_absent: dict[Tag, TrieNode[S]] = _NO_DICT
        self.children: dict[EdgeLabel, SmallBucket[S] | TrieNode[S]] = _NO_DICT

    @property
    def is_empty(self) -> bool:
        """Whether the node has no entries and no children."""
        return not (self.entries or self.children or self.children_if_absent)

    def collect_matches(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], as_entries: bool
    ) -> None:
        """Appends to `out` the matches of an object at this node and below."""
        if self.entries:
            base = len(out)
            out += self.entries if as_entries else self.values
            by_negative_tag, by_overlap_tag = self.by_negative_tag, self.by_overlap_tag
            if (by_negative_tag and not by_negative_tag.keys().isdisjoint(tags)) or (
                by_overlap_tag and not by_overlap_tag.keys().isdisjoint(tags)
            ):
                self._remove_excluded(tags, present, out, base)
        if self.children_if_absent:
            for tag, child in self.children_if_absent.items():
                if tag not in present:
                    child.collect_matches(tags, present, out, as_entries)
        if self.children:
            self.collect_along(tags, tags, present, out, as_entries)

    def collect_along(
        self,
        edges: Iterable[EdgeLabel],
        tags: Sequence[Tag],
        present: frozenset[Tag],
        out: list[Any],
        as_entries: bool,
    ) -> None:
        """Appends to `out` the matches of an object along these edges."""
        children = self.children
        for edge in edges:
            child = children.get(edge)
            if child is None:
                continue
            if isinstance(child, TrieNode):
                child.collect_matches(tags, present, out, as_entries)
                continue
            for entry in (child,) if isinstance(child, ConjunctionEntry) else child:
                if (
                    (not entry.more_tags or present.issuperset(entry.more_tags))
                    and present.isdisjoint(entry.negative)
                    and (not entry.overlap_tags or entry.is_first_match(present))
                ):
                    out.append(entry if as_entries else entry.subscription.value)

    def _remove_excluded(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], base: int
    ) -> None:
        """Removes from the end of `out` the entries of this node that a tag excludes."""
        excluded: list[int] = []
        by_negative_tag, by_overlap_tag = self.by_negative_tag, self.by_overlap_tag
        for tag in tags:
            bucket = by_negative_tag.get(tag)
            if isinstance(bucket, ConjunctionEntry):
                excluded.append(bucket.index)
            elif bucket is not None:
                excluded += [entry.index for entry in bucket]
            if tag in by_overlap_tag:
                excluded += [
                    e.index
                    for e in _entries_in(by_overlap_tag[tag])
                    if not e.is_first_match(present)
                ]
        # Highest index first: the element moved into a gap is never one to be removed.
        for index in sorted(set(excluded), reverse=True) if len(excluded) > 1 else excluded:
            last = out.pop()
            if base + index < len(out):
                out[base + index] = last

    def add(self, entry: ConjunctionEntry[S]) -> None:
        """Adds an entry at the end of its path."""
        pending = [(self, entry)]
        while pending:
            node, entry = pending.pop()
            edge = entry.edge_at(node.depth)
            if edge is None:
                node._add_here(entry)
                continue
            if not node.children:
                node.children = {}
            existing = node.children.get(edge)
            if isinstance(existing, TrieNode):
                pending.append((existing, entry))
                continue
            if existing is None:
                node.children[edge] = entry
                continue
            bucket = (*_entries_in(existing), entry)
            entry.root_edge = bucket[0].root_edge  # Share one copy.
            if len(bucket) <= SMALL_BUCKET_MAX:
                node.children[edge] = bucket
            else:
                child: TrieNode[S] = TrieNode(node.depth + 1)
                node.children[edge] = child
                pending += [(child, moved) for moved in reversed(bucket)]

    def _add_here(self, entry: ConjunctionEntry[S]) -> None:
        """Adds an entry whose path ends here."""
        node = self
        while node.children_if_absent:
            tag = next(filter(node.children_if_absent.__contains__, entry.negative), None)
            if tag is None:
                break
            node = node.children_if_absent[tag]
        if not node.entries:
            node.entries, node.values = [], []
        else:
            entry.root_edge = node.entries[0].root_edge
        entry.node, entry.index = node, len(node.entries)
        node.entries.append(entry)
        node.values.append(entry.subscription.value)
        node.by_overlap_tag = _add_to_buckets(node.by_overlap_tag, entry.overlap_tags, entry)
        tags = node._excluding_tags(entry)
        node.by_negative_tag = _add_to_buckets(node.by_negative_tag, tags, entry)
        if len(node.entries) > BUCKET_MAX and len(node.absent_tags) < ABSENT_TAGS_MAX:
            node._split_off(tags)

    def _split_off(self, tags: Tags) -> None:
        """Moves many entries excluded by the same tag to a node of their own."""
        for tag in tags:
            bucket = self.by_negative_tag[tag]
            if isinstance(bucket, ConjunctionEntry) or len(bucket) <= BUCKET_MAX:
                continue
            members = tuple(bucket)
            for entry in members:
                self._remove_here(entry)
            if not self.children_if_absent:
                self.children_if_absent = {}
            child = self.children_if_absent[tag] = TrieNode(self.depth, (*self.absent_tags, tag))
            for entry in members:
                child._add_here(entry)
            return

    def _excluding_tags(self, entry: ConjunctionEntry[S]) -> Tags:
        """Returns the negative tags of an entry that are not known to be absent here."""
        if not self.absent_tags:
            return entry.negative
        return tuple([tag for tag in entry.negative if tag not in self.absent_tags])

    def remove(self, entry: ConjunctionEntry[S]) -> None:
        """Removes an entry, and the nodes that become empty."""
        path: list[tuple[TrieNode[S], EdgeLabel]] = []
        node = self
        while (edge := entry.edge_at(node.depth)) is not None:
            path.append((node, edge))
            target = node.children[edge]
            if not isinstance(target, TrieNode):
                node._set_child(edge, _without_entry(target, entry))
                break
            node = target
        else:
            node._remove_ending(entry)
        for parent, edge in reversed(path):
            child = parent.children.get(edge)
            if isinstance(child, TrieNode) and child.is_empty:
                parent._set_child(edge, ())

    def _set_child(self, edge: EdgeLabel, bucket: SmallBucket[S]) -> None:
        if bucket:
            self.children[edge] = bucket
            return
        del self.children[edge]
        if not self.children:
            self.children = _NO_DICT  # An emptied dictionary would keep its memory.

    def _remove_ending(self, entry: ConjunctionEntry[S]) -> None:
        """Removes an entry that ends here or in a node of `children_if_absent`."""
        node = entry.node
        assert node is not None
        node._remove_here(entry)
        path = [self]
        for tag in node.absent_tags:
            path.append(path[-1].children_if_absent[tag])
        for parent, tag in zip(reversed(path[:-1]), reversed(node.absent_tags), strict=True):
            if parent.children_if_absent[tag].is_empty:
                del parent.children_if_absent[tag]

    def _remove_here(self, entry: ConjunctionEntry[S]) -> None:
        last, value = self.entries.pop(), self.values.pop()
        if last is not entry:
            self.entries[entry.index], self.values[entry.index] = last, value
            last.index = entry.index
        _remove_from_buckets(self.by_overlap_tag, entry.overlap_tags, entry)
        _remove_from_buckets(self.by_negative_tag, self._excluding_tags(entry), entry)


class ConjunctionTrie(Generic[S]):
    """Entries by tags, with two roots: for entries of one positive tag, and of more."""

    __slots__ = ("single_tag_root", "tag_pair_root")

    def __init__(self) -> None:
        # Separate, because the first stays small and in the cache while the second grows large.
        self.single_tag_root: TrieNode[S] = TrieNode()
        self.tag_pair_root: TrieNode[S] = TrieNode()

    def collect_matches(
        self, tags: Sequence[Tag], present: frozenset[Tag], out: list[Any], as_entries: bool
    ) -> None:
        """Appends to `out` the matches of an object with these tags, which are sorted.

        The matches are the values of subscriptions, each once, or with `as_entries` all entries.
        """
        if self.single_tag_root.children:
            self.single_tag_root.collect_along(tags, tags, present, out, as_entries)
        if self.tag_pair_root.children and len(tags) > 1:
            self.tag_pair_root.collect_along(combinations(tags, 2), tags, present, out, as_entries)

    def add(self, entry: ConjunctionEntry[S]) -> None:
        """Adds an entry at the end of its path."""
        self._root_for(entry).add(entry)

    def remove(self, entry: ConjunctionEntry[S]) -> None:
        """Removes an entry, and the nodes that become empty."""
        self._root_for(entry).remove(entry)

    def _root_for(self, entry: ConjunctionEntry[S]) -> TrieNode[S]:
        return self.single_tag_root if isinstance(entry.root_edge, str) else self.tag_pair_root


def _entries_in(
    bucket: ConjunctionEntry[S] | Iterable[ConjunctionEntry[S]],
) -> Iterable[ConjunctionEntry[S]]:
    return (bucket,) if isinstance(bucket, ConjunctionEntry) else bucket


def _without_entry(bucket: SmallBucket[S], entry: ConjunctionEntry[S]) -> SmallBucket[S]:
    """Returns a bucket without an entry: empty, one entry, or several."""
    rest = tuple([other for other in _entries_in(bucket) if other is not entry])
    return rest[0] if len(rest) == 1 else rest


def _add_to_buckets(
    buckets: BucketsByTag[S], tags: Tags, entry: ConjunctionEntry[S]
) -> BucketsByTag[S]:
    """Adds an entry to the buckets of these tags; returns the buckets."""
    if tags and not buckets:
        buckets = {}
    for tag in tags:
        bucket = buckets.get(tag)
        if bucket is None:
            buckets[tag] = entry
        elif isinstance(bucket, dict):
            bucket[entry] = None
        else:
            more = (*_entries_in(bucket), entry)
            buckets[tag] = more if len(more) <= SMALL_BUCKET_MAX else dict.fromkeys(more)
    return buckets


def _remove_from_buckets(buckets: BucketsByTag[S], tags: Tags, entry: ConjunctionEntry[S]) -> None:
    """Removes an entry from the buckets of these tags."""
    for tag in tags:
        bucket = buckets[tag]
        if isinstance(bucket, dict):
            del bucket[entry]
            if len(bucket) == 1:
                buckets[tag] = next(iter(bucket))
        elif rest := _without_entry(bucket, entry):
            buckets[tag] = rest
        else:
            del buckets[tag]
