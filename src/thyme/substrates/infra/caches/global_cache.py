"""The global cache: objects of other stations that the own clients have downloaded.

Metadata and data are two adaptive multipart caches; each is divided again after
`max_puts_above_limit` puts into a full part.
Clauses: I14, I16.
"""

from __future__ import annotations

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.substrates.infra.caches.adaptive_multipart import AdaptiveMultipartCache
from thyme.substrates.infra.caches.config import CachesConfig
from thyme.substrates.infra.caches.object_cache import (
    CachePart,
    ObjectCache,
    ObjectListener,
    data_weight,
    metadata_weight,
)
from thyme.substrates.infra.caches.policies.interface import EvictionCause


class GlobalCache(ObjectCache):
    """Two adaptive multipart caches."""

    def __init__(self, config: CachesConfig, listener: ObjectListener | None = None) -> None:
        super().__init__(listener)
        self._unit = config.unit
        self.metadata_cache: AdaptiveMultipartCache[Key, Metadata] = AdaptiveMultipartCache(
            config.global_metadata_size,
            config,
            lambda world, _, metadata, cause: self._metadata_left(world, metadata, cause),
        )
        self.data_cache: AdaptiveMultipartCache[Key, bytes] = AdaptiveMultipartCache(
            config.global_data_size,
            config,
            lambda world, key, _, cause: self._report(world, key, CachePart.DATA, cause),
        )

    def put(self, world: str, metadata: Metadata, data: bytes) -> bool:
        """Stores an object; returns whether its metadata is stored."""
        key = metadata.key
        weight = metadata_weight(metadata, self._unit)
        stored = self.metadata_cache.put(world, key, metadata, weight)
        if stored:
            self._index.add(world, metadata)
        self.data_cache.put(world, key, data, data_weight(data, self._unit))
        return stored

    def metadata(self, world: str, key: Key) -> Metadata | None:
        return self.metadata_cache.peek(world, key)

    def get_data(self, world: str, key: Key) -> bytes | None:
        self.metadata_cache.get(world, key)  # a use of the metadata, too
        return self.data_cache.get(world, key)

    def remove(
        self, world: str, key: Key, cause: EvictionCause = EvictionCause.REMOVED
    ) -> Metadata | None:
        self.data_cache.remove(world, key, cause)
        return self.metadata_cache.remove(world, key, cause)
