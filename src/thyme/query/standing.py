"""The index of standing subscriptions: which of them does a new object match?

Subscriptions come and go; `match` gives each that matches once, in an order that follows from what
was added and removed, never from hashing. The time it takes grows with the matches, not with the
subscriptions. The walk by tags is `standing_tree`'s; this module adds keys, frames and their end.
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
# A plan compares conjunctions pair by pair; subscriptions of more do without one.
PLANNED_MAX = 8
# The tree is asked for every two tags of an object. With so many tags it pays to leave out first
# those that no subscription names.
_TAGS_MANY = 8
_FROM_EVER_US = -INSTANT_MAX_US
_FOR_EVER_US = INSTANT_MAX_US


class StandingIndex(Generic[S]):
    """Standing subscriptions by key; `S` is what the broker wants back of each.

    Two trees. In the careful one each subscription that matches has its frame looked at. Those
    without an end move on to the quick one when they have `settled`: begun so long ago that hardly
    an object still arrives from before. There the frames are looked at for such objects only.
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
        """What was added under a key, if it still stands."""
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
        """Lets a subscription stand; one of the same key makes way for it."""
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
        """Takes a subscription out before its end; whether there was one (M18)."""
        if key in self._careful:
            self._drop_careful(key)
        elif key in self._quick:
            self._unfile(self._quick.pop(key), self._quick_tree)
        else:
            return False
        return True

    def match(self, tags: Collection[Tag], published_us: int) -> list[S]:
        """The subscriptions that an object with these tags, published then, matches (M11)."""
        present = frozenset(tags)
        if len(present) > _TAGS_MANY:
            present = frozenset(filter(self._words.words.__contains__, present))
        # Metadata has its tags in order already, which makes sorting them again quick.
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
        """Drops and returns those whose end, and the tolerance after it, are over (M12, M18)."""
        self._settle(now_us)
        expired: list[S] = []
        while due := self._ending.take(now_us):
            key, standing = due
            self._drop_careful(key)
            expired.append(standing.value)
        return expired

    def next_expiry_us(self) -> int | None:
        """The first instant at which `expire` will drop something."""
        return self._ending.next_us()

    def _settle(self, now_us: int) -> None:
        """Moves those that have settled to the quick tree."""
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
    """What matches in a tree when frames and doubles have to be looked at."""
    entries: list[Entry[S]] = []
    tree.gather(tags, present, entries, True)
    return [
        standing.value
        for standing in dict.fromkeys([entry.standing for entry in entries])
        if standing.start_us <= published_us <= standing.end_us
    ]
