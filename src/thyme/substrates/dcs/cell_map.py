"""Cell map: the cells that exist, and the routing over them.

Entry point: `CellMap`, which `DcsNode` receives. The node drops messages that refer to cells
outside the map, so that no message is ever sent to such a cell. Geometry and forwarding are in
`thyme.routing.cells`.
Clauses: D1, I1, M25.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import (
    CellRouting,
    CellRoutingConfig,
    CellRoutingUser,
    GeographicRouting,
    Grid,
    LogicalCells,
    LogicalRouting,
)
from thyme.routing.cells.logical_cells import STATION_CELL


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

    def is_within(self, cell: CellId, position: Position, margin_m: float) -> bool:
        """Whether a position is in a cell, or outside by at most a margin."""
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

    def is_within(self, cell: CellId, position: Position, margin_m: float) -> bool:
        return self._grid.is_within(cell, position, margin_m)


class LogicalCellMap:
    """A cell map over logical cells: the cell of a node follows from its id, not its place (I1)."""

    def __init__(
        self,
        node_id: NodeId,
        cells: LogicalCells,
        rng: Random,
        config: CellRoutingConfig | None = None,
    ) -> None:
        self._node_id = node_id
        self._cells = cells
        self._rng = rng
        self._config = config

    def make_routing(self, outbox: Outbox, user: CellRoutingUser) -> CellRouting:
        return LogicalRouting(self._node_id, self._cells, outbox, self._rng, user, self._config)

    def __contains__(self, cell: CellId) -> bool:
        return cell in self._cells or cell == STATION_CELL

    def cell_at(self, position: Position) -> CellId:
        """The cell of the node, wherever it is."""
        return self._cells.cell_of_node(self._node_id)

    def is_within(self, cell: CellId, position: Position, margin_m: float) -> bool:
        return True
