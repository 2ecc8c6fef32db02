"""Split store: the store of a node that changes its substrate (B7).

All substrates share the tables of the application; each has a store of its own for the rest.
Entry point: `SplitStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, TypeVar

from thyme.model.metadata import Metadata
from thyme.storage.chunk_store import ChunkStore
from thyme.storage.history import History
from thyme.storage.store import RecordTable, Store

R = TypeVar("R")


class SplitStore:
    """A shared store and one store for each part; a commit covers the shared one and the part in
    use."""

    def __init__(
        self,
        shared: Store,
        open_part: Callable[[str], Store],
        shared_tables: Collection[RecordTable[Any]],
        part: str,
    ) -> None:
        """`open_part` opens the store of a part, when it is used for the first time."""
        self._shared = shared
        self._open_part = open_part
        self._shared_names = frozenset(table.name for table in shared_tables)
        self._parts: dict[str, Store] = {}
        self.use(part)

    def use(self, part: str) -> None:
        """Continues with the store of another part."""
        if part not in self._parts:
            self._parts[part] = self._open_part(part)
        self._own = self._parts[part]

    @property
    def durable(self) -> bool:
        return self._shared.durable and self._own.durable

    @property
    def chunks(self) -> ChunkStore:
        return self._own.chunks

    def _of(self, table: RecordTable[R]) -> Store:
        return self._shared if table.name in self._shared_names else self._own

    def put(self, table: RecordTable[R], key: str, record: R) -> None:
        self._of(table).put(table, key, record)

    def put_at_commit(self, table: RecordTable[R], key: str, record: R) -> None:
        self._of(table).put_at_commit(table, key, record)

    def remove(self, table: RecordTable[R], key: str) -> None:
        self._of(table).remove(table, key)

    def get(self, table: RecordTable[R], key: str) -> R | None:
        return self._of(table).get(table, key)

    def load(self, table: RecordTable[R]) -> Iterator[tuple[str, R]]:
        return self._of(table).load(table)

    def open_history(self, table: RecordTable[Metadata]) -> History:
        return self._own.open_history(table)

    def put_data(self, key: str, data: bytes) -> None:
        self._own.put_data(key, data)

    def get_data(self, key: str) -> bytes | None:
        return self._own.get_data(key)

    def remove_data(self, key: str) -> None:
        self._own.remove_data(key)

    def has_space(self, size_bytes: int) -> bool:
        return self._shared.has_space(size_bytes) and self._own.has_space(size_bytes)

    def commit(self) -> None:
        self._shared.commit()
        self._own.commit()

    def close(self) -> None:
        for store in (*self._parts.values(), self._shared):
            store.close()
