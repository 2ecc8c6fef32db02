"""Station records: the state of a station that survives its end.

Entry point: `StationRecords`. Caches are empty after a restart; what a station has confirmed is
not: deletes of its visitors, and the downloads and subscriptions in their cell data, which nobody
else has any more. Worlds and their numbers of cells are kept, so that a restart moves no node to
another cell. Without space on the disk, only deletes and worlds are saved.
Clauses: I3, I7, I23, B8, M24.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from thyme.model.errors import ThymeError
from thyme.model.ids import Key
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.common import Unpublish
from thyme.protocol.messages.stations import TagNeed, WorldEntry
from thyme.storage.store import RecordTable, Store
from thyme.substrates.infra.station.popularity import ItemId, ItemPopularity
from thyme.substrates.infra.unpublish_records import UnpublishRecord

CYCLES_KEPT = 60
"""How many processed cycles of a cell are saved: mobile nodes send none that are older."""

CellOfCount = tuple[int, int, CellId]
"""A cell: its world, the number of cells of the world, and its own number."""
NeedName = tuple[int, Tag]
"""A tag of a world."""


class PopularityRecord(msgspec.Struct, frozen=True, array_like=True):
    """The downloads of an object."""

    downloads: float
    replicas: tuple[Replica, ...]


class NeedRecord(msgspec.Struct, frozen=True, array_like=True):
    """The subscriptions to a tag of a world."""

    world: int
    need: TagNeed


class CyclesRecord(msgspec.Struct, frozen=True, array_like=True):
    """The cycles of a cell that were processed."""

    cell: CellOfCount
    cycles: tuple[int, ...]


_WORLDS = RecordTable("station world", WorldEntry)
_DELETES = RecordTable("station delete", UnpublishRecord)
_POPULARITY = RecordTable("station popularity", PopularityRecord)
_NEEDS = RecordTable("station need", NeedRecord)
_CYCLES = RecordTable("station cycles", CyclesRecord)


class StationRecords:
    """The saved state of one station."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._items: dict[ItemId, None] = {}
        self._needs: dict[NeedName, None] = {}
        self.not_saved = 0
        """Records that were not saved because the disk is full."""

    def _has_space(self) -> bool:
        has_space = self._store.has_space(0)
        self.not_saved += not has_space
        return has_space

    # Worlds

    def save_world(self, entry: WorldEntry) -> None:
        """Saves a world with its number of cells."""
        self._store.put(_WORLDS, str(entry.world), entry)

    def load_worlds(self) -> Iterator[WorldEntry]:
        """All worlds, in the order of their creation."""
        return (entry for _, entry in self._store.load(_WORLDS))

    # Deletes

    def save_delete(self, message: Unpublish) -> None:
        """Saves a delete before it is confirmed."""
        record = UnpublishRecord.of(message)
        self._store.put(_DELETES, item_key((record.world, record.key)), record)

    def remove_delete(self, item: ItemId) -> None:
        """Removes a delete that the station has forgotten."""
        self._store.remove(_DELETES, item_key(item))

    def load_deletes(self) -> Iterator[Unpublish]:
        """All deletes, oldest first."""
        return (record.as_message(0) for _, record in self._store.load(_DELETES))

    # Cell data

    def save_cell_data(
        self,
        cell: CellOfCount,
        cycles: Iterable[int],
        items: dict[ItemId, ItemPopularity],
        needs: dict[NeedName, TagNeed],
    ) -> None:
        """Saves the state after a report of a cell, before it is confirmed."""
        if not self._has_space():
            return
        kept = tuple(cycles)[-CYCLES_KEPT:]
        self._store.put(_CYCLES, "/".join(map(str, cell)), CyclesRecord(cell, kept))
        for item, popularity in items.items():
            record = PopularityRecord(popularity.downloads, popularity.replicas)
            self._store.put(_POPULARITY, item_key(item), record)
            self._items[item] = None
        for (world, tag), need in needs.items():
            self._store.put(_NEEDS, f"{world}/{tag}", NeedRecord(world, need))
            self._needs[world, tag] = None

    def keep_only(self, items: Iterable[ItemId], needs: Iterable[NeedName]) -> None:
        """Removes what the station has forgotten."""
        for item in self._items.keys() - set(items):
            del self._items[item]
            self._store.remove(_POPULARITY, item_key(item))
        for world, tag in self._needs.keys() - set(needs):
            del self._needs[world, tag]
            self._store.remove(_NEEDS, f"{world}/{tag}")

    def remove_item(self, item: ItemId) -> None:
        """Removes the downloads of an object that was deleted."""
        if item in self._items:
            del self._items[item]
            self._store.remove(_POPULARITY, item_key(item))

    def load_popularity(self) -> Iterator[tuple[ItemId, PopularityRecord]]:
        """The downloads of all objects."""
        for text, record in self._store.load(_POPULARITY):
            item = parse_item(text)
            if item is not None:
                self._items[item] = None
                yield item, record

    def load_needs(self) -> Iterator[NeedRecord]:
        """The subscriptions to all tags."""
        for _, record in self._store.load(_NEEDS):
            self._needs[record.world, record.need.tag] = None
            yield record

    def load_cycles(self) -> Iterator[CyclesRecord]:
        """The processed cycles of all cells."""
        return (record for _, record in self._store.load(_CYCLES))


def item_key(item: ItemId) -> str:
    """The text of an item in a store."""
    return f"{item[0]}/{item[1]}"


def parse_item(text: str) -> ItemId | None:
    """The item of a text; None if it is not one."""
    world, _, key = text.partition("/")
    try:
        return int(world), Key.parse(key)
    except (ValueError, ThymeError):
        return None
