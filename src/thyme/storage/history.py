"""History: the metadata stored by a broker, indexed by key, by tags and time, and by expiry.

Entry points: the interface `History` and its in-memory implementation `MemoryHistory`; the one of
the SQLite store is `sqlite.history_archive`. `Store.open_history` returns the store's. A history
indexes the records of one table; the catalogue puts and removes the records, in the same commit.
Clauses: M11, M14, M17, M29, M34.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.time_frames import TimeFrame
from thyme.query.cursor import Cursor
from thyme.query.history_index.index import HistoryIndex


class History(Protocol):
    """The interface of every history."""

    @property
    def summary_bytes(self) -> int:
        """The total size of the summaries of all objects."""
        ...

    @property
    def object_bytes(self) -> int:
        """The total size of all objects."""
        ...

    def add(self, metadata: Metadata) -> bool:
        """Adds a new object, whose record was just put; returns False if its key exists."""
        ...

    def remove(self, key: Key) -> Metadata | None:
        """Removes and returns an object, before its record is removed (M14); None if unknown."""
        ...

    def get(self, key: Key) -> Metadata | None:
        """Returns the object with this key, or None."""
        ...

    def __len__(self) -> int: ...

    def __contains__(self, key: Key) -> bool: ...

    def __iter__(self) -> Iterator[Metadata]:
        """All objects, oldest first."""
        ...

    def oldest(self) -> Metadata | None:
        """Returns the oldest object, or None."""
        ...

    def count_matches(self, conjunctions: Sequence[Conjunction], frame: TimeFrame) -> int:
        """Counts the objects inside the frame that satisfy any conjunction (M17)."""
        ...

    def latest_matches(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None = None,
    ) -> list[Metadata]:
        """Returns the `count` most recent matches before the cursor, newest first (M17)."""
        ...

    def earliest_matches(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        after: Cursor | None = None,
    ) -> list[Metadata]:
        """Returns the `count` earliest matches after the cursor, oldest first (M34)."""
        ...

    def next_expiry_us(self) -> int | None:
        """Returns when the next object expires, or an earlier instant (M29)."""
        ...

    def expired_keys(self, now_us: int) -> list[Key]:
        """Returns the keys of expired objects, earliest first; the caller removes the objects."""
        ...


class MemoryHistory(HistoryIndex):
    """History in memory: the index, with total sizes and a queue of expiry times."""

    def __init__(self, objects: Iterable[Metadata] = ()) -> None:
        super().__init__()
        self.summary_bytes = 0
        self.object_bytes = 0
        self._expiries: list[tuple[int, Key]] = []
        for metadata in objects:
            self.add(metadata)

    def add(self, metadata: Metadata) -> bool:
        added = super().add(metadata)
        if added:
            self.summary_bytes += len(metadata.summary)
            self.object_bytes += metadata.size
            if metadata.expires_us is not None:
                heapq.heappush(self._expiries, (metadata.expires_us, metadata.key))
        return added

    def remove(self, key: Key) -> Metadata | None:
        metadata = super().remove(key)
        if metadata is not None:
            self.summary_bytes -= len(metadata.summary)
            self.object_bytes -= metadata.size
            # Removed objects leave their entry here; compact before such entries are the majority.
            if len(self._expiries) > 2 * len(self) + 64:
                self._expiries = [entry for entry in self._expiries if entry[1] in self]
                heapq.heapify(self._expiries)
        return metadata

    def oldest(self) -> Metadata | None:
        return next(iter(self), None)

    def next_expiry_us(self) -> int | None:
        return self._expiries[0][0] if self._expiries else None

    def expired_keys(self, now_us: int) -> list[Key]:
        found = []
        while self._expiries and self._expiries[0][0] <= now_us:
            expires_us, key = heapq.heappop(self._expiries)
            metadata = self.get(key)
            if metadata is not None and metadata.expires_us == expires_us:
                found.append(key)
        return list(dict.fromkeys(found))
