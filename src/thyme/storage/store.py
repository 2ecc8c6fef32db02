"""The store as substrates see it, and the one in memory.

A shelf holds records of one type under text keys, in the order they were put. Object bytes lie
apart, since they are read one at a time and may be large.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from thyme.model.metadata import Metadata
from thyme.storage.history import History, MemoryHistory

R = TypeVar("R")


class Shelf(msgspec.Struct, Generic[R], frozen=True):
    """The name of a shelf and the type of the records on it."""

    name: str
    record: type[R]


class Store(Protocol):
    """What every store does."""

    @property
    def durable(self) -> bool:
        """Whether what is committed survives the end of the process."""
        ...

    def put(self, shelf: Shelf[R], key: str, record: R) -> None:
        """Puts a record; one with the same key is replaced."""
        ...

    def remove(self, shelf: Shelf[R], key: str) -> None:
        """Removes a record; one that is not there is no error."""
        ...

    def load(self, shelf: Shelf[R]) -> Iterator[tuple[str, R]]:
        """All records of a shelf, in the order they were first put."""
        ...

    def history(self, shelf: Shelf[Metadata]) -> History:
        """The records of a shelf as history. One shelf of a store is used so; its records are put
        and removed by whoever has this."""
        ...

    def put_data(self, key: str, data: bytes) -> None:
        """Keeps an object's bytes."""
        ...

    def data(self, key: str) -> bytes | None:
        """An object's bytes, or None."""
        ...

    def remove_data(self, key: str) -> None:
        """Frees an object's bytes."""
        ...

    def has_room(self, octets: int) -> bool:
        """Whether so many bytes more may be put. Where there is no room, what is small or takes
        something away may still be put, and nothing else."""
        ...

    def commit(self) -> None:
        """Makes all changes since the last commit permanent, together."""
        ...

    def close(self) -> None:
        """Ends the use of the store; call `commit` before, for what is to stay."""
        ...


class MemoryStore:
    """A store that ends with the process."""

    durable = False

    def __init__(self) -> None:
        self._shelves: dict[str, dict[str, Any]] = {}
        self._data: dict[str, bytes] = {}

    def put(self, shelf: Shelf[R], key: str, record: R) -> None:
        self._shelves.setdefault(shelf.name, {})[key] = record

    def remove(self, shelf: Shelf[R], key: str) -> None:
        self._shelves.get(shelf.name, {}).pop(key, None)

    def load(self, shelf: Shelf[R]) -> Iterator[tuple[str, R]]:
        yield from list(self._shelves.get(shelf.name, {}).items())

    def history(self, shelf: Shelf[Metadata]) -> History:
        return MemoryHistory(metadata for _, metadata in self.load(shelf))

    def put_data(self, key: str, data: bytes) -> None:
        self._data[key] = data

    def data(self, key: str) -> bytes | None:
        return self._data.get(key)

    def remove_data(self, key: str) -> None:
        self._data.pop(key, None)

    def has_room(self, octets: int) -> bool:
        return True

    def commit(self) -> None:
        """Nothing to do: memory is as permanent as it gets here."""

    def close(self) -> None:
        """Keeps everything: a node that restarts with its memory finds it again."""
