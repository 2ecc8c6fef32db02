"""Proxied cells: the empty cells whose proxy this node's cell is, and the records of each cell.

A node stores the records of all cells in one index. The tags of an object and the key cells of a
subscription determine to which cells a record belongs. The set of proxied cells is stored, so that
a cell that becomes populated receives its own records only. Entry point: `ProxiedCells`;
`state_transfer` sends the records.
Clauses: D6, D24.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import msgspec

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction, SubscriptionKey
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    IndexedMetadata,
    Replica,
    TombstoneRecord,
)
from thyme.storage.store import RecordTable
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.cell_state import StateRecords
from thyme.substrates.dcs.state.replica_store import ReplicaRole

_TAGS_MAX = 10_000
_TOMBSTONE_AGE_US_MAX = 900 * SECOND_US
"""The maximum age of tombstones included in a state transfer."""


class ProxiedCell(msgspec.Struct, frozen=True, array_like=True):
    """A cell whose proxy this node's cell is."""

    cell: CellId


PROXIED_CELLS = RecordTable("ward", ProxiedCell)


class ProxiedCells:
    """The empty cells whose proxy the cell of this node is."""

    def __init__(self, context: NodeContext) -> None:
        self._routing = context.routing
        self._index = context.index
        self._replicas = context.replicas
        self._store = context.store
        self._cells = {proxied.cell: None for _, proxied in context.store.load(PROXIED_CELLS)}
        self._tag_cells: dict[str, CellId] = {}

    def __iter__(self) -> Iterator[CellId]:
        return iter(sorted(self._cells))

    def __contains__(self, cell: CellId) -> bool:
        return cell in self._cells

    def add(self, cell: CellId) -> None:
        """Adds a proxied cell, unless it is the own cell."""
        if cell != self._routing.cell and cell not in self._cells:
            self._cells[cell] = None
            self._store.put(PROXIED_CELLS, str(cell), ProxiedCell(cell))

    def discard(self, cell: CellId) -> None:
        """Removes a proxied cell."""
        if cell in self._cells:
            del self._cells[cell]
            self._store.remove(PROXIED_CELLS, str(cell))

    def rebuild(self) -> None:
        """Rebuilds the set from the index, as far as it holds records of empty cells: the cell
        state that a joining node receives does not name the proxied cells."""
        key_cells = {
            key_cell
            for cell_subscription in self._index.cell_subscriptions()
            for key_cell in cell_subscription.key_cells
        }
        for metadata in self._index.all_metadata():
            key_cells |= self._key_cells_of(metadata)
        for key_cell in sorted(key_cells):
            if self._routing.proxy_of(key_cell) == self._routing.cell:
                self.add(key_cell)

    def clear(self) -> None:
        """Removes all proxied cells: this node will serve another cell."""
        for cell in list(self._cells):
            self.discard(cell)

    # Records of a cell

    def records_of(
        self, key_cell: CellId, now_us: int, *, with_replicas: bool = False
    ) -> StateRecords:
        """All records of a cell, tombstones first; objects last: those stored as its proxy, and
        with `with_replicas` also those stored as one of its nodes."""
        since_us = now_us - _TOMBSTONE_AGE_US_MAX
        yield from self._recent_tombstones(
            "object_tombstones", self._index.object_tombstones(), since_us
        )
        tombstones = self._index.subscription_tombstones()
        yield from self._recent_tombstones("subscription_tombstones", tombstones, since_us)
        for indexed in self.objects_of(key_cell):
            yield "objects", indexed
        for cell_subscription in self.subscriptions_of(key_cell):
            yield "subscriptions", cell_subscription
        for metadata in self._replicas_of(key_cell, with_replicas):
            yield "replicated", metadata

    def _recent_tombstones(
        self, field_name: str, tombstones: Iterable[TombstoneRecord], since_us: int
    ) -> StateRecords:
        return (
            (field_name, tombstone) for tombstone in tombstones if tombstone.removed_us >= since_us
        )

    def objects_of(self, key_cell: CellId) -> Iterator[IndexedMetadata]:
        """The objects with a tag of the given key cell; one at a time, since they may be many."""
        for metadata in self._index.all_metadata():
            if key_cell in self._key_cells_of(metadata):
                yield self._index.with_replication_list(metadata)

    def subscriptions_of(self, key_cell: CellId) -> list[CellSubscription]:
        """The subscriptions made at a key cell, with the conjunctions that may be keyed to it."""
        found = []
        for cell_subscription in self._index.cell_subscriptions():
            if key_cell in cell_subscription.key_cells:
                narrowed = self._narrow(cell_subscription, (key_cell,))
                if narrowed is not None:
                    found.append(narrowed)
        return found

    def _replicas_of(self, key_cell: CellId, as_member: bool) -> Iterator[Metadata]:
        for stored in self._replicas.with_role(ReplicaRole.ACTIVE):
            if Replica(key_cell) in stored.active or (as_member and not stored.active):
                yield stored.metadata
        for stored in self._replicas.with_role(ReplicaRole.OWN) if as_member else ():
            if Replica(key_cell) in stored.active:
                yield stored.metadata

    def _key_cells_of(self, metadata: Metadata) -> set[CellId]:
        return {self._key_cell_of(tag) for tag in metadata.tags}

    def _key_cell_of(self, tag: str) -> CellId:
        cell = self._tag_cells.get(tag)
        if cell is None:
            if len(self._tag_cells) >= _TAGS_MAX:
                self._tag_cells.clear()
            cell = self._tag_cells[tag] = self._routing.cell_of_key(tag)
        return cell

    def _narrow(
        self, cell_subscription: CellSubscription, key_cells: tuple[CellId, ...]
    ) -> CellSubscription | None:
        """The subscription with the conjunctions that may be keyed to the given cells, or None."""

        def keyed(conjunction: Conjunction) -> bool:
            return any(self._key_cell_of(tag) in key_cells for tag in conjunction.positive)

        whole = cell_subscription.subscription
        conjunctions = tuple(filter(keyed, whole.conjunctions))
        if not conjunctions:
            return None
        subscription = whole.with_conjunctions(conjunctions)
        return CellSubscription(
            subscription, cell_subscription.cell, key_cells, cell_subscription.located
        )

    # Releasing records

    def release_records(
        self,
        key_cell: CellId,
        keys: Iterable[Key],
        subscriptions: Iterable[SubscriptionKey],
        now_us: int,
    ) -> None:
        """Releases the named records, which their key cell or another proxy stores now; records
        that also belong to the own cell or another proxied cell stay. Nothing is released if this
        node has a record of the cell that was not named."""
        named_objects, named_subs = set(keys), set(subscriptions)
        if self._has_unnamed(key_cell, named_objects, named_subs):
            return
        self.discard(key_cell)
        own_cells = {self._routing.cell, *self._cells}
        for key in sorted(named_objects):
            metadata = self._index.get_object(key)
            if metadata is not None and not own_cells & self._key_cells_of(metadata):
                self._index.forget_object(key)
        for sub_key in sorted(named_subs, key=str):
            cell_subscription = self._index.cell_subscription(sub_key)
            if cell_subscription is not None and key_cell in cell_subscription.key_cells:
                self._keep_narrowed(
                    cell_subscription,
                    tuple(cell for cell in cell_subscription.key_cells if cell in own_cells),
                    now_us,
                )

    def _has_unnamed(
        self, key_cell: CellId, keys: Collection[Key], subscriptions: Collection[SubscriptionKey]
    ) -> bool:
        return any(
            indexed.metadata.key not in keys for indexed in self.objects_of(key_cell)
        ) or any(
            cell_subscription.subscription.key not in subscriptions
            for cell_subscription in self.subscriptions_of(key_cell)
        )

    def _keep_narrowed(
        self, cell_subscription: CellSubscription, key_cells: tuple[CellId, ...], now_us: int
    ) -> None:
        narrowed = self._narrow(cell_subscription, key_cells)
        if narrowed is None:
            self._index.forget_subscription(cell_subscription.subscription.key)
        else:
            self._index.narrow_subscription(narrowed, now_us)
