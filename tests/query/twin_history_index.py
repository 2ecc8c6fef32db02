"""The naive history index: a dictionary that checks every object.

Every answer follows the clauses literally, so that it is plainly right; the index is compared with
it.
Clauses: M11, M14, M17.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.time_frames import TimeFrame
from thyme.query.cursor import Cursor, cursor_at


class HistoryTwin:
    """Has the interface of `HistoryIndex`; sorts and filters all objects every time."""

    def __init__(self) -> None:
        self._all: dict[Key, Metadata] = {}

    def add(self, metadata: Metadata) -> bool:
        if metadata.key in self._all:
            return False
        self._all[metadata.key] = metadata
        return True

    def remove(self, key: Key) -> Metadata | None:
        return self._all.pop(key, None)

    def get(self, key: Key) -> Metadata | None:
        return self._all.get(key)

    def __len__(self) -> int:
        return len(self._all)

    def __contains__(self, key: Key) -> bool:
        return key in self._all

    def __iter__(self) -> Iterator[Metadata]:
        return iter(sorted(self._all.values(), key=cursor_at))

    def count_matches(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> int:
        return len(self._matching(conjunctions, frame))

    def latest_matches(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None = None,
    ) -> list[Metadata]:
        newest_first = self._matching(conjunctions, frame)[::-1]
        left = [m for m in newest_first if before is None or cursor_at(m) < before]
        return left[: max(0, count)]

    def earliest_matches(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        after: Cursor | None = None,
    ) -> list[Metadata]:
        oldest_first = self._matching(conjunctions, frame)
        left = [m for m in oldest_first if after is None or cursor_at(m) > after]
        return left[: max(0, count)]

    def _matching(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> list[Metadata]:
        return [
            metadata
            for metadata in self
            if frame.contains(metadata.published_us)
            and any(conjunction.matches(metadata.tags) for conjunction in conjunctions)
        ]
