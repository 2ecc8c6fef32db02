"""Store: the storage interface of substrates, and its in-memory implementation.

A table has records of one type under text keys, in the order in which they were put. The bytes of
objects are stored separately, because they are read one at a time and may be large; those of large
objects are in the chunk store. The store on disk is `sqlite.store`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from thyme.model.metadata import Metadata
from thyme.storage.chunk_store import ChunkStore, MemoryChunkStore
from thyme.storage.history import History, MemoryHistory

R = TypeVar("R")


class RecordTable(msgspec.Struct, Generic[R], frozen=True):
    """The name of a table and the type of its records."""

    name: str
    record_type: type[R]


class Store(Protocol):
    """The interface of every store."""

    @property
    def durable(self) -> bool:
        """Whether committed data survive the end of the process."""
        ...

    @property
    def chunks(self) -> ChunkStore:
        """The chunks of large objects (M37)."""
        ...

    def put(self, table: RecordTable[R], key: str, record: R) -> None:
        """Puts a record; replaces one with the same key."""
        ...

    def put_at_commit(self, table: RecordTable[R], key: str, record: R) -> None:
        """Puts a record that may change many times before the commit, which writes it once."""
        ...

    def remove(self, table: RecordTable[R], key: str) -> None:
        """Removes a record; no effect if the key is unknown."""
        ...

    def get(self, table: RecordTable[R], key: str) -> R | None:
        """Returns a record, or None."""
        ...

    def load(self, table: RecordTable[R]) -> Iterator[tuple[str, R]]:
        """Yields keys and records of a table, in the order in which they were first put."""
        ...

    def open_history(self, table: RecordTable[Metadata]) -> History:
        """Opens the records of a table as history, for one table of a store; the caller puts and
        removes the records."""
        ...

    def put_data(self, key: str, data: bytes) -> None:
        """Stores an object's bytes."""
        ...

    def get_data(self, key: str) -> bytes | None:
        """Returns an object's bytes, or None."""
        ...

    def remove_data(self, key: str) -> None:
        """Removes an object's bytes."""
        ...

    def has_space(self, size_bytes: int) -> bool:
        """Whether an object of this size may be put. If not, only small records and records of
        removals may still be put."""
        ...

    def commit(self) -> None:
        """Commits all changes since the last commit, atomically."""
        ...

    def close(self) -> None:
        """Closes the store; uncommitted changes are lost."""
        ...


class MemoryStore:
    """A store in memory, lost when the process ends."""

    durable = False

    def __init__(self, chunks: ChunkStore | None = None) -> None:
        """`chunks` is where large objects are kept; by default in memory, too."""
        self.chunks: ChunkStore = MemoryChunkStore() if chunks is None else chunks
        self._tables: dict[str, dict[str, Any]] = {}
        self._data: dict[str, bytes] = {}

    def put(self, table: RecordTable[R], key: str, record: R) -> None:
        self._tables.setdefault(table.name, {})[key] = record

    def put_at_commit(self, table: RecordTable[R], key: str, record: R) -> None:
        self.put(table, key, record)

    def remove(self, table: RecordTable[R], key: str) -> None:
        self._tables.get(table.name, {}).pop(key, None)

    def get(self, table: RecordTable[R], key: str) -> R | None:
        record: R | None = self._tables.get(table.name, {}).get(key)
        return record

    def load(self, table: RecordTable[R]) -> Iterator[tuple[str, R]]:
        yield from list(self._tables.get(table.name, {}).items())

    def open_history(self, table: RecordTable[Metadata]) -> History:
        return MemoryHistory(metadata for _, metadata in self.load(table))

    def put_data(self, key: str, data: bytes) -> None:
        self._data[key] = data

    def get_data(self, key: str) -> bytes | None:
        return self._data.get(key)

    def remove_data(self, key: str) -> None:
        self._data.pop(key, None)

    def has_space(self, size_bytes: int) -> bool:
        return True

    def commit(self) -> None:
        """No effect: memory needs no commit."""

    def close(self) -> None:
        """Closes the chunk store. A simulated node that restarts with its memory uses the store
        again."""
        self.chunks.close()
