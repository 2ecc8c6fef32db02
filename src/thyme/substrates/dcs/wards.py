"""Wards: the empty cells for which a node's cell stands in, and what belongs to each cell.

All that a node knows for cells is in one index. Which of it belongs to a cell follows from tags,
and from where subscriptions were made. Which cells are stood in for is remembered here, so that a
cell that fills is given what is its own, and nothing else.
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
    """A cell that this node's cell stands in for."""

    cell: CellId


WARDS = Shelf("ward", Ward)


class Wards:
    """The empty cells that one node looks after, with its colleagues."""

    def __init__(self, floor: Floor) -> None:
        self._routing = floor.routing
        self._index = floor.index
        self._replicas = floor.replicas
        self._store = floor.store
        self._graves_us = floor.config.hand_over.graves_us
        self._cells = {ward.cell: None for _, ward in floor.store.load(WARDS)}
        self._tag_cells: dict[str, CellId] = {}

    def __iter__(self) -> Iterator[CellId]:
        return iter(sorted(self._cells))

    def __contains__(self, cell: CellId) -> bool:
        return cell in self._cells

    def add(self, cell: CellId) -> None:
        """From now on this cell is stood in for, if it is not the own one."""
        if cell != self._routing.cell and cell not in self._cells:
            self._cells[cell] = None
            self._store.put(WARDS, str(cell), Ward(cell))

    def discard(self, cell: CellId) -> None:
        """From now on it is not."""
        if cell in self._cells:
            del self._cells[cell]
            self._store.remove(WARDS, str(cell))

    def find(self) -> None:
        """Takes up the cells that the own one looks after, as far as anything of theirs is here:
        who joins a cell is not told for whom that stands in."""
        homes = {home for interest in self._index.interests() for home in interest.homes}
        for metadata in self._index.broker.catalogue.history:
            homes |= self._homes_of(metadata)
        for home in sorted(homes):
            if self._routing.keeper(home) == self._routing.cell:
                self.add(home)

    def clear(self) -> None:
        """This node works for another cell."""
        for cell in list(self._cells):
            self.discard(cell)

    # What belongs to a cell

    def state(self, home: CellId, now_us: int, *, with_objects: bool = False) -> Records:
        """All that is known for a cell, what is gone first; at last the objects that are held in
        place of its nodes, or as one of them."""
        since_us = now_us - self._graves_us
        yield from self._graves("buried_objects", self._index.buried_objects(), since_us)
        subscriptions = self._index.buried_subscriptions()
        yield from self._graves("buried_subscriptions", subscriptions, since_us)
        for indexed in self.objects(home):
            yield "objects", indexed
        for interest in self.interests(home):
            yield "interests", interest
        for metadata in self._held(home, with_objects):
            yield "held", metadata

    def _graves(self, kind: str, graves: Iterable[Grave], since_us: int) -> Records:
        return ((kind, grave) for grave in graves if grave.at_us >= since_us)

    def objects(self, home: CellId) -> list[Indexed]:
        """The objects with a tag of a cell."""
        history = self._index.broker.catalogue.history
        found = [metadata for metadata in history if home in self._homes_of(metadata)]
        return list(map(self._index.indexed, found))

    def interests(self, home: CellId) -> list[Interest]:
        """The subscriptions made at a cell, with the conjunctions that may be keyed to it."""
        found = []
        for interest in self._index.interests():
            if home in interest.homes:
                narrowed = self._narrowed(interest, (home,))
                if narrowed is not None:
                    found.append(narrowed)
        return found

    def _held(self, home: CellId, as_one_of_it: bool) -> Iterator[Metadata]:
        for held in self._replicas.of_role(Role.ACTIVE):
            if Replica(home) in held.active or (as_one_of_it and not held.active):
                yield held.metadata
        for held in self._replicas.of_role(Role.OWN) if as_one_of_it else ():
            if Replica(home) in held.active:
                yield held.metadata

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
        """What of a subscription may be keyed to some cells."""

        def keyed(conjunction: Conjunction) -> bool:
            return any(self._cell_of(tag) in homes for tag in conjunction.positive)

        whole = interest.subscription
        conjunctions = tuple(filter(keyed, whole.conjunctions))
        if not conjunctions:
            return None
        subscription = whole.with_conjunctions(conjunctions)
        return Interest(subscription, interest.cell, homes, interest.heard)

    # What belongs elsewhere

    def let_go(
        self,
        home: CellId,
        keys: Iterable[Key],
        subscriptions: Iterable[SubscriptionKey],
        now_us: int,
    ) -> None:
        """What is named is looked after where it belongs: keeps what is also of the own cell or of
        another ward. The ward is over, unless there is something that was not named."""
        named_objects, named_subs = set(keys), set(subscriptions)
        if self._unnamed(home, named_objects, named_subs):
            return
        history, own = self._index.broker.catalogue.history, self._routing.cell
        self.discard(home)
        ours = {own, *self._cells}
        for key in sorted(named_objects):
            metadata = history.get(key)
            if metadata is not None and not ours & self._homes_of(metadata):
                self._index.forget_object(key)
        for sub_key in sorted(named_subs, key=str):
            interest = self._index.interest(sub_key)
            if interest is not None and home in interest.homes:
                self._keep(interest, tuple(cell for cell in interest.homes if cell in ours), now_us)

    def _unnamed(
        self, home: CellId, keys: Collection[Key], subscriptions: Collection[SubscriptionKey]
    ) -> bool:
        return any(indexed.metadata.key not in keys for indexed in self.objects(home)) or any(
            interest.subscription.key not in subscriptions for interest in self.interests(home)
        )

    def _keep(self, interest: Interest, homes: tuple[CellId, ...], now_us: int) -> None:
        narrowed = self._narrowed(interest, homes)
        if narrowed is None:
            self._index.forget_interest(interest.subscription.key)
        else:
            self._index.keep_of(narrowed, now_us)
