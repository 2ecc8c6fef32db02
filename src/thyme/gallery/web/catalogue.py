"""Catalogue: the photos of one world that this gallery was notified of.

Cards, without thumbnails, are in memory, newest last; metadata and thumbnails are in the database,
so that ten thousand photos need little memory. Entry point: `PhotoCatalogue`.
Clauses: M2, M16.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from thyme import Metadata
from thyme.gallery.photos import GALLERY_TAG
from thyme.gallery.summary import decode_summary
from thyme.gallery.web.database import GalleryDatabase

Position = tuple[int, str]
"""Publication time and key: photos are ordered by these."""


class Card(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A photo as pages show it."""

    key: str
    published_us: int
    owner: str
    """Node that published it, in hexadecimal."""
    tags: tuple[str, ...]
    title: str = ""
    by: str = ""
    file_name: str = ""
    type: str = ""
    width: int = 0
    height: int = 0
    taken_us: int | None = None
    size: int = 0
    has_thumbnail: bool = False

    @property
    def position(self) -> Position:
        """Where the photo is in the order of photos."""
        return self.published_us, self.key


class PhotoCatalogue:
    """The photos of one world, by time."""

    def __init__(self, database: GalleryDatabase, world: str) -> None:
        self._database = database
        self._world = world
        self._cards: dict[str, Card] = {}
        self._encoded: dict[str, msgspec.Raw] = {}
        self._order: list[Position] = []
        self.tags: Counter[str] = Counter()
        """How many photos have each tag."""
        rows = database.rows(
            "SELECT card FROM items WHERE world = ? ORDER BY published_us, key", world
        )
        for (encoded,) in rows:
            self._remember(msgspec.json.decode(encoded, type=Card), encoded)

    def __len__(self) -> int:
        return len(self._cards)

    def __contains__(self, key: str) -> bool:
        return key in self._cards

    def get(self, key: str) -> Card | None:
        """The card of a photo."""
        return self._cards.get(key)

    def encoded(self, key: str) -> msgspec.Raw:
        """The card of a photo as JSON."""
        return self._encoded[key]

    def add(self, metadata: Metadata) -> Card | None:
        """Adds a photo; returns its card, None if it is known."""
        key = str(metadata.key)
        if key in self._cards:
            return None
        summary = decode_summary(metadata.summary)
        card = Card(
            key=key,
            published_us=metadata.published_us,
            owner=metadata.owner.hex(),
            tags=metadata.tags,
            title=summary.title,
            by=summary.by,
            file_name=summary.file_name,
            type=summary.type,
            width=summary.width,
            height=summary.height,
            taken_us=summary.taken_us,
            size=metadata.size,
            has_thumbnail=bool(summary.thumbnail),
        )
        encoded = msgspec.json.encode(card)
        self._database.execute(
            "INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?, ?, ?)",
            *(self._world, key, card.published_us),
            *(msgspec.msgpack.encode(metadata), encoded, summary.thumbnail),
        )
        self._remember(card, encoded)
        return card

    def _remember(self, card: Card, encoded: bytes) -> None:
        self._cards[card.key] = card
        self._encoded[card.key] = msgspec.Raw(encoded)
        insort(self._order, card.position)
        self.tags.update(tag for tag in card.tags if tag != GALLERY_TAG)

    def remove(self, key: str) -> bool:
        """Removes a photo; returns whether it was there."""
        card = self._cards.pop(key, None)
        if card is None:
            return False
        del self._encoded[key]
        del self._order[bisect_left(self._order, card.position)]
        self.tags.subtract(tag for tag in card.tags if tag != GALLERY_TAG)
        self.tags += Counter()  # drops those that are not positive
        self._database.execute("DELETE FROM items WHERE world = ? AND key = ?", self._world, key)
        return True

    def metadata(self, key: str) -> Metadata | None:
        """The metadata of a photo, with which it is retrieved."""
        row = self._database.row(
            "SELECT metadata FROM items WHERE world = ? AND key = ?", self._world, key
        )
        return None if row is None else msgspec.msgpack.decode(row[0], type=Metadata)

    def thumbnail(self, key: str) -> bytes:
        """The thumbnail of a photo; empty if it has none."""
        row = self._database.row(
            "SELECT thumbnail FROM items WHERE world = ? AND key = ?", self._world, key
        )
        return b"" if row is None else bytes(row[0])

    def newest_first(self, before: Position | None = None) -> Iterator[Card]:
        """Photos from new to old, those before a position."""
        end = len(self._order) if before is None else bisect_left(self._order, before)
        for index in range(end - 1, -1, -1):
            yield self._cards[self._order[index][1]]

    def histogram(self, buckets: int, wanted: Callable[[Card], bool]) -> tuple[int, int, list[int]]:
        """The time span of the photos, and how many were published in each part of it."""
        if not self._order:
            return 0, 0, [0] * buckets
        first_us, last_us = self._order[0][0], self._order[-1][0]
        counts = [0] * buckets
        width_us = max(1, last_us - first_us)
        for card in self._cards.values():
            if wanted(card):
                counts[min(buckets - 1, (card.published_us - first_us) * buckets // width_us)] += 1
        return first_us, last_us, counts
