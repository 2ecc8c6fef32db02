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
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import INSTANT_MAX_US, SECOND_US, TimeFrame
from thyme.query.subscription_index.disjoint import (
    PlannedConjunction,
    TagRegistry,
    make_disjoint,
    plan_conjunctions,
)
from thyme.query.subscription_index.due_queue import DueQueue
from thyme.query.subscription_index.entry import ConjunctionEntry, IndexedSubscription
from thyme.query.subscription_index.trie import ConjunctionTrie

S = TypeVar("S")

SETTLE_US = 60 * SECOND_US
# Making conjunctions disjoint compares all pairs; larger subscriptions are left as they are.
DISJOINT_MAX = 8
# The trie is searched for every pair of an object's tags. From this number of tags on, removing
# the tags that no subscription uses is faster.
_TAGS_FILTERED_MIN = 8
_START_US_MIN = -INSTANT_MAX_US
_END_US_MAX = INSTANT_MAX_US


class SubscriptionIndex(Generic[S]):
    """Active subscriptions by key; `S` is the value returned for each.

    There are two tries. In the unsettled one the time frame of each matching subscription is
    checked. A subscription without an end moves to the settled one some time after its start, when
    objects published before the start are rare; only for these objects its frame is checked there.
    """

    def __init__(self, *, tolerance_us: int = 0, settle_us: int = SETTLE_US) -> None:
        self._settle_us = settle_us
        self._tags = TagRegistry()
        self._settled: dict[Hashable, IndexedSubscription[S]] = {}
        self._settled_trie: ConjunctionTrie[S] = ConjunctionTrie()
        self._settled_start_us_max = _START_US_MIN
        self._unsettled: dict[Hashable, IndexedSubscription[S]] = {}
        self._unsettled_trie: ConjunctionTrie[S] = ConjunctionTrie()
        self._settle_queue: DueQueue[S] = DueQueue(self._unsettled, delay_us=settle_us)
        self._expiry_queue: DueQueue[S] = DueQueue(self._unsettled, delay_us=tolerance_us + 1)

    def __len__(self) -> int:
        return len(self._settled) + len(self._unsettled)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._settled or key in self._unsettled

    def get(self, key: Hashable) -> S | None:
        """Returns the value added under a key; None if the subscription is not active."""
        subscription = self._settled.get(key) or self._unsettled.get(key)
        return None if subscription is None else subscription.value

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
        self._move_settled(now_us)
        start_us = _START_US_MIN if frame.start_us is None else frame.start_us
        end_us = _END_US_MAX if frame.end_us is None else frame.end_us
        subscription = IndexedSubscription(value, start_us, end_us)
        plan = plan_conjunctions(conjunctions, self._tags)
        may_settle = frame.end_us is None and len(plan) <= DISJOINT_MAX
        if may_settle and start_us + self._settle_us <= now_us:
            self._add_settled(key, subscription, plan)
            return
        self._unsettled[key] = subscription
        self._add_entries(subscription, plan, self._unsettled_trie)
        if may_settle:
            self._settle_queue.add(start_us, key, subscription)
        elif frame.end_us is not None:
            self._expiry_queue.add(end_us, key, subscription)

    def remove(self, key: Hashable) -> bool:
        """Removes a subscription; returns whether it existed (M18)."""
        if key in self._unsettled:
            self._remove_unsettled(key)
        elif key in self._settled:
            self._remove_entries(self._settled.pop(key), self._settled_trie)
        else:
            return False
        return True

    def match(self, tags: Collection[Tag], published_us: int) -> list[S]:
        """Returns the subscriptions that match tags and publication time of an object (M11)."""
        present = frozenset(tags)
        if len(present) > _TAGS_FILTERED_MIN:
            present = frozenset(filter(self._tags.interned.__contains__, present))
        # The tags of metadata are sorted, which makes sorting them again fast.
        ordered = sorted(tags if len(tags) == len(present) else present)
        found: list[S] = []
        if published_us >= self._settled_start_us_max:
            self._settled_trie.collect_matches(ordered, present, found, False)
        else:
            found += _match_with_frames(self._settled_trie, ordered, present, published_us)
        if self._unsettled:
            found += _match_with_frames(self._unsettled_trie, ordered, present, published_us)
        return found

    def expire(self, now_us: int) -> list[S]:
        """Removes and returns the subscriptions whose end and tolerance have passed (M12, M18)."""
        self._move_settled(now_us)
        expired: list[S] = []
        while due := self._expiry_queue.pop_due(now_us):
            key, subscription = due
            self._remove_unsettled(key)
            expired.append(subscription.value)
        return expired

    def next_expiry_us(self) -> int | None:
        """Returns the first instant at which `expire` removes a subscription."""
        return self._expiry_queue.next_due_us()

    def _move_settled(self, now_us: int) -> None:
        """Moves the subscriptions that have settled to the settled trie."""
        while due := self._settle_queue.pop_due(now_us):
            key, subscription = due
            plan = [PlannedConjunction(e.positive, e.negative) for e in subscription.entries()]
            self._remove_unsettled(key)
            self._add_settled(key, subscription, plan)

    def _add_settled(
        self, key: Hashable, subscription: IndexedSubscription[S], plan: list[PlannedConjunction]
    ) -> None:
        self._settled[key] = subscription
        self._settled_start_us_max = max(self._settled_start_us_max, subscription.start_us)
        self._add_entries(subscription, make_disjoint(plan), self._settled_trie)

    def _add_entries(
        self,
        subscription: IndexedSubscription[S],
        plan: Sequence[PlannedConjunction],
        trie: ConjunctionTrie[S],
    ) -> None:
        acquire = self._tags.acquire
        for conjunction in plan:
            rarest = acquire(tuple(sorted(conjunction.positive[:2])))
            root_edge = rarest if len(rarest) == 2 else rarest[0]
            more_tags, negative = acquire(conjunction.positive[2:]), acquire(conjunction.negative)
            trie.add(
                ConjunctionEntry(
                    subscription, root_edge, more_tags, negative, acquire(conjunction.overlap_tags)
                )
            )

    def _remove_unsettled(self, key: Hashable) -> None:
        self._remove_entries(self._unsettled.pop(key), self._unsettled_trie)
        self._settle_queue.compact()
        self._expiry_queue.compact()

    def _remove_entries(
        self, subscription: IndexedSubscription[S], trie: ConjunctionTrie[S]
    ) -> None:
        for entry in subscription.entries():
            trie.remove(entry)
            for tags in (entry.positive, entry.negative, entry.overlap_tags):
                self._tags.release(tags)
        subscription.last_entry = None


def _match_with_frames(
    trie: ConjunctionTrie[S], tags: Sequence[Tag], present: frozenset[Tag], published_us: int
) -> list[S]:
    """Returns the matches in a trie, with a check of frames and without duplicates."""
    entries: list[ConjunctionEntry[S]] = []
    trie.collect_matches(tags, present, entries, True)
    return [
        standing.value
        for standing in dict.fromkeys([entry.subscription for entry in entries])
        if standing.start_us <= published_us <= standing.end_us
    ]
