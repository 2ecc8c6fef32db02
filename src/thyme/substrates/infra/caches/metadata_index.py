"""Metadata index: finds cached metadata by tag, and expired metadata.

A cache adds metadata that it stored and discards metadata that left it, for any cause; so the index
always has exactly the cached metadata.
Clause: I16.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag

_QUEUE_SLACK = 64


class MetadataIndex:
    """Keys by world and tag, and by the instant of their expiry."""

    def __init__(self) -> None:
        # Dicts instead of sets: their order is that of insertion.
        self._keys: dict[tuple[str, Tag], dict[Key, None]] = {}
        self._expiry: dict[tuple[str, Key], int] = {}
        self._queue: list[tuple[int, str, Key]] = []

    def add(self, world: str, metadata: Metadata) -> None:
        """Adds metadata that was stored."""
        for tag in metadata.tags:
            self._keys.setdefault((world, tag), {})[metadata.key] = None
        if metadata.expires_us is not None:
            self._expiry[world, metadata.key] = metadata.expires_us
            heappush(self._queue, (metadata.expires_us, world, metadata.key))
            if len(self._queue) > 2 * len(self._expiry) + _QUEUE_SLACK:
                self._queue = [(at_us, *place) for place, at_us in self._expiry.items()]
                heapify(self._queue)

    def discard(self, world: str, metadata: Metadata) -> None:
        """Discards metadata that left the cache, or was not stored."""
        for tag in metadata.tags:
            keys = self._keys.get((world, tag))
            if keys is not None:
                keys.pop(metadata.key, None)
                if not keys:
                    del self._keys[world, tag]
        self._expiry.pop((world, metadata.key), None)

    def keys(self, world: str, tag: Tag) -> list[Key]:
        """The keys of the cached metadata with a tag, in the order of insertion."""
        return list(self._keys.get((world, tag), ()))

    def count(self, world: str, tag: Tag) -> int:
        """The number of cached metadata with a tag (#LPC_tag of I18)."""
        return len(self._keys.get((world, tag), ()))

    def pop_expired(self, now_us: int) -> list[tuple[str, Key]]:
        """The worlds and keys of metadata that have expired; each is returned once."""
        expired = []
        while self._queue and self._queue[0][0] <= now_us:
            at_us, world, key = heappop(self._queue)
            if self._expiry.get((world, key)) == at_us:
                expired.append((world, key))
                del self._expiry[world, key]
        return expired
