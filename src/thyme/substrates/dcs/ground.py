"""Cell map: the cells that exist, and the routing over them.

Entry points: `CellMap`, which `DcsNode` receives, and `cells_referenced`, with which it drops
messages that refer to cells outside the map, so that no message is ever sent to such a cell.
Geometry and forwarding are in `thyme.routing.cells`.
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
    """The cells of a world, and the factory of the routing over them."""

    def routing(self, outbox: Outbox, listener: Listener) -> CellRouting:
        """Creates the cell routing of one node."""
        ...

    def __contains__(self, cell: CellId) -> bool:
        """Whether the cell exists."""
        ...

    def cell_at(self, place: Point) -> CellId:
        """The cell that contains a position."""
        ...


class Geography:
    """A cell map over a grid, for nodes that know their position."""

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
    """The cells a message refers to, to which later messages could be sent if it were accepted."""
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
            subscriptions = message.interests
            cells = (
                cell
                for subscription in subscriptions
                for cell in (subscription.cell, *subscription.homes)
            )
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
