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

from thyme.query.standing_entry import Standing

S = TypeVar("S")


class Agenda(Generic[S]):
    """Subscriptions ordered by instant plus a fixed delay, then by order of addition."""

    def __init__(self, standing: Mapping[Hashable, Standing[S]], *, delay_us: int) -> None:
        self._standing = standing
        self._delay_us = delay_us
        self._items: list[tuple[int, int, Hashable, Standing[S]]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, instant_us: int, key: Hashable, standing: Standing[S]) -> None:
        """Adds a subscription, for as long as it is active."""
        heappush(self._items, (instant_us, next(self._numbers), key, standing))

    def take(self, now_us: int) -> tuple[Hashable, Standing[S]] | None:
        """Removes and returns the next due subscription; None if none is due."""
        at_us = self.next_us()
        if at_us is None or at_us > now_us:
            return None
        _, _, key, standing = heappop(self._items)
        return key, standing

    def next_us(self) -> int | None:
        """Returns when the next subscription is due."""
        while self._items:
            instant_us, _, key, standing = self._items[0]
            if self._standing.get(key) is standing:
                return instant_us + self._delay_us
            heappop(self._items)
        return None

    def sweep(self) -> None:
        """Removes the items of removed subscriptions if they are the majority."""
        if len(self._items) > 2 * len(self._standing):
            self._items = [item for item in self._items if self._standing.get(item[2]) is item[3]]
            heapify(self._items)
