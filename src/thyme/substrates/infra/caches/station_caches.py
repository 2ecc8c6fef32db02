"""The three caches of a station together: download, unpublish, expiry.

Entry point: `StationCaches`. Decisions about what to insert, and messages, are up to the station.
Clauses: I12, I13, I14, I16, I19, I22, I23.
"""

from __future__ import annotations

from typing import NamedTuple

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.substrates.infra.caches.config import CachesConfig
from thyme.substrates.infra.caches.global_cache import GlobalCache
from thyme.substrates.infra.caches.local_popularity import LocalPopularityCache
from thyme.substrates.infra.caches.object_cache import ObjectListener
from thyme.substrates.infra.caches.prefetch import PrefetchCache


class CacheHit(NamedTuple):
    """Data found by a download, and the metadata if the object moved to the global cache by it."""

    data: bytes
    consumed: Metadata | None = None


class StationCaches:
    """The caches of one station."""

    def __init__(self, config: CachesConfig, listener: ObjectListener | None = None) -> None:
        self.local_popularity = LocalPopularityCache(config, listener)
        self.prefetch = PrefetchCache(config, listener)
        self.global_cache = GlobalCache(config, listener)

    def download(self, world: str, key: Key) -> CacheHit | None:
        """Returns the data of an object for a local client, None if no cache has it.

        A prefetched object moves to the global cache (I14, I19).
        """
        for cache in (self.local_popularity, self.global_cache):
            data = cache.get_data(world, key)
            if data is not None:
                return CacheHit(data)
        data = self.prefetch.get_data(world, key)
        if data is None:
            return None
        metadata = self.prefetch.metadata(world, key)
        if metadata is None:
            return CacheHit(data)
        self.prefetch.remove(world, key)
        self.global_cache.put(world, metadata, data)
        return CacheHit(data, metadata)

    def metadata(self, world: str, key: Key) -> Metadata | None:
        """Returns the metadata of an object from any of the caches."""
        found = (cache.metadata(world, key) for cache in self._all())
        return next((metadata for metadata in found if metadata is not None), None)

    def remove(self, world: str, key: Key) -> bool:
        """Removes an unpublished object from all caches; returns whether one had it (I23)."""
        removed = [cache.remove(world, key) is not None for cache in self._all()]
        return any(removed)

    def remove_expired(self, now_us: int) -> list[tuple[str, Metadata]]:
        """Removes expired objects from all caches; returns their worlds and metadata."""
        return [found for cache in self._all() for found in cache.remove_expired(now_us)]

    def _all(self) -> tuple[LocalPopularityCache, GlobalCache, PrefetchCache]:
        return self.local_popularity, self.global_cache, self.prefetch
