"""What becomes due when, for subscriptions that may be gone by then.

A heap whose items are not taken out when their subscription leaves: they are passed over when they
come up, and swept out once they are the larger part, so the heap stays in proportion.
Clause: M18.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from thyme.query.standing_entry import Standing

S = TypeVar("S")


class Agenda(Generic[S]):
    """Subscriptions by an instant; some time after it something is due. Ties go as they came."""

    def __init__(self, standing: Mapping[Hashable, Standing[S]], *, delay_us: int) -> None:
        self._standing = standing
        self._delay_us = delay_us
        self._items: list[tuple[int, int, Hashable, Standing[S]]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, instant_us: int, key: Hashable, standing: Standing[S]) -> None:
        """Notes a subscription, for as long as it stands."""
        heappush(self._items, (instant_us, next(self._numbers), key, standing))

    def take(self, now_us: int) -> tuple[Hashable, Standing[S]] | None:
        """Takes the next that is due by now."""
        at_us = self.next_us()
        if at_us is None or at_us > now_us:
            return None
        _, _, key, standing = heappop(self._items)
        return key, standing

    def next_us(self) -> int | None:
        """When the next is due."""
        while self._items:
            instant_us, _, key, standing = self._items[0]
            if self._standing.get(key) is standing:
                return instant_us + self._delay_us
            heappop(self._items)
        return None

    def sweep(self) -> None:
        """Sweeps out what has left, if that is more than what stands."""
        if len(self._items) > 2 * len(self._standing):
            self._items = [item for item in self._items if self._standing.get(item[2]) is item[3]]
            heapify(self._items)
