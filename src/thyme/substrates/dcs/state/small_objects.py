"""Small objects: a bounded cache of objects that are sent with their metadata.

A tag cell keeps the small objects that it indexes, to send them in notifications and pages; a
reader keeps those that it received, so that it need not retrieve them. An object that is not in the
cache is retrieved as any other: nothing depends on the cache.
Clauses: D28.
"""

from __future__ import annotations

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key
from thyme.model.metadata import Metadata

ENTRIES_MAX = 10_000


class SmallObjects:
    """The small objects that one node knows, by key."""

    def __init__(self, bytes_max: int, entries_max: int = ENTRIES_MAX) -> None:
        """`bytes_max`: the size of the largest object that counts as small; 0 for none."""
        self.bytes_max = bytes_max
        self._entries: BoundedDict[Key, tuple[bytes, bytes]] = BoundedDict(entries_max)
        """Digest and bytes."""

    def __len__(self) -> int:
        return len(self._entries)

    def is_small(self, metadata: Metadata) -> bool:
        """Whether an object is sent with its metadata."""
        return 0 < metadata.size <= self.bytes_max

    def add(self, metadata: Metadata, data: bytes) -> None:
        """Keeps an object whose bytes have the digest of its metadata."""
        if self.is_small(metadata):
            self._entries.refresh(metadata.key, (metadata.digest, data))

    def get(self, metadata: Metadata) -> bytes | None:
        """The bytes of an object with exactly this content; None if they are not here."""
        entry = self._entries.get(metadata.key)
        return entry[1] if entry is not None and entry[0] == metadata.digest else None

    def remove(self, key: Key) -> None:
        """Forgets an object."""
        self._entries.pop(key, None)

    def clear(self) -> None:
        """Forgets all objects."""
        self._entries.clear()
