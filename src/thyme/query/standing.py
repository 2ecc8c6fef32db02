"""Subscription index: finds the active subscriptions that a new object matches.

Entry point: `SubscriptionIndex.match`. It returns each matching subscription once, in an order that
depends on the additions and removals, never on hashing. Its time grows with the number of matches,
not of subscriptions. `trie` searches by tags; this module adds keys, time frames and expiry.
Clauses: M10, M11, M12, M15, M18.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Generic, TypeVar

from thyme.model.errors import QueryError
from thyme.model.frames import INSTANT_MAX_US, SECOND_US, TimeFrame
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.query.standing_agenda import Agenda
from thyme.query.standing_entry import Entry, Standing
from thyme.query.standing_plan import Row, Vocabulary, planned, rows_of
from thyme.query.standing_tree import Tree

S = TypeVar("S")

SETTLE_US = 60 * SECOND_US
# Making conjunctions disjoint compares all pairs; larger subscriptions are left as they are.
PLANNED_MAX = 8
# The trie is searched for every pair of an object's tags. From this number of tags on, removing
# the tags that no subscription uses is faster.
_TAGS_MANY = 8
_FROM_EVER_US = -INSTANT_MAX_US
_FOR_EVER_US = INSTANT_MAX_US


class StandingIndex(Generic[S]):
    """Active subscriptions by key; `S` is the value returned for each.

    There are two tries. In the unsettled one the time frame of each matching subscription is
    checked. A subscription without an end moves to the settled one some time after its start, when
    objects published before the start are rare; only for these objects its frame is checked there.
    """

    def __init__(self, *, tolerance_us: int = 0, settle_us: int = SETTLE_US) -> None:
        self._settle_us = settle_us
        self._words = Vocabulary()
        self._quick: dict[Hashable, Standing[S]] = {}
        self._quick_tree: Tree[S] = Tree()
        self._quick_since_us = _FROM_EVER_US
        self._careful: dict[Hashable, Standing[S]] = {}
        self._careful_tree: Tree[S] = Tree()
        self._settling: Agenda[S] = Agenda(self._careful, delay_us=settle_us)
        self._ending: Agenda[S] = Agenda(self._careful, delay_us=tolerance_us + 1)

    def __len__(self) -> int:
        return len(self._quick) + len(self._careful)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._quick or key in self._careful

    def get(self, key: Hashable) -> S | None:
        """Returns the value added under a key; None if the subscription is not active."""
        standing = self._quick.get(key) or self._careful.get(key)
        return None if standing is None else standing.value

    def add(
        self,
        key: Hashable,
        value: S,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        now_us: int,
    ) -> None:
        """Adds a subscription; replaces one with the same key."""
        if not conjunctions:
            raise QueryError("a subscription needs at least one conjunction")
        self.remove(key)
        self._settle(now_us)
        start_us = _FROM_EVER_US if frame.start_us is None else frame.start_us
        end_us = _FOR_EVER_US if frame.end_us is None else frame.end_us
        standing = Standing(value, start_us, end_us)
        rows = rows_of(conjunctions, self._words)
        may_settle = frame.end_us is None and len(rows) <= PLANNED_MAX
        if may_settle and start_us + self._settle_us <= now_us:
            self._file_quick(key, standing, rows)
            return
        self._careful[key] = standing
        self._file(standing, rows, self._careful_tree)
        if may_settle:
            self._settling.put(start_us, key, standing)
        elif frame.end_us is not None:
            self._ending.put(end_us, key, standing)

    def remove(self, key: Hashable) -> bool:
        """Removes a subscription; returns whether it existed (M18)."""
        if key in self._careful:
            self._drop_careful(key)
        elif key in self._quick:
            self._unfile(self._quick.pop(key), self._quick_tree)
        else:
            return False
        return True

    def match(self, tags: Collection[Tag], published_us: int) -> list[S]:
        """Returns the subscriptions that match tags and publication time of an object (M11)."""
        present = frozenset(tags)
        if len(present) > _TAGS_MANY:
            present = frozenset(filter(self._words.words.__contains__, present))
        # The tags of metadata are sorted, which makes sorting them again fast.
        ordered = sorted(tags if len(tags) == len(present) else present)
        found: list[S] = []
        if published_us >= self._quick_since_us:
            self._quick_tree.gather(ordered, present, found, False)
        else:
            found += _look(self._quick_tree, ordered, present, published_us)
        if self._careful:
            found += _look(self._careful_tree, ordered, present, published_us)
        return found

    def expire(self, now_us: int) -> list[S]:
        """Removes and returns the subscriptions whose end and tolerance have passed (M12, M18)."""
        self._settle(now_us)
        expired: list[S] = []
        while due := self._ending.take(now_us):
            key, standing = due
            self._drop_careful(key)
            expired.append(standing.value)
        return expired

    def next_expiry_us(self) -> int | None:
        """Returns the first instant at which `expire` removes a subscription."""
        return self._ending.next_us()

    def _settle(self, now_us: int) -> None:
        """Moves the subscriptions that have settled to the settled trie."""
        while due := self._settling.take(now_us):
            key, standing = due
            rows = [Row(e.positive, e.negative) for e in standing.entries()]
            self._drop_careful(key)
            self._file_quick(key, standing, rows)

    def _file_quick(self, key: Hashable, standing: Standing[S], rows: list[Row]) -> None:
        self._quick[key] = standing
        self._quick_since_us = max(self._quick_since_us, standing.start_us)
        self._file(standing, planned(rows), self._quick_tree)

    def _file(self, standing: Standing[S], rows: Sequence[Row], tree: Tree[S]) -> None:
        take = self._words.take
        for row in rows:
            rarest = take(tuple(sorted(row.positive[:2])))
            head = rarest if len(rarest) == 2 else rarest[0]
            more, negative = take(row.positive[2:]), take(row.negative)
            tree.file(Entry(standing, head, more, negative, take(row.doubts)))

    def _drop_careful(self, key: Hashable) -> None:
        self._unfile(self._careful.pop(key), self._careful_tree)
        self._settling.sweep()
        self._ending.sweep()

    def _unfile(self, standing: Standing[S], tree: Tree[S]) -> None:
        for entry in standing.entries():
            tree.remove(entry)
            for tags in (entry.positive, entry.negative, entry.doubts):
                self._words.release(tags)
        standing.last = None


def _look(
    tree: Tree[S], tags: Sequence[Tag], present: frozenset[Tag], published_us: int
) -> list[S]:
    """Returns the matches in a trie, with a check of frames and without duplicates."""
    entries: list[Entry[S]] = []
    tree.gather(tags, present, entries, True)
    return [
        standing.value
        for standing in dict.fromkeys([entry.standing for entry in entries])
        if standing.start_us <= published_us <= standing.end_us
    ]
