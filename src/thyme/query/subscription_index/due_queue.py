"""Due queue: a heap of subscriptions by the time at which an action on them is due.

Entry point: `DueQueue`. Deletion is lazy: items of removed subscriptions are skipped when they
reach the top, and removed together once they are the majority.
Clauses: M18.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from thyme.query.subscription_index.entry import IndexedSubscription

S = TypeVar("S")


class DueQueue(Generic[S]):
    """Subscriptions ordered by instant plus a fixed delay, then by order of addition."""

    def __init__(self, active: Mapping[Hashable, IndexedSubscription[S]], *, delay_us: int) -> None:
        self._active = active
        self._delay_us = delay_us
        self._items: list[tuple[int, int, Hashable, IndexedSubscription[S]]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, instant_us: int, key: Hashable, subscription: IndexedSubscription[S]) -> None:
        """Adds a subscription, for as long as it is active."""
        heappush(self._items, (instant_us, next(self._numbers), key, subscription))

    def pop_due(self, now_us: int) -> tuple[Hashable, IndexedSubscription[S]] | None:
        """Removes and returns the next due subscription; None if none is due."""
        at_us = self.next_due_us()
        if at_us is None or at_us > now_us:
            return None
        _, _, key, subscription = heappop(self._items)
        return key, subscription

    def next_due_us(self) -> int | None:
        """Returns when the next subscription is due."""
        while self._items:
            instant_us, _, key, subscription = self._items[0]
            if self._active.get(key) is subscription:
                return instant_us + self._delay_us
            heappop(self._items)
        return None

    def compact(self) -> None:
        """Removes the items of removed subscriptions if they are the majority."""
        if len(self._items) > 2 * len(self._active):
            self._items = [item for item in self._items if self._active.get(item[2]) is item[3]]
            heapify(self._items)
