"""The prefetch cache: objects of other stations that the own clients may want.

Metadata and data are two caches of separate sizes, keyed by world and object. Metadata outlives its
data: a client can still be sent to the station that the object comes from.
Clauses: I13, I16.
"""

from __future__ import annotations

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.substrates.infra.caches.config import CachesConfig
from thyme.substrates.infra.caches.object_cache import (
    CachePart,
    ObjectCache,
    ObjectListener,
    data_weight,
    metadata_weight,
)
from thyme.substrates.infra.caches.policies.factory import make_cache
from thyme.substrates.infra.caches.policies.interface import Cache, EvictionCause

WorldKey = tuple[str, Key]


class PrefetchCache(ObjectCache):
    """Two one-dimensional caches."""

    def __init__(self, config: CachesConfig, listener: ObjectListener | None = None) -> None:
        super().__init__(listener)
        self._unit = config.unit
        self.metadata_cache: Cache[WorldKey, Metadata] = make_cache(
            config.policy,
            config.prefetch_metadata_size,
            lambda place, metadata, cause: self._metadata_left(place[0], metadata, cause),
        )
        self.data_cache: Cache[WorldKey, bytes] = make_cache(
            config.policy,
            config.prefetch_data_size,
            lambda place, _, cause: self._report(*place, CachePart.DATA, cause),
        )

    def put(self, world: str, metadata: Metadata, data: bytes | None) -> bool:
        """Stores metadata, and data if there is any; returns whether the metadata is stored."""
        place = (world, metadata.key)
        stored = self.metadata_cache.put(place, metadata, metadata_weight(metadata, self._unit))
        if stored:
            self._index.add(world, metadata)
        if data is not None:
            self.data_cache.put(place, data, data_weight(data, self._unit))
        return stored

    def metadata(self, world: str, key: Key) -> Metadata | None:
        return self.metadata_cache.peek((world, key))

    def get_data(self, world: str, key: Key) -> bytes | None:
        self.metadata_cache.get((world, key))  # a use of the metadata, too
        return self.data_cache.get((world, key))

    def remove(
        self, world: str, key: Key, cause: EvictionCause = EvictionCause.REMOVED
    ) -> Metadata | None:
        self.data_cache.remove((world, key), cause)
        return self.metadata_cache.remove((world, key), cause)
