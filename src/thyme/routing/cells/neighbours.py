"""Neighbour table: the nodes in range, their cells, and the populated cells around the own cell.

Entry points: `Neighbours`, `CellNeighbourhood` and `RadioReach`. Each beacon contains the cells in
range of its sender (`direct`) and the cells in range of the sender's neighbours (`second`). A node
thus knows the populated cells within two hops of its own cell, and its cell peers know the same
ones. Two hops suffice for perimeter routing where a cell between two others is in range of only one
of them; if only one end of an edge knows such a cell, `next_hop` corrects it. If so configured,
links over which few beacons arrive count as weak.
Clauses: D2, D4, D5, D28.
"""

from __future__ import annotations

from typing import Final

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellBeacon
from thyme.routing.cells.cell_bitmap import CellBitmap, CellBitmapLayout
from thyme.routing.cells.config import CellRoutingConfig
from thyme.routing.cells.grid import Grid, Offset

_NEIGHBOUR_TIMEOUT_US: Final = 4 * SECOND_US + SECOND_US // 2
"""A neighbour without a beacon for this time is removed; longer than the time between two
beacons ever is."""
_FAILURES_MAX: Final = 3
"""A neighbour that failed to acknowledge this number of messages is removed until its next
beacon."""
_FAILURE_PENALTY_US: Final = 4 * SECOND_US
"""How long a message that a neighbour did not acknowledge counts against it. Longer than the retry
time of a request: over a link that carries only beacons, the retry must take another path before
the request fails."""
_UNREACHABLE_US: Final = 15 * SECOND_US
"""How long an adjacent cell must be populated and out of range before it counts as such: more than
three neighbour timeouts, so that nodes that come, leave or collide are not counted."""

_GAP_WEIGHT: Final = 8
"""The mean time between beacons changes by this fraction of the latest deviation."""
_FIRST_GAP_PERCENT: Final = 120
"""The mean time between beacons assumed of a new neighbour, in percent of the limit: a new link is
weak until some beacons have arrived in time."""
_STRONG_GAP_PERCENT: Final = 92
"""The mean time at which a weak link is strong again, in percent of the limit."""


class Neighbour:
    """A node in range, as described by its last beacon."""

    __slots__ = (
        "around_encoded",
        "cell",
        "direct",
        "failures",
        "gap_us",
        "is_strong",
        "last_failure_us",
        "last_seen_us",
        "node_id",
        "second",
        "serving",
        "view",
    )  # fmt: skip

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.cell = CellId(0)
        self.serving = False
        self.last_seen_us = 0
        self.direct: CellBitmap = 0
        self.second: CellBitmap = 0
        self.failures = 0
        self.last_failure_us = 0
        """When the neighbour last failed to acknowledge a message."""
        self.gap_us = 0
        """Mean time between two received beacons."""
        self.is_strong = True
        """Whether most messages over the link arrive at the first try, by its beacons."""
        self.around_encoded: bytes | None = None
        """The encoded cell sets of its last beacon; None if they are known to be outdated."""
        self.view: NeighbourView | None = None
        """Those cell sets relative to the own cell; None until computed."""


class NeighbourView:
    """The cell sets of a neighbour, relative to the cell of this node."""

    __slots__ = ("cell", "cell_bit", "in_range", "observable")

    def __init__(
        self, grid: Grid, layout: CellBitmapLayout, cell: CellId, neighbour: Neighbour
    ) -> None:
        offset = grid.offset(cell, neighbour.cell)
        self.cell = cell
        self.cell_bit: CellBitmap = layout.centre if neighbour.cell == cell else layout.bit(offset)
        """The neighbour's own cell; empty if that is too far away."""
        self.in_range: CellBitmap = layout.shifted(neighbour.direct, offset) | self.cell_bit
        self.observable: CellBitmap = layout.shifted(layout.always_in_range, offset)
        """The cells that the neighbour would certainly receive from if they were populated."""


class CellNeighbourhood:
    """The populated and empty cells around one cell; rebuilt after each change."""

    def __init__(
        self,
        grid: Grid,
        layout: CellBitmapLayout,
        cell: CellId,
        neighbours: dict[NodeId, Neighbour],
    ) -> None:
        self.cell = cell
        self._grid = grid
        self._layout = layout
        self.nodes_by_cell: dict[CellId, list[Neighbour]] = {}
        """Serving neighbours by cell, including the own cell."""
        self.cell_coordinates: list[tuple[int, int, CellId]] = []
        """Column, row and number of each cell in `nodes_by_cell` except the own one."""
        self.strong_coordinates: list[tuple[int, int, CellId]] = []
        """The same for cells with a neighbour over a strong link."""
        self._ranges: list[tuple[Neighbour, CellBitmap]] = []
        """Each neighbour with the cells in its range."""
        direct: CellBitmap = 0
        second: CellBitmap = 0
        known_to_peers: CellBitmap = 0
        observable: CellBitmap = layout.always_in_range
        for neighbour in neighbours.values():
            if not neighbour.serving:
                continue
            view = neighbour.view
            if view is None or view.cell != cell:
                view = neighbour.view = NeighbourView(grid, layout, cell, neighbour)
            if not view.cell_bit:
                continue
            if neighbour.cell not in self.nodes_by_cell:
                self._add_cell(neighbour.cell)
            self.nodes_by_cell[neighbour.cell].append(neighbour)
            self._ranges.append((neighbour, view.in_range))
            direct |= view.cell_bit
            second |= view.in_range
            observable |= view.observable
            if neighbour.cell == cell:
                known_to_peers |= neighbour.second
        for coordinates in self.cell_coordinates:
            if any(node.is_strong for node in self.nodes_by_cell[coordinates[2]]):
                self.strong_coordinates.append(coordinates)
        # A beacon may be wrong or forged: cells outside the grid are removed.
        others = layout.grid_mask(grid, cell)
        self.direct: CellBitmap = direct & others
        """Populated cells in range of this node."""
        self.second: CellBitmap = second & others
        """Populated cells in range of this node or of a neighbour."""
        self.known: CellBitmap = (second | known_to_peers) & others
        """Populated cells within two hops of any node of the own cell."""
        self.empty: CellBitmap = observable & others & ~self.known
        """Cells that would certainly be known if they were populated."""
        self._edges: tuple[Offset, ...] | None = None
        self._populated_cells: tuple[CellId, ...] | None = None

    def _add_cell(self, cell: CellId) -> None:
        self.nodes_by_cell[cell] = []
        if cell != self.cell:
            row, column = divmod(cell, self._grid.columns)
            self.cell_coordinates.append((column, row, cell))

    @property
    def edges(self) -> tuple[Offset, ...]:
        """The edges of the planar cell graph at the own cell (D5)."""
        if self._edges is None:
            ends = self.known & self._layout.maybe_in_range
            self._edges = self._layout.gabriel_edges(ends, self.known)
        return self._edges

    @property
    def populated_cells(self) -> tuple[CellId, ...]:
        """The other cells that are known to be populated, row by row."""
        if self._populated_cells is None:
            self._populated_cells = tuple(self.cells_in(self.known))
        return self._populated_cells

    def is_empty(self, offset: Offset) -> bool:
        """Whether the cell at an offset is known to be empty."""
        return bool(self._layout.bit(offset) & self.empty)

    def cells_in(self, bitmap: CellBitmap) -> list[CellId]:
        """The cell ids of a cell set."""
        cells = [
            self._grid.cell_at_offset(self.cell, offset)
            for offset in self._layout.offsets_in(bitmap)
        ]
        return [cell for cell in cells if cell is not None]

    def candidates_for(self, cell: CellId) -> list[Neighbour]:
        """Candidates for the next hop to a cell.

        Neighbours in that cell; else neighbours in range of it; else cell peers that have such a
        neighbour.
        """
        if in_cell := self.nodes_by_cell.get(cell):
            return in_cell
        bit = self._layout.bit(self._grid.offset(self.cell, cell))
        if in_range := [neighbour for neighbour, in_range_of in self._ranges if in_range_of & bit]:
            return in_range
        return [other for other in self.nodes_by_cell.get(self.cell, ()) if other.second & bit]


class Neighbours:
    """The neighbour table of one node."""

    def __init__(self, grid: Grid, config: CellRoutingConfig) -> None:
        self._grid = grid
        self._config = config
        self.layout = CellBitmapLayout(grid)
        self._table: dict[NodeId, Neighbour] = {}
        self._neighbourhood: CellNeighbourhood | None = None

    def get(self, node_id: NodeId) -> Neighbour | None:
        return self._table.get(node_id)

    def __len__(self) -> int:
        return len(self._table)

    def all(self) -> list[Neighbour]:
        """All neighbours, in the order of their first beacon."""
        return list(self._table.values())

    def process_beacon(self, sender: NodeId, beacon: CellBeacon, now_us: int) -> bool | None:
        """Processes a beacon; returns whether it changed the table, None if it is invalid."""
        neighbour = self._table.get(sender)
        if (
            neighbour is not None
            and beacon.cell == neighbour.cell
            and beacon.serving == neighbour.serving
            and beacon.populated_cells == neighbour.around_encoded
        ):  # unchanged, as nearly all beacons
            if self._config.beacon_gap_us_max is not None:
                self._rate_link(neighbour, now_us)
            neighbour.last_seen_us = now_us
            if neighbour.failures:
                self._reset_failures(neighbour, now_us)
            return False
        return self._update(sender, neighbour, beacon, now_us) or None

    def _update(
        self, sender: NodeId, neighbour: Neighbour | None, beacon: CellBeacon, now_us: int
    ) -> bool:
        """Updates the table from a changed beacon; returns False if the beacon is invalid."""
        if beacon.cell not in self._grid:
            return False
        bitmaps = self.layout.decode(beacon.populated_cells) if beacon.serving else (0, 0)
        if bitmaps is None:
            return False
        if neighbour is None:
            if len(self._table) >= self._config.neighbours_max:
                return False
            neighbour = self._table[sender] = self._new_neighbour(sender)
        elif self._config.beacon_gap_us_max is not None:
            self._rate_link(neighbour, now_us)
        neighbour.last_seen_us = now_us
        self._reset_failures(neighbour, now_us)
        neighbour.cell, neighbour.serving = beacon.cell, beacon.serving
        neighbour.direct, neighbour.second = bitmaps
        neighbour.around_encoded = beacon.populated_cells
        neighbour.view = None
        self._neighbourhood = None
        return True

    def _new_neighbour(self, node_id: NodeId) -> Neighbour:
        neighbour = Neighbour(node_id)
        limit_us = self._config.beacon_gap_us_max
        if limit_us is not None:
            neighbour.gap_us = limit_us * _FIRST_GAP_PERCENT // 100
            neighbour.is_strong = False
        return neighbour

    def _rate_link(self, neighbour: Neighbour, now_us: int) -> None:
        """Updates the mean time between beacons, and whether the link is strong."""
        limit_us = self._config.beacon_gap_us_max
        assert limit_us is not None
        if not neighbour.is_strong:
            limit_us = limit_us * _STRONG_GAP_PERCENT // 100
        deviation_us = now_us - neighbour.last_seen_us - neighbour.gap_us
        neighbour.gap_us += deviation_us // _GAP_WEIGHT
        is_strong = neighbour.gap_us <= limit_us
        if is_strong != neighbour.is_strong:
            neighbour.is_strong = is_strong
            self._neighbourhood = None

    def mark_out_of_range(self, neighbour: Neighbour, cell: CellId) -> None:
        """Removes a cell from the cells in a neighbour's range.

        The neighbour forwarded a message that it would have sent to this cell if any node there
        were in its range. Otherwise, after a cell became empty, two nodes could each forward to
        the other.
        """
        bit = self.layout.bit(self._grid.offset(neighbour.cell, cell))
        if neighbour.direct & bit:
            neighbour.direct &= ~bit
            neighbour.around_encoded = neighbour.view = None
            self._neighbourhood = None

    def _reset_failures(self, neighbour: Neighbour, now_us: int) -> None:
        """Resets the failure count, unless the last failure is recent.

        A beacon alone is not enough: beacons reach further than other messages.
        """
        if now_us - neighbour.last_failure_us >= _FAILURE_PENALTY_US:
            neighbour.failures = 0

    def record_failure(self, node_id: NodeId, now_us: int) -> None:
        """Counts a message that a neighbour did not acknowledge; removes it after too many."""
        neighbour = self._table.get(node_id)
        if neighbour is not None:
            neighbour.failures += 1
            neighbour.last_failure_us = now_us
            if neighbour.failures >= _FAILURES_MAX:
                self.remove(node_id)

    def remove(self, node_id: NodeId) -> None:
        """Removes a neighbour."""
        if self._table.pop(node_id, None) is not None:
            self._neighbourhood = None

    def expire(self, now_us: int) -> None:
        """Removes neighbours without a recent beacon."""
        limit_us = now_us - _NEIGHBOUR_TIMEOUT_US
        for node_id in [n.node_id for n in self._table.values() if n.last_seen_us < limit_us]:
            self.remove(node_id)

    def neighbourhood(self, cell: CellId) -> CellNeighbourhood:
        """The neighbourhood of a cell, assuming that this node is in it."""
        if self._neighbourhood is None or self._neighbourhood.cell != cell:
            self._neighbourhood = CellNeighbourhood(self._grid, self.layout, cell, self._table)
        return self._neighbourhood

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._table) <= self._config.neighbours_max
        for node_id, neighbour in self._table.items():
            assert node_id == neighbour.node_id
            assert neighbour.cell in self._grid
            assert neighbour.failures < _FAILURES_MAX


class RadioReach:
    """The reach of one node's radio. Nodes of adjacent cells must be in range of each other (D2);
    a node finds that they are not if its neighbours receive beacons from an adjacent cell, and it
    does not."""

    def __init__(self, grid: Grid, neighbours: Neighbours) -> None:
        self._grid = grid
        self._neighbours = neighbours
        self._cell: CellId | None = None
        self._unreachable_since_us: dict[CellId, int] = {}

    def update(self, cell: CellId, now_us: int) -> None:
        """Compares the adjacent cells in range of this node with those of its neighbours."""
        around = self._neighbours.neighbourhood(cell)
        unreachable = around.second & self._neighbours.layout.always_in_range & ~around.direct
        if cell != self._cell:
            self._cell = cell
            self._unreachable_since_us.clear()
        if unreachable or self._unreachable_since_us:
            known = self._unreachable_since_us
            cells = around.cells_in(unreachable)
            self._unreachable_since_us = {each: known.get(each, now_us) for each in cells}

    def unreachable_cells(self, now_us: int) -> list[CellId]:
        """The adjacent cells that have nodes, none of them in range of this node (D2)."""
        since_us = self._unreachable_since_us.items()
        return sorted(cell for cell, at_us in since_us if now_us - at_us >= _UNREACHABLE_US)

    def reach_m(self, cell: CellId) -> float | None:
        """The distance to the farthest cell in range, centre to centre; None if no node is in
        range."""
        cells = self._neighbours.neighbourhood(cell).nodes_by_cell
        return max((self._grid.distance_m(cell, other) for other in cells), default=None)
