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
from thyme.model.positions import Position
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import (
    CellRouting,
    CellRoutingConfig,
    CellRoutingUser,
    GeographicRouting,
    Grid,
)


class CellMap(Protocol):
    """The cells of a world, and the factory of the routing over them."""

    def make_routing(self, outbox: Outbox, user: CellRoutingUser) -> CellRouting:
        """Creates the cell routing of one node."""
        ...

    def __contains__(self, cell: CellId) -> bool:
        """Whether the cell exists."""
        ...

    def cell_at(self, position: Position) -> CellId:
        """The cell that contains a position."""
        ...


class GridCellMap:
    """A cell map over a grid, for nodes that know their position."""

    def __init__(
        self, node_id: NodeId, grid: Grid, rng: Random, config: CellRoutingConfig | None = None
    ) -> None:
        self._node_id = node_id
        self._grid = grid
        self._rng = rng
        self._config = config

    def make_routing(self, outbox: Outbox, user: CellRoutingUser) -> CellRouting:
        return GeographicRouting(self._node_id, self._grid, outbox, self._rng, user, self._config)

    def __contains__(self, cell: CellId) -> bool:
        return cell in self._grid

    def cell_at(self, position: Position) -> CellId:
        return self._grid.cell_at(position)


def cells_referenced(message: wire.Message) -> Iterator[CellId]:
    """The cells a message refers to, to which later messages could be sent if it were accepted."""
    match message:
        case cell_wire.IndexObject() | cell_wire.CellNotify():
            return _replica_cells([message.indexed])
        case cell_wire.CellStatus() if message.indexed is not None:
            return _replica_cells([message.indexed])
        case cell_wire.CellNotifyBatch():
            return _replica_cells(item.indexed for item in message.items)
        case cell_wire.CellPage():
            return _replica_cells(message.items)
        case cell_wire.ReindexObjects():
            return _replica_cells(message.objects)
        case cell_wire.CellState():
            subscriptions = message.subscriptions
            cells = (
                cell
                for subscription in subscriptions
                for cell in (subscription.cell, *subscription.key_cells)
            )
            return chain(_replica_cells(message.objects), cells)
        case cell_wire.TransferState() | cell_wire.BackupState():
            return chain([message.cell], cells_referenced(message.state))
        case wire.LocatedSubscription():
            return iter([message.location.cell])
        case cell_wire.SignedLocationUpdate() if message.location is not None:
            return iter([message.location.cell])
        case wire.ReplyFromCell():
            return cells_referenced(message.message)
        case _:
            return iter(())


def _replica_cells(objects: Iterable[IndexedMetadata]) -> Iterator[CellId]:
    return (replica.cell for indexed in objects for replica in (*indexed.active, *indexed.passive))
