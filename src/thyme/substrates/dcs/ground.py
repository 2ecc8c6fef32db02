"""Ground: the cells there are, and the routing over them.

Messages name cells; what names one that is not there is not taken in, so that nothing is ever sent
to nowhere.
Clauses: D1, M25.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from random import Random
from typing import Protocol

from thyme.model.ids import NodeId
from thyme.protocol import cell_messages as cell_wire
from thyme.protocol import messages as wire
from thyme.protocol.cells import CellId, Indexed
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import CellRouting, CellsConfig, GeographicRouting, Grid, Listener

Point = tuple[float, float]


class Ground(Protocol):
    """What a node of Thyme-DCS stands on."""

    def routing(self, outbox: Outbox, listener: Listener) -> CellRouting:
        """The routing of one node."""
        ...

    def __contains__(self, cell: CellId) -> bool:
        """Whether there is such a cell."""
        ...

    def cell_at(self, place: Point) -> CellId:
        """The cell of a place."""
        ...


class Geography:
    """The ground of a node that knows where it is: a grid."""

    def __init__(
        self, node_id: NodeId, grid: Grid, rng: Random, config: CellsConfig | None = None
    ) -> None:
        self._node_id = node_id
        self._grid = grid
        self._rng = rng
        self._config = config

    def routing(self, outbox: Outbox, listener: Listener) -> CellRouting:
        return GeographicRouting(
            self._node_id, self._grid, outbox, self._rng, listener, self._config
        )

    def __contains__(self, cell: CellId) -> bool:
        return cell in self._grid

    def cell_at(self, place: Point) -> CellId:
        return self._grid.cell_at(place)


def cells_named(message: wire.Message) -> Iterator[CellId]:
    """The cells where others would be sent if this were believed."""
    match message:
        case cell_wire.IndexObject() | cell_wire.CellNotify():
            return _replicas([message.indexed])
        case cell_wire.CellStatus() if message.indexed is not None:
            return _replicas([message.indexed])
        case cell_wire.CellNews():
            return _replicas(item.indexed for item in message.items)
        case cell_wire.CellPage():
            return _replicas(message.items)
        case cell_wire.IndexAgain():
            return _replicas(message.objects)
        case cell_wire.CellState():
            interests = message.interests
            cells = (cell for some in interests for cell in (some.cell, *some.homes))
            return chain(_replicas(message.objects), cells)
        case cell_wire.HandOver() | cell_wire.BackUp():
            return chain([message.cell], cells_named(message.state))
        case wire.PlacedSubscription():
            return iter([message.place.cell])
        case cell_wire.SignedMove() if message.place is not None:
            return iter([message.place.cell])
        case wire.FromCell():
            return cells_named(message.message)
        case _:
            return iter(())


def _replicas(some: Iterable[Indexed]) -> Iterator[CellId]:
    return (replica.cell for indexed in some for replica in (*indexed.active, *indexed.passive))
