"""The local popularity cache: popular objects of the station's own clients, metadata with data.

Clauses: I10, I12, I16.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.substrates.infra.caches.adaptive_multipart import AdaptiveMultipartCache
from thyme.substrates.infra.caches.config import CachesConfig, CacheUnit
from thyme.substrates.infra.caches.object_cache import (
    CachePart,
    ObjectCache,
    ObjectListener,
    data_weight,
    metadata_weight,
)
from thyme.substrates.infra.caches.policies.interface import EvictionCause


class CachedObject(NamedTuple):
    """An object of a world."""

    world: str
    metadata: Metadata
    data: bytes


class LocalPopularityCache(ObjectCache):
    """One adaptive multipart cache, divided at each batch insert."""

    def __init__(self, config: CachesConfig, listener: ObjectListener | None = None) -> None:
        super().__init__(listener)
        self._unit = config.unit
        self.objects: AdaptiveMultipartCache[Key, CachedObject] = AdaptiveMultipartCache(
            config.local_popularity_size, config, self._object_left
        )

    def put_batch(self, objects: Iterable[CachedObject]) -> list[bool]:
        """Divides the cache for these objects, then stores them; tells which are stored now."""
        objects = list(objects)
        stored = self.objects.put_batch(
            (each.world, each.metadata.key, each, self._weight(each)) for each in objects
        )
        for each in objects:
            if self.objects.peek(each.world, each.metadata.key) is each:
                self._index.add(each.world, each.metadata)
        return stored

    def metadata(self, world: str, key: Key) -> Metadata | None:
        found = self.objects.peek(world, key)
        return None if found is None else found.metadata

    def get_data(self, world: str, key: Key) -> bytes | None:
        found = self.objects.get(world, key)
        return None if found is None else found.data

    def remove(
        self, world: str, key: Key, cause: EvictionCause = EvictionCause.REMOVED
    ) -> Metadata | None:
        removed = self.objects.remove(world, key, cause)
        return None if removed is None else removed.metadata

    def _weight(self, each: CachedObject) -> int:
        if self._unit is CacheUnit.ENTRIES:
            return 1
        return metadata_weight(each.metadata, self._unit) + data_weight(each.data, self._unit)

    def _object_left(self, world: str, key: Key, each: CachedObject, cause: EvictionCause) -> None:
        self._index.discard(world, each.metadata)
        self._report(world, key, CachePart.OBJECT, cause)
