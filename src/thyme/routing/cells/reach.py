"""Radio reach: measures from beacons how far the radio reaches, and whether the cells suit it.

Nodes of adjacent cells must be in range of each other, wherever in their cells they are. A node
finds that they are not if its neighbours are in range of nodes in an adjacent cell, and it is not.
Entry points: `RadioReach.update`, called with each beacon, and `RadioReach.unheard_cells`.
Clauses: D2, D4.
"""

from __future__ import annotations

from typing import Final

from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.neighbours import Neighbours

_UNHEARD_US: Final = 15 * SECOND_US
"""How long an adjacent cell must be populated and not heard before it counts as out of range: more
than three neighbour timeouts, so that nodes that come, leave or collide are not counted."""


class RadioReach:
    """The reach of one node's radio."""

    def __init__(self, grid: Grid, neighbours: Neighbours) -> None:
        self._grid = grid
        self._neighbours = neighbours
        self._cell: CellId | None = None
        self._unheard_since_us: dict[CellId, int] = {}

    def update(self, cell: CellId, now_us: int) -> None:
        """Compares the adjacent cells that this node hears with those that its neighbours hear."""
        around = self._neighbours.neighbourhood(cell)
        unheard = around.second & self._neighbours.layout.always_in_range & ~around.direct
        if cell != self._cell:
            self._cell = cell
            self._unheard_since_us.clear()
        if unheard or self._unheard_since_us:
            known = self._unheard_since_us
            cells = around.cells_in(unheard)
            self._unheard_since_us = {each: known.get(each, now_us) for each in cells}

    def unheard_cells(self, now_us: int) -> list[CellId]:
        """The adjacent cells that have nodes, none of which this node hears (D2)."""
        since_us = self._unheard_since_us.items()
        return sorted(cell for cell, at_us in since_us if now_us - at_us >= _UNHEARD_US)

    def heard_m(self, cell: CellId) -> float | None:
        """The distance to the farthest cell that this node hears, centre to centre; None if it
        hears no node."""
        heard = self._neighbours.neighbourhood(cell).nodes_by_cell
        return max((self._grid.distance_m(cell, other) for other in heard), default=None)
