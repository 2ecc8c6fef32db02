"""Neighbours: who is in reach and in which cell, and what that says of the cells around.

Each beacon tells which cells its sender hears (`direct`) and which those in its reach hear
(`second`). So a node knows the populated cells within two hops of its own cell, and its colleagues
there know the same. Two hops are enough to go around voids where cells that lie between two others
hear only one of them; what only one end of an edge knows, `steps` makes good.
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
    """A node in reach, as its last beacon described it."""

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
        """When it last did not acknowledge a message."""
        self.said: bytes | None = None
        """What it said of the cells around, as it came; None if that is known to be old."""
        self.view: View | None = None
        """What that means for the cell from which it was last looked at."""


class View:
    """What a neighbour tells of the cells around the one that this node is in."""

    __slots__ = ("bit", "cell", "checked", "hears")

    def __init__(self, grid: Grid, window: Window, cell: CellId, neighbour: Neighbour) -> None:
        offset = grid.offset(cell, neighbour.cell)
        self.cell = cell
        self.bit: Cells = window.middle if neighbour.cell == cell else window.bit(offset)
        """Its own cell; none, if it is too far away."""
        self.hears: Cells = window.moved(neighbour.direct, offset) | self.bit
        self.checked: Cells = window.moved(window.sure, offset)
        """The cells that it would hear, if they were populated."""


class Around:
    """What is known around one cell; made anew when something changes."""

    def __init__(
        self, grid: Grid, window: Window, cell: CellId, neighbours: dict[NodeId, Neighbour]
    ) -> None:
        self.cell = cell
        self._grid = grid
        self._window = window
        self.nodes: dict[CellId, list[Neighbour]] = {}
        """Serving neighbours by cell, the own one included."""
        self.spots: list[tuple[int, int, CellId]] = []
        """Columns and rows of the other cells among them."""
        self._seen: list[tuple[Neighbour, Cells]] = []
        """Each with the cells that it hears, as seen from here."""
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
        # A beacon may be wrong, or a lie: beyond the grid there is nothing.
        not_here = window.inside(grid, cell)
        self.direct: Cells = direct & not_here
        """Cells that this node hears."""
        self.second: Cells = second & not_here
        """Cells that it or a neighbour hears."""
        self.known: Cells = (second | agreed) & not_here
        """Cells within two hops of any node here."""
        self.empty: Cells = checked & not_here & ~self.known
        """Cells that would surely be known, if they were populated."""
        self._edges: tuple[Offset, ...] | None = None
        self._populated: tuple[CellId, ...] | None = None

    def _meet(self, cell: CellId) -> None:
        self.nodes[cell] = []
        if cell != self.cell:
            row, column = divmod(cell, self._grid.columns)
            self.spots.append((column, row, cell))

    @property
    def edges(self) -> tuple[Offset, ...]:
        """The edges of the plane cell graph here (D5)."""
        if self._edges is None:
            ends = self.known & self._window.linkable
            self._edges = self._window.edges(ends, self.known)
        return self._edges

    @property
    def populated(self) -> tuple[CellId, ...]:
        """The other cells that are known to be populated."""
        if self._populated is None:
            self._populated = tuple(self.cells(self.known))
        return self._populated

    def is_empty(self, offset: Offset) -> bool:
        """Whether a cell is known to be empty."""
        return bool(self._window.bit(offset) & self.empty)

    def cells(self, known: Cells) -> list[CellId]:
        """The numbers of the cells of a set."""
        found = [self._grid.beside(self.cell, offset) for offset in self._window.each(known)]
        return [cell for cell in found if cell is not None]

    def towards(self, cell: CellId) -> list[Neighbour]:
        """Neighbours in a cell; else those who hear it; else colleagues who know who does."""
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
        """Everybody in reach, in the order in which they were met."""
        return list(self._table.values())

    def hear(self, sender: NodeId, beacon: CellBeacon, now_us: int) -> bool | None:
        """Takes a beacon in; returns whether it said something new, None if it is of no use."""
        neighbour = self._table.get(sender)
        if (
            neighbour is not None
            and beacon.cell == neighbour.cell
            and beacon.serving == neighbour.serving
            and beacon.around == neighbour.said
        ):  # as before: nearly always
            neighbour.heard_us = now_us
            if neighbour.failures:
                self._forgive(neighbour, now_us)
            return False
        return self._learn(sender, neighbour, beacon, now_us) or None

    def _learn(
        self, sender: NodeId, neighbour: Neighbour | None, beacon: CellBeacon, now_us: int
    ) -> bool:
        """Takes in a beacon that says something new."""
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
        """A neighbour passed on a message that it would have brought to its cell, if it heard
        somebody there: what its last beacon said of that is no longer true. Else, when a cell has
        just become empty, each of two could take the other for the one who still hears it."""
        bit = self.window.bit(self._grid.offset(neighbour.cell, cell))
        if neighbour.direct & bit:
            neighbour.direct &= ~bit
            neighbour.said = neighbour.view = None
            self._around = None

    def _forgive(self, neighbour: Neighbour, now_us: int) -> None:
        """Whoever can be heard need not hear: beacons carry further than other messages."""
        if now_us - neighbour.failed_us >= self._config.grudge_us:
            neighbour.failures = 0

    def fail(self, node_id: NodeId, now_us: int) -> None:
        """A neighbour did not acknowledge a message."""
        neighbour = self._table.get(node_id)
        if neighbour is not None:
            neighbour.failures += 1
            neighbour.failed_us = now_us
            if neighbour.failures >= self._config.failures_max:
                self.forget(node_id)

    def forget(self, node_id: NodeId) -> None:
        """A neighbour is gone."""
        if self._table.pop(node_id, None) is not None:
            self._around = None

    def expire(self, now_us: int) -> None:
        """Forgets those who were not heard for too long."""
        limit_us = now_us - self._config.neighbour_us
        for node_id in [n.node_id for n in self._table.values() if n.heard_us < limit_us]:
            self.forget(node_id)

    def around(self, cell: CellId) -> Around:
        """What is known around a cell, this node being there."""
        if self._around is None or self._around.cell != cell:
            self._around = Around(self._grid, self.window, cell, self._table)
        return self._around

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._table) <= self._config.neighbours_max
        for node_id, neighbour in self._table.items():
            assert node_id == neighbour.node_id
            assert neighbour.cell in self._grid
            assert neighbour.failures < self._config.failures_max
