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
from thyme.protocol.cells import CellId, Grave, Indexed, Interest, Replica
from thyme.storage.store import Shelf
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.learning import Records
from thyme.substrates.dcs.replicas import Role

_TAGS_MAX = 10_000


class Ward(msgspec.Struct, frozen=True, array_like=True):
    """A cell whose proxy this node's cell is."""

    cell: CellId


WARDS = Shelf("ward", Ward)


class Wards:
    """The empty cells whose proxy the cell of this node is."""

    def __init__(self, floor: Floor) -> None:
        self._routing = floor.routing
        self._index = floor.index
        self._replicas = floor.replicas
        self._store = floor.store
        self._graves_us = floor.config.hand_over.graves_us
        self._cells = {proxied.cell: None for _, proxied in floor.store.load(WARDS)}
        self._tag_cells: dict[str, CellId] = {}

    def __iter__(self) -> Iterator[CellId]:
        return iter(sorted(self._cells))

    def __contains__(self, cell: CellId) -> bool:
        return cell in self._cells

    def add(self, cell: CellId) -> None:
        """Adds a proxied cell, unless it is the own cell."""
        if cell != self._routing.cell and cell not in self._cells:
            self._cells[cell] = None
            self._store.put(WARDS, str(cell), Ward(cell))

    def discard(self, cell: CellId) -> None:
        """Removes a proxied cell."""
        if cell in self._cells:
            del self._cells[cell]
            self._store.remove(WARDS, str(cell))

    def find(self) -> None:
        """Rebuilds the set from the index, as far as it holds records of empty cells: the cell
        state that a joining node receives does not name the proxied cells."""
        key_cells = {
            key_cell
            for cell_subscription in self._index.interests()
            for key_cell in cell_subscription.homes
        }
        for metadata in self._index.broker.catalogue.history:
            key_cells |= self._homes_of(metadata)
        for key_cell in sorted(key_cells):
            if self._routing.keeper(key_cell) == self._routing.cell:
                self.add(key_cell)

    def clear(self) -> None:
        """Removes all proxied cells: this node will serve another cell."""
        for cell in list(self._cells):
            self.discard(cell)

    # Records of a cell

    def state(self, home: CellId, now_us: int, *, with_objects: bool = False) -> Records:
        """All records of a cell, tombstones first; objects last: those stored as its proxy, and
        with `with_replicas` also those stored as one of its nodes."""
        since_us = now_us - self._graves_us
        yield from self._graves("buried_objects", self._index.buried_objects(), since_us)
        tombstones = self._index.buried_subscriptions()
        yield from self._graves("buried_subscriptions", tombstones, since_us)
        for indexed in self.objects(home):
            yield "objects", indexed
        for cell_subscription in self.interests(home):
            yield "interests", cell_subscription
        for metadata in self._held(home, with_objects):
            yield "held", metadata

    def _graves(self, kind: str, graves: Iterable[Grave], since_us: int) -> Records:
        return ((kind, tombstone) for tombstone in graves if tombstone.at_us >= since_us)

    def objects(self, home: CellId) -> list[Indexed]:
        """The objects with a tag of the given key cell."""
        history = self._index.broker.catalogue.history
        found = [metadata for metadata in history if home in self._homes_of(metadata)]
        return list(map(self._index.indexed, found))

    def interests(self, home: CellId) -> list[Interest]:
        """The subscriptions made at a key cell, with the conjunctions that may be keyed to it."""
        found = []
        for cell_subscription in self._index.interests():
            if home in cell_subscription.homes:
                narrowed = self._narrowed(cell_subscription, (home,))
                if narrowed is not None:
                    found.append(narrowed)
        return found

    def _held(self, home: CellId, as_one_of_it: bool) -> Iterator[Metadata]:
        for stored in self._replicas.of_role(Role.ACTIVE):
            if Replica(home) in stored.active or (as_one_of_it and not stored.active):
                yield stored.metadata
        for stored in self._replicas.of_role(Role.OWN) if as_one_of_it else ():
            if Replica(home) in stored.active:
                yield stored.metadata

    def _homes_of(self, metadata: Metadata) -> set[CellId]:
        return {self._cell_of(tag) for tag in metadata.tags}

    def _cell_of(self, tag: str) -> CellId:
        cell = self._tag_cells.get(tag)
        if cell is None:
            if len(self._tag_cells) >= _TAGS_MAX:
                self._tag_cells.clear()
            cell = self._tag_cells[tag] = self._routing.cell_of_key(tag)
        return cell

    def _narrowed(self, interest: Interest, homes: tuple[CellId, ...]) -> Interest | None:
        """The subscription with the conjunctions that may be keyed to the given cells, or None."""

        def keyed(conjunction: Conjunction) -> bool:
            return any(self._cell_of(tag) in homes for tag in conjunction.positive)

        whole = interest.subscription
        conjunctions = tuple(filter(keyed, whole.conjunctions))
        if not conjunctions:
            return None
        subscription = whole.with_conjunctions(conjunctions)
        return Interest(subscription, interest.cell, homes, interest.heard)

    # Releasing records

    def let_go(
        self,
        home: CellId,
        keys: Iterable[Key],
        subscriptions: Iterable[SubscriptionKey],
        now_us: int,
    ) -> None:
        """Releases the named records, which their key cell or another proxy stores now; records
        that also belong to the own cell or another proxied cell stay. Nothing is released if this
        node has a record of the cell that was not named."""
        named_objects, named_subs = set(keys), set(subscriptions)
        if self._unnamed(home, named_objects, named_subs):
            return
        history, own_cell = self._index.broker.catalogue.history, self._routing.cell
        self.discard(home)
        own_cells = {own_cell, *self._cells}
        for key in sorted(named_objects):
            metadata = history.get(key)
            if metadata is not None and not own_cells & self._homes_of(metadata):
                self._index.forget_object(key)
        for sub_key in sorted(named_subs, key=str):
            cell_subscription = self._index.interest(sub_key)
            if cell_subscription is not None and home in cell_subscription.homes:
                self._keep(
                    cell_subscription,
                    tuple(cell for cell in cell_subscription.homes if cell in own_cells),
                    now_us,
                )

    def _unnamed(
        self, home: CellId, keys: Collection[Key], subscriptions: Collection[SubscriptionKey]
    ) -> bool:
        return any(indexed.metadata.key not in keys for indexed in self.objects(home)) or any(
            cell_subscription.subscription.key not in subscriptions
            for cell_subscription in self.interests(home)
        )

    def _keep(self, interest: Interest, homes: tuple[CellId, ...], now_us: int) -> None:
        narrowed = self._narrowed(interest, homes)
        if narrowed is None:
            self._index.forget_interest(interest.subscription.key)
        else:
            self._index.keep_of(narrowed, now_us)
