"""Neighbour table: the nodes in range, their cells, and the populated cells around the own cell.

Entry points: `Neighbours` and `CellNeighbourhood`. Each beacon contains the cells in range of its
sender (`direct`) and the cells in range of the sender's neighbours (`second`). A node thus knows
the populated cells within two hops of its own cell, and its cell peers know the same ones. Two hops
suffice for perimeter routing where a cell between two others is in range of only one of them; if
only one end of an edge knows such a cell, `next_hop` corrects it.
Clauses: D4, D5.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.cell_messages import CellBeacon
from thyme.protocol.cells import CellId
from thyme.routing.cells.config import CellsConfig
from thyme.routing.cells.grid import Grid, Offset
from thyme.routing.cells.window import Cells, Window


class Neighbour:
    """A node in range, as described by its last beacon."""

    __slots__ = ("cell", "direct", "failed_us", "failures", "heard_us", "node_id", "said",
                 "second", "serving", "view")  # fmt: skip

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id
        self.cell = CellId(0)
        self.serving = False
        self.heard_us = 0
        self.direct: Cells = 0
        self.second: Cells = 0
        self.failures = 0
        self.failed_us = 0
        """When the neighbour last failed to acknowledge a message."""
        self.said: bytes | None = None
        """The encoded cell sets of its last beacon; None if they are known to be outdated."""
        self.view: View | None = None
        """Those cell sets relative to the own cell; None until computed."""


class View:
    """The cell sets of a neighbour, relative to the cell of this node."""

    __slots__ = ("bit", "cell", "checked", "hears")

    def __init__(self, grid: Grid, window: Window, cell: CellId, neighbour: Neighbour) -> None:
        offset = grid.offset(cell, neighbour.cell)
        self.cell = cell
        self.bit: Cells = window.middle if neighbour.cell == cell else window.bit(offset)
        """The neighbour's own cell; empty if that is too far away."""
        self.hears: Cells = window.moved(neighbour.direct, offset) | self.bit
        self.checked: Cells = window.moved(window.sure, offset)
        """The cells that the neighbour would certainly receive from if they were populated."""


class Around:
    """The populated and empty cells around one cell; rebuilt after each change."""

    def __init__(
        self, grid: Grid, window: Window, cell: CellId, neighbours: dict[NodeId, Neighbour]
    ) -> None:
        self.cell = cell
        self._grid = grid
        self._window = window
        self.nodes: dict[CellId, list[Neighbour]] = {}
        """Serving neighbours by cell, including the own cell."""
        self.spots: list[tuple[int, int, CellId]] = []
        """Column, row and number of each cell in `nodes_by_cell` except the own one."""
        self._seen: list[tuple[Neighbour, Cells]] = []
        """Each neighbour with the cells in its range."""
        direct: Cells = 0
        second: Cells = 0
        agreed: Cells = 0
        checked: Cells = window.sure
        for neighbour in neighbours.values():
            if not neighbour.serving:
                continue
            view = neighbour.view
            if view is None or view.cell != cell:
                view = neighbour.view = View(grid, window, cell, neighbour)
            if not view.bit:
                continue
            if neighbour.cell not in self.nodes:
                self._meet(neighbour.cell)
            self.nodes[neighbour.cell].append(neighbour)
            self._seen.append((neighbour, view.hears))
            direct |= view.bit
            second |= view.hears
            checked |= view.checked
            if neighbour.cell == cell:
                agreed |= neighbour.second
        # A beacon may be wrong or forged: cells outside the grid are removed.
        others = window.inside(grid, cell)
        self.direct: Cells = direct & others
        """Populated cells in range of this node."""
        self.second: Cells = second & others
        """Populated cells in range of this node or of a neighbour."""
        self.known: Cells = (second | agreed) & others
        """Populated cells within two hops of any node of the own cell."""
        self.empty: Cells = checked & others & ~self.known
        """Cells that would certainly be known if they were populated."""
        self._edges: tuple[Offset, ...] | None = None
        self._populated: tuple[CellId, ...] | None = None

    def _meet(self, cell: CellId) -> None:
        self.nodes[cell] = []
        if cell != self.cell:
            row, column = divmod(cell, self._grid.columns)
            self.spots.append((column, row, cell))

    @property
    def edges(self) -> tuple[Offset, ...]:
        """The edges of the planar cell graph at the own cell (D5)."""
        if self._edges is None:
            ends = self.known & self._window.linkable
            self._edges = self._window.edges(ends, self.known)
        return self._edges

    @property
    def populated(self) -> tuple[CellId, ...]:
        """The other cells that are known to be populated, row by row."""
        if self._populated is None:
            self._populated = tuple(self.cells(self.known))
        return self._populated

    def is_empty(self, offset: Offset) -> bool:
        """Whether the cell at an offset is known to be empty."""
        return bool(self._window.bit(offset) & self.empty)

    def cells(self, known: Cells) -> list[CellId]:
        """The cell ids of a cell set."""
        found = [self._grid.beside(self.cell, offset) for offset in self._window.each(known)]
        return [cell for cell in found if cell is not None]

    def towards(self, cell: CellId) -> list[Neighbour]:
        """Candidates for the next hop to a cell.

        Neighbours in that cell; else neighbours in range of it; else cell peers that have such a
        neighbour.
        """
        if here := self.nodes.get(cell):
            return here
        bit = self._window.bit(self._grid.offset(self.cell, cell))
        if hearing := [neighbour for neighbour, hears in self._seen if hears & bit]:
            return hearing
        return [other for other in self.nodes.get(self.cell, ()) if other.second & bit]


class Neighbours:
    """The neighbour table of one node."""

    def __init__(self, grid: Grid, config: CellsConfig) -> None:
        self._grid = grid
        self._config = config
        self.window = Window(grid)
        self._table: dict[NodeId, Neighbour] = {}
        self._around: Around | None = None

    def get(self, node_id: NodeId) -> Neighbour | None:
        return self._table.get(node_id)

    def __len__(self) -> int:
        return len(self._table)

    def all(self) -> list[Neighbour]:
        """All neighbours, in the order of their first beacon."""
        return list(self._table.values())

    def hear(self, sender: NodeId, beacon: CellBeacon, now_us: int) -> bool | None:
        """Processes a beacon; returns whether it changed the table, None if it is invalid."""
        neighbour = self._table.get(sender)
        if (
            neighbour is not None
            and beacon.cell == neighbour.cell
            and beacon.serving == neighbour.serving
            and beacon.around == neighbour.said
        ):  # unchanged, as nearly all beacons
            neighbour.heard_us = now_us
            if neighbour.failures:
                self._forgive(neighbour, now_us)
            return False
        return self._learn(sender, neighbour, beacon, now_us) or None

    def _learn(
        self, sender: NodeId, neighbour: Neighbour | None, beacon: CellBeacon, now_us: int
    ) -> bool:
        """Updates the table from a changed beacon; returns False if the beacon is invalid."""
        if beacon.cell not in self._grid:
            return False
        sets = self.window.unpacked(beacon.around) if beacon.serving else (0, 0)
        if sets is None:
            return False
        if neighbour is None:
            if len(self._table) >= self._config.neighbours_max:
                return False
            neighbour = self._table[sender] = Neighbour(sender)
        neighbour.heard_us = now_us
        self._forgive(neighbour, now_us)
        neighbour.cell, neighbour.serving = beacon.cell, beacon.serving
        neighbour.direct, neighbour.second = sets
        neighbour.said = beacon.around
        neighbour.view = None
        self._around = None
        return True

    def does_not_hear(self, neighbour: Neighbour, cell: CellId) -> None:
        """Removes a cell from the cells in a neighbour's range.

        The neighbour forwarded a message that it would have sent to this cell if any node there
        were in its range. Otherwise, after a cell became empty, two nodes could each forward to
        the other.
        """
        bit = self.window.bit(self._grid.offset(neighbour.cell, cell))
        if neighbour.direct & bit:
            neighbour.direct &= ~bit
            neighbour.said = neighbour.view = None
            self._around = None

    def _forgive(self, neighbour: Neighbour, now_us: int) -> None:
        """Resets the failure count, unless the last failure is recent.

        A beacon alone is not enough: beacons reach further than other messages.
        """
        if now_us - neighbour.failed_us >= self._config.grudge_us:
            neighbour.failures = 0

    def fail(self, node_id: NodeId, now_us: int) -> None:
        """Counts a message that a neighbour did not acknowledge; removes it after too many."""
        neighbour = self._table.get(node_id)
        if neighbour is not None:
            neighbour.failures += 1
            neighbour.failed_us = now_us
            if neighbour.failures >= self._config.failures_max:
                self.forget(node_id)

    def forget(self, node_id: NodeId) -> None:
        """Removes a neighbour."""
        if self._table.pop(node_id, None) is not None:
            self._around = None

    def expire(self, now_us: int) -> None:
        """Removes neighbours without a recent beacon."""
        limit_us = now_us - self._config.neighbour_us
        for node_id in [n.node_id for n in self._table.values() if n.heard_us < limit_us]:
            self.forget(node_id)

    def around(self, cell: CellId) -> Around:
        """The neighbourhood of a cell, assuming that this node is in it."""
        if self._around is None or self._around.cell != cell:
            self._around = Around(self._grid, self.window, cell, self._table)
        return self._around

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._table) <= self._config.neighbours_max
        for node_id, neighbour in self._table.items():
            assert node_id == neighbour.node_id
            assert neighbour.cell in self._grid
            assert neighbour.failures < self._config.failures_max
