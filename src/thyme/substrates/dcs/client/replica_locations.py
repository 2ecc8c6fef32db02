"""Replica locations: the replication lists that a node received, kept for its retrieves.

Entry point: `ReplicaLocations`. Pages and notifications fill it; `retrieve` reads it.
Clauses: D11, D18.
"""

from __future__ import annotations

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key
from thyme.protocol.messages.cell_records import IndexedMetadata

_LOCATIONS_MAX = 10_000
"""The maximum number of objects whose replication list a node caches."""


class ReplicaLocations:
    """A bounded cache of the replication lists that this node received."""

    def __init__(self, entries_max: int = _LOCATIONS_MAX) -> None:
        self._entries: BoundedDict[Key, IndexedMetadata] = BoundedDict(entries_max)

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, indexed: IndexedMetadata) -> None:
        """Caches an object's metadata and replication list."""
        self._entries.refresh(indexed.metadata.key, indexed)

    def forget(self, key: Key) -> None:
        """Drops the cached entry of an object: its replicas are elsewhere."""
        self._entries.pop(key, None)

    def get(self, key: Key) -> IndexedMetadata | None:
        """The latest cached entry of an object."""
        return self._entries.get(key)
