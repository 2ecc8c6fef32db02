"""The common parts of the three caches: weights, reports of evictions, and lookup by tags.

Clauses: I12, I13, I14, I16.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.substrates.infra.caches.config import CacheUnit
from thyme.substrates.infra.caches.metadata_index import MetadataIndex
from thyme.substrates.infra.caches.policies.interface import EvictionCause

_METADATA_FIXED_BYTES = 64
"""About the encoded size of the fixed fields of metadata."""


class CachePart(Enum):
    """What an entry of a cache holds."""

    OBJECT = "object"
    """Metadata and data together."""
    METADATA = "metadata"
    DATA = "data"


ObjectListener = Callable[[str, Key, CachePart, EvictionCause], None]
"""Receives the world and key of each entry that left one of the caches, or was not stored."""


def metadata_weight(metadata: Metadata, unit: CacheUnit) -> int:
    """The weight of a metadata entry."""
    if unit is CacheUnit.ENTRIES:
        return 1
    texts = sum(len(tag) for tag in metadata.tags) + len(metadata.oid) + len(metadata.owner)
    return _METADATA_FIXED_BYTES + texts + len(metadata.summary) + len(metadata.digest_and_proof)


def data_weight(data: bytes, unit: CacheUnit) -> int:
    """The weight of a data entry; an object without bytes weighs 1."""
    return 1 if unit is CacheUnit.ENTRIES else max(1, len(data))


class ObjectCache(ABC):
    """A cache of objects of several worlds; its index has exactly the cached metadata."""

    def __init__(self, listener: ObjectListener | None) -> None:
        self._listener = listener
        self._index = MetadataIndex()

    @abstractmethod
    def metadata(self, world: str, key: Key) -> Metadata | None:
        """Returns cached metadata without any effect on the cache."""

    @abstractmethod
    def get_data(self, world: str, key: Key) -> bytes | None:
        """Returns cached data, and counts a hit or a miss."""

    @abstractmethod
    def remove(
        self, world: str, key: Key, cause: EvictionCause = EvictionCause.REMOVED
    ) -> Metadata | None:
        """Removes an object, metadata and data; returns the metadata, None if there was none."""

    def count(self, world: str, tag: Tag) -> int:
        """The number of cached metadata with a tag."""
        return self._index.count(world, tag)

    def find(self, world: str, tag: Tag) -> list[Metadata]:
        """The cached metadata with a tag, in the order of insertion."""
        found = (self.metadata(world, key) for key in self._index.keys(world, tag))
        return [metadata for metadata in found if metadata is not None]

    def remove_expired(self, now_us: int) -> list[tuple[str, Metadata]]:
        """Removes the objects that have expired; returns their worlds and metadata."""
        removed = []
        for world, key in self._index.pop_expired(now_us):
            metadata = self.remove(world, key, EvictionCause.EXPIRED)
            if metadata is not None:
                removed.append((world, metadata))
        return removed

    def _report(self, world: str, key: Key, part: CachePart, cause: EvictionCause) -> None:
        if self._listener is not None:
            self._listener(world, key, part, cause)

    def _metadata_left(self, world: str, metadata: Metadata, cause: EvictionCause) -> None:
        self._index.discard(world, metadata)
        self._report(world, metadata.key, CachePart.METADATA, cause)
