"""The naive subscription index: a dictionary that checks every subscription.

Every answer follows the clauses literally, so that it is plainly right; the index is compared with
it.
Clauses: M10, M11, M12, M15, M18.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from operator import itemgetter
from typing import Generic, TypeVar

from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame

S = TypeVar("S")


class SubscriptionIndexTwin(Generic[S]):
    """Has the interface of `SubscriptionIndex`; checks every subscription every time."""

    def __init__(self, *, tolerance_us: int = 0) -> None:
        self._tolerance_us = tolerance_us
        self._all: dict[Hashable, tuple[S, tuple[Conjunction, ...], TimeFrame]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._all

    def get(self, key: Hashable) -> S | None:
        return self._all[key][0] if key in self._all else None

    def add(
        self,
        key: Hashable,
        value: S,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        now_us: int,
    ) -> None:
        self._all.pop(key, None)
        self._all[key] = (value, tuple(conjunctions), frame)

    def remove(self, key: Hashable) -> bool:
        return self._all.pop(key, None) is not None

    def match(self, tags: Collection[Tag], published_us: int) -> list[S]:
        return [
            value
            for value, conjunctions, frame in self._all.values()
            if frame.contains(published_us) and any(c.matches(tags) for c in conjunctions)
        ]

    def expire(self, now_us: int) -> list[S]:
        """In the order of their ends; of equal ends, in the order they were added."""
        over = [
            (self._last_us(frame), key)
            for key, (_, _, frame) in self._all.items()
            if frame.end_us is not None and self._last_us(frame) < now_us
        ]
        return [self._all.pop(key)[0] for _, key in sorted(over, key=itemgetter(0))]

    def next_expiry_us(self) -> int | None:
        ends = [self._last_us(f) for _, _, f in self._all.values() if f.end_us is not None]
        return min(ends) + 1 if ends else None

    def _last_us(self, frame: TimeFrame) -> int:
        assert frame.end_us is not None
        return frame.end_us + self._tolerance_us
