"""History as a store keeps it: what a broker looks after, found by key, by tags and time, by age.

`Store.history` gives the one that suits the store: all of it in memory, or most of it in the file
(`archive`). Both answer alike. They index the records of one shelf; putting a record on the shelf,
and taking it off, is left to the catalogue, in the same commit.
Clauses: M11, M14, M17, M29.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from thyme.model.frames import TimeFrame
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.query.cursor import Cursor
from thyme.query.history import HistoryIndex


class History(Protocol):
    """What every history does."""

    @property
    def summary_bytes(self) -> int:
        """How much the summaries of all objects take."""
        ...

    @property
    def object_bytes(self) -> int:
        """How much the objects themselves take."""
        ...

    def add(self, metadata: Metadata) -> bool:
        """Takes a new object in, whose record was put just now."""
        ...

    def remove(self, key: Key) -> Metadata | None:
        """Forgets an object, whose record is removed next (M14); None if it is not there."""
        ...

    def get(self, key: Key) -> Metadata | None:
        """The object with this key, if it is there."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, key: Key) -> bool: ...

    def __iter__(self) -> Iterator[Metadata]:
        """All objects, oldest first."""
        ...

    def oldest(self) -> Metadata | None:
        """The first of them."""
        ...

    def total(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> int:
        """How many objects inside the frame satisfy at least one conjunction (M17)."""
        ...

    def latest(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None = None,
    ) -> list[Metadata]:
        """The `count` most recent matches that stand before the cursor, newest first (M17)."""
        ...

    def next_end_us(self) -> int | None:
        """When the first life span ends, or earlier (M29)."""
        ...

    def ended(self, now_us: int) -> list[Key]:
        """Whose life span is over, first ended first; the caller removes them."""
        ...


class MemoryHistory(HistoryIndex):
    """History in memory: the index, with what the objects weigh and when they end."""

    def __init__(self, objects: Iterable[Metadata] = ()) -> None:
        super().__init__()
        self.summary_bytes = 0
        self.object_bytes = 0
        self._life_ends: list[tuple[int, Key]] = []
        for metadata in objects:
            self.add(metadata)

    def add(self, metadata: Metadata) -> bool:
        added = super().add(metadata)
        if added:
            self.summary_bytes += len(metadata.summary)
            self.object_bytes += metadata.size
            if metadata.expires_us is not None:
                heapq.heappush(self._life_ends, (metadata.expires_us, metadata.key))
        return added

    def remove(self, key: Key) -> Metadata | None:
        metadata = super().remove(key)
        if metadata is not None:
            self.summary_bytes -= len(metadata.summary)
            self.object_bytes -= metadata.size
            # Removed objects leave their entry here; such entries must not outnumber the living.
            if len(self._life_ends) > 2 * len(self) + 64:
                self._life_ends = [entry for entry in self._life_ends if entry[1] in self]
                heapq.heapify(self._life_ends)
        return metadata

    def oldest(self) -> Metadata | None:
        return next(iter(self), None)

    def next_end_us(self) -> int | None:
        return self._life_ends[0][0] if self._life_ends else None

    def ended(self, now_us: int) -> list[Key]:
        found = []
        while self._life_ends and self._life_ends[0][0] <= now_us:
            ends_us, key = heapq.heappop(self._life_ends)
            metadata = self.get(key)
            if metadata is not None and metadata.expires_us == ends_us:
                found.append(key)
        return list(dict.fromkeys(found))
