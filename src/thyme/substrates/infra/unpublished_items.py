"""Unpublished items: the deletes that a base station knows, so that no deleted object comes back.

Entry point: `UnpublishedItems`. The number of deletes is limited as that of other tombstones: the
owner with most of them loses its oldest, and a horizon refuses what that one protected.
Clauses: I23, B5. Decision: docs/decisions/0049-horizons.md.
"""

from __future__ import annotations

from collections.abc import Iterator

from thyme.model.metadata import Metadata
from thyme.protocol.messages.common import Unpublish, unpublished_key
from thyme.storage.store import RecordTable, Store
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.common.tombstones import Horizon, Tombstone, TombstoneStore
from thyme.substrates.infra.station.popularity import ItemId
from thyme.substrates.infra.station.records import StationRecords, item_key, parse_item

STATION_TOMBSTONES = RecordTable("station tombstone", Tombstone)
STATION_HORIZONS = RecordTable("station horizon", Horizon)


class UnpublishedItems:
    """The deletes of one station, oldest first."""

    def __init__(self, store: Store, records: StationRecords) -> None:
        self._records = records
        self._messages: dict[ItemId, Unpublish] = {}
        self._tombstones = TombstoneStore(store, STATION_TOMBSTONES, horizons=STATION_HORIZONS)

    def __contains__(self, item: ItemId) -> bool:
        return item in self._messages

    def __len__(self) -> int:
        return len(self._messages)

    def messages(self) -> Iterator[Unpublish]:
        """The messages that deleted the items."""
        return iter(self._messages.values())

    def refuses(self, world: int, metadata: Metadata) -> bool:
        """Whether an object was deleted, or is so old that its delete may have been forgotten."""
        return (world, metadata.key) in self._messages or self._tombstones.is_beyond_horizon(
            metadata.owner, metadata.published_us
        )

    def add(self, message: Unpublish, now_us: int) -> bool:
        """Adds a delete; returns whether it is new."""
        if not self._remember(message, now_us):
            return False
        self._records.save_delete(message)
        return True

    def restore(self, now_us: int) -> None:
        """Continues with the deletes from before a restart (B8)."""
        for message in self._records.load_deletes():
            self._remember(message, now_us)

    def _remember(self, message: Unpublish, now_us: int) -> bool:
        item = message.world, unpublished_key(message)
        if item in self._messages:
            return False
        self._messages[item] = message
        text = item_key(item)
        if self._tombstones.reason_for(text) is None:
            self._tombstones.expire(now_us)
            evicted = self._tombstones.add(text, DELETED, now_us)
            forgotten = None if evicted is None else parse_item(evicted)
            if forgotten is not None:
                self._messages.pop(forgotten, None)
                self._records.remove_delete(forgotten)
        return True
