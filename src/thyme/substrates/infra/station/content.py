"""Content: what a station needs from its caches.

Entry point: `StationContent`. The caches are in `thyme.substrates.infra.caches`; this interface
joins the three of them. An item is an object of a world with its metadata, and its data unless only
the metadata is still cached.
Clauses: I12–I14, I16, I18, I19.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import msgspec

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame
from thyme.query.cursor import Cursor


class Item(msgspec.Struct, frozen=True):
    """An object with its data."""

    world: int
    metadata: Metadata
    data: bytes


class ContentChange(msgspec.Struct, frozen=True):
    """An object came into the station, or left it altogether (I11)."""

    world: int
    metadata: Metadata
    is_stored: bool


class ContentPage(msgspec.Struct, frozen=True):
    """A page of the objects that match a query."""

    total: int
    """The number of all matches."""
    items: tuple[Metadata, ...]
    has_more: bool
    """Whether there are older matches."""


class StationContent(Protocol):
    """The caches of one station."""

    def has_local(self, world: int, key: Key) -> bool:
        """Whether the local popularity cache has an object."""
        ...

    def insert_popular(self, items: Iterable[Item]) -> None:
        """Inserts a batch into the local popularity cache (I10)."""
        ...

    def find_popular(self, world: int, tag: Tag) -> Iterator[Metadata]:
        """The objects with a tag in the local popularity cache (I18)."""
        ...

    def popular_data(self, world: int, key: Key) -> bytes | None:
        """The data of an object in the local popularity cache, for other stations (I18)."""
        ...

    def insert_prefetched(self, item: Item) -> None:
        """Stores an item of another station in the prefetch cache (I19)."""
        ...

    def insert_consumed(self, item: Item) -> None:
        """Stores an item of another venue that a client downloaded in the global cache (I22)."""
        ...

    def read(self, world: int, key: Key) -> tuple[bytes, bool] | None:
        """The data of an object for a client, from any cache, and whether it was moved from the
        prefetch cache to the global cache by this (I19). None if no cache has the data."""
        ...

    def cache_of(self, world: int, key: Key) -> str | None:
        """The name of the cache that has the data of an object; None if none has (I29)."""
        ...

    def read_item(self, world: int, key: Key) -> Item | None:
        """An object with its data, from any cache, for another station (I22)."""
        ...

    def find_page(
        self,
        world: int,
        conjunctions: tuple[Conjunction, ...],
        frame: TimeFrame,
        count: int,
        before: Cursor | None,
    ) -> ContentPage:
        """The `count` most recent objects before a cursor, in any cache, that match (I21)."""
        ...

    def purge(self, world: int, key: Key) -> bool:
        """Removes an object from all caches; returns whether any had it (I23)."""
        ...

    def remove_expired(self, now_us: int) -> None:
        """Removes objects whose time to live has ended."""
        ...

    def drain_changes(self) -> list[ContentChange]:
        """Removes and returns the changes since the last call, in order."""
        ...

    def parts(self) -> dict[str, int]:
        """The size of each world's part of the local popularity cache (I15)."""
        ...

    def statistics(self) -> dict[str, dict[str, float]]:
        """Entries, hits and misses by cache."""
        ...
