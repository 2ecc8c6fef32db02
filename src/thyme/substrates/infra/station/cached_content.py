"""Cached content: the caches of a station as its components use them.

Entry point: `CachedContent`, a `StationContent` over `StationCaches`. It indexes the objects of all
caches together, for lookups, and notes which objects came into the station and which left it
altogether, for the messages to the cells.
Clauses: I11–I14, I16, I19, I21–I23.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.model.time_frames import TimeFrame
from thyme.query.cursor import Cursor
from thyme.query.history_index.index import HistoryIndex
from thyme.substrates.infra.caches.config import CachesConfig
from thyme.substrates.infra.caches.local_popularity import CachedObject
from thyme.substrates.infra.caches.object_cache import CachePart
from thyme.substrates.infra.caches.policies.interface import EvictionCause
from thyme.substrates.infra.caches.station_caches import StationCaches
from thyme.substrates.infra.station.content import ContentChange, ContentPage, Item

_Name = tuple[int, Key]


class CachedContent:
    """The content of one station."""

    def __init__(self, config: CachesConfig) -> None:
        self.caches = StationCaches(config, self._on_entry_left)
        self._indexes: dict[int, HistoryIndex] = {}
        """The objects in any cache, by world."""
        self._touched: dict[_Name, None] = {}
        """The objects that may have come or left since the indexes were updated."""
        self._changes: dict[_Name, tuple[Metadata | None, Metadata | None]] = {}
        """What the cells know of objects that came or left, and what they should know."""

    # Insertions

    def has_local(self, world: int, key: Key) -> bool:
        return self.caches.local_popularity.metadata(str(world), key) is not None

    def insert_popular(self, items: Iterable[Item]) -> None:
        objects = [CachedObject(str(item.world), item.metadata, item.data) for item in items]
        for each in objects:
            self._touched[int(each.world), each.metadata.key] = None
        self.caches.local_popularity.put_batch(objects)

    def insert_prefetched(self, item: Item) -> None:
        """Stores an item, unless a client consumed it before: then it is in the global cache."""
        world, key = str(item.world), item.metadata.key
        if self.caches.global_cache.metadata(world, key) is None:
            self._touched[item.world, key] = None
            self.caches.prefetch.put(world, item.metadata, item.data)

    def insert_consumed(self, item: Item) -> None:
        world, key = str(item.world), item.metadata.key
        self._touched[item.world, key] = None
        self.caches.prefetch.remove(world, key)
        self.caches.global_cache.put(world, item.metadata, item.data)

    def purge(self, world: int, key: Key) -> bool:
        self._touched[world, key] = None
        return self.caches.remove(str(world), key)

    def remove_expired(self, now_us: int) -> None:
        for world, metadata in self.caches.remove_expired(now_us):
            self._touched[int(world), metadata.key] = None

    # Reading

    def find_popular(self, world: int, tag: Tag) -> Iterator[Metadata]:
        return iter(self.caches.local_popularity.find(str(world), tag))

    def popular_data(self, world: int, key: Key) -> bytes | None:
        found = self.caches.local_popularity.objects.peek(str(world), key)
        return None if found is None else found.data

    def read(self, world: int, key: Key) -> tuple[bytes, bool] | None:
        found = self.caches.download(str(world), key)
        return None if found is None else (found.data, found.consumed is not None)

    def cache_of(self, world: int, key: Key) -> str | None:
        caches, place = self.caches, str(world)
        if caches.local_popularity.objects.peek(place, key) is not None:
            return "local_popularity"
        if caches.global_cache.data_cache.peek(place, key) is not None:
            return "global"
        return "prefetch" if caches.prefetch.data_cache.peek((place, key)) is not None else None

    def read_item(self, world: int, key: Key) -> Item | None:
        caches, place = self.caches, str(world)
        local = caches.local_popularity.objects.peek(place, key)
        if local is not None:
            return Item(world, local.metadata, local.data)
        metadata = caches.metadata(place, key)
        data = caches.global_cache.data_cache.peek(place, key)
        if data is None:
            data = caches.prefetch.data_cache.peek((place, key))
        return None if metadata is None or data is None else Item(world, metadata, data)

    def find_page(
        self,
        world: int,
        conjunctions: tuple[Conjunction, ...],
        frame: TimeFrame,
        count: int,
        before: Cursor | None,
    ) -> ContentPage:
        self._update_indexes()
        index = self._indexes.get(world)
        if index is None:
            return ContentPage(0, (), has_more=False)
        total = index.count_matches(conjunctions, frame)
        found = index.latest_matches(conjunctions, frame, count + 1, before)
        return ContentPage(total, tuple(found[:count]), has_more=len(found) > count)

    def all_metadata(self) -> list[Metadata]:
        """The metadata of all objects in any cache, world by world, oldest first."""
        self._update_indexes()
        return [metadata for index in self._indexes.values() for metadata in index]

    # Changes (I11)

    def _on_entry_left(self, world: str, key: Key, part: CachePart, cause: EvictionCause) -> None:
        self._touched[int(world), key] = None

    def _update_indexes(self) -> None:
        for world, key in self._touched:
            now = self.caches.metadata(str(world), key)
            index = self._indexes.get(world)
            if index is None:
                index = self._indexes[world] = HistoryIndex()
            before = index.get(key)
            if before is not now:
                index.remove(key)
                if now is not None:
                    index.add(now)
                known = self._changes.get((world, key), (before, None))[0]
                self._changes[world, key] = known, now
        self._touched.clear()

    def drain_changes(self) -> list[ContentChange]:
        self._update_indexes()
        changes: list[ContentChange] = []
        for (world, _), (before, now) in self._changes.items():
            if now is not None and before is None:
                changes.append(ContentChange(world, now, True))
            elif now is None and before is not None:
                changes.append(ContentChange(world, before, False))
        self._changes.clear()
        return changes

    def parts(self) -> dict[str, int]:
        return self.caches.local_popularity.objects.sizes()

    def statistics(self) -> dict[str, dict[str, float]]:
        local, prefetch = self.caches.local_popularity.objects, self.caches.prefetch
        globally = self.caches.global_cache
        return {
            "local_popularity": _statistics(local),
            "prefetch_metadata": _statistics(prefetch.metadata_cache),
            "prefetch_data": _statistics(prefetch.data_cache),
            "global_metadata": _statistics(globally.metadata_cache),
            "global_data": _statistics(globally.data_cache),
        }


class _Counted(Protocol):
    hits: int
    misses: int

    def __len__(self) -> int: ...

    @property
    def capacity(self) -> int: ...


def _statistics(cache: _Counted) -> dict[str, float]:
    reads = cache.hits + cache.misses
    return {
        "entries": len(cache),
        "capacity": cache.capacity,
        "hits": cache.hits,
        "misses": cache.misses,
        "hit_ratio": cache.hits / reads if reads else 0.0,
    }
