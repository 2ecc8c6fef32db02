"""Steps: where a message goes next, decided from what is known around a cell.

Greedy first: to the closest cell in reach, if it is closer than this one; else towards a closer one
that neighbours know of. If there is none, around the void: by the right-hand rule over the plane
cell graph, until a cell closer than the one where that began is reached or known. The graph is of
Gabriel's kind, so one face is always enough: either it has a closer cell on it, or the message
comes back to where it went around first, and there is the closest of all: the proxy.
Clauses: D5, D6.
"""

from __future__ import annotations

import math

import msgspec

from thyme.protocol.cells import CELLS_MAX, CellId, CellTarget, Detour
from thyme.routing.cells.faces import next_edge
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.neighbours import Around, Neighbour


class Arrived(msgspec.Struct, frozen=True):
    """It is here: in its cell, or in the proxy of an empty one."""


class Onward(msgspec.Struct, frozen=True):
    """To one of these neighbours, with this target."""

    nodes: list[Neighbour]
    target: CellTarget


class Stuck(msgspec.Struct, frozen=True):
    """There is no way on."""

    cause: str


Step = Arrived | Onward | Stuck


class Steps:
    """Decides for the cells of one grid."""

    def __init__(self, grid: Grid, *, loop_always: bool) -> None:
        self._grid = grid
        self._loop_always = loop_always

    def from_outside(
        self, around: Around, target: CellTarget, failed: Neighbour | None = None
    ) -> Step:
        """The first step of a message from a node that serves no cell (D20)."""
        rank, cell = self._grid.rank, target.cell
        for reached in sorted(around.nodes, key=lambda reached: rank(reached, cell)):
            if nodes := usable(around.nodes[reached], failed):
                return Onward(nodes, plain(target))
        return Stuck("no neighbour")

    def next(self, around: Around, target: CellTarget, failed: Neighbour | None = None) -> Step:
        """The next step of a message; not to the neighbour who failed to take it."""
        if around.cell == target.cell:
            return Arrived()
        rank, cell = self._grid.rank, target.cell
        limit = rank(around.cell, cell)
        detour = target.detour
        if detour is not None:
            entry = rank(detour.entry, cell)
            if limit < entry:
                detour = None
            else:
                limit = entry
        best = self._closest(around, cell, limit)
        if best is not None:
            if nodes := usable(around.nodes[best], failed):
                return Onward(nodes, plain(target))
            return self._greedy(around, target, list(around.nodes), limit, failed)
        further = around.known & ~around.direct
        if further and any(rank(other, cell) < limit for other in around.cells(further)):
            return self._greedy(around, target, around.cells(further), limit, failed)
        return self._perimeter(around, target, detour, failed)

    def _closest(self, around: Around, cell: CellId, limit: int) -> CellId | None:
        """The cell in reach that is closest, if it is closer than the limit. Most steps are this
        one, so ranks are made in place."""
        target_row, target_column = divmod(cell, self._grid.columns)
        best = None
        for column, row, other in around.spots:
            right, down = target_column - column, target_row - row
            rank = (right * right + down * down) * CELLS_MAX + other
            if rank < limit:
                best, limit = other, rank
        return best

    def _greedy(
        self,
        around: Around,
        target: CellTarget,
        cells: list[CellId],
        limit: int,
        failed: Neighbour | None,
    ) -> Step:
        """To the closest of some cells towards which somebody answers."""
        ranked = sorted((self._grid.rank(cell, target.cell), cell) for cell in cells)
        for rank, cell in ranked:
            if rank >= limit:
                break
            if nodes := usable(around.towards(cell), failed):
                return Onward(nodes, plain(target))
        return Stuck("nobody closer answers")

    def _perimeter(
        self, around: Around, target: CellTarget, detour: Detour | None, failed: Neighbour | None
    ) -> Step:
        here = around.cell
        if detour is None or detour.ahead == here:
            if detour is not None and here != detour.entry and not around.edges:
                return Stuck("the way back is gone")  # and this is nobody's proxy
            onward = self._turn(around, target.cell, detour)
            if onward is None:
                return Arrived()
            detour = onward
        nodes = usable(around.towards(detour.ahead), failed)
        if not nodes:
            return Stuck("nobody on the way around answers")
        return Onward(nodes, CellTarget(target.cell, target.node, detour))

    def _turn(self, around: Around, cell: CellId, detour: Detour | None) -> Detour | None:
        """The next edge around the void; nothing if the loop is made, or need not be made."""
        here, grid = around.cell, self._grid
        edges = around.edges
        if not edges:
            return None
        if detour is not None:
            behind = grid.offset(here, detour.behind)
            if behind != (0, 0):
                if behind not in edges and around.towards(detour.behind):
                    # There, no cell is known to lie between; here, one is. The message goes back,
                    # so that an edge is one for both its ends or for none.
                    return Detour(detour.entry, detour.first, here, detour.behind)
                ahead = grid.beside(here, next_edge(edges, behind))
                assert ahead is not None
                if here != detour.entry or grid.offset(here, detour.first) in edges:
                    made = here == detour.entry and ahead == detour.first
                    return None if made else Detour(detour.entry, detour.first, here, ahead)
            # The edge by which it left is gone meanwhile: it starts again.
        if not self._loop_always and self.nobody_closer(around, cell):
            return None
        first = grid.beside(here, next_edge(edges, grid.offset(here, cell)))
        assert first is not None
        return Detour(here, first, here, first)

    def nobody_closer(self, around: Around, cell: CellId) -> bool:
        """Whether every cell that could be closer is known to be empty."""
        grid, here = self._grid, around.cell
        right, down = grid.offset(here, cell)
        reach = math.isqrt(right * right + down * down)
        limit = grid.rank(here, cell)
        span = range(-reach, reach + 1)
        for offset in ((right + x, down + y) for x in span for y in span):
            other = grid.beside(here, offset)
            if other is None or grid.rank(other, cell) >= limit:
                continue
            if not around.is_empty(offset):
                return False
        return True


def plain(target: CellTarget) -> CellTarget:
    """A target on the straight way."""
    return target if target.detour is None else CellTarget(target.cell, target.node)


def usable(nodes: list[Neighbour], failed: Neighbour | None) -> list[Neighbour]:
    """Those of some neighbours to try. Who failed lately is tried if there is nobody else, but not
    with a message that somebody failed to take just now: it may have been the same (D10)."""
    sound = [node for node in nodes if not node.failures]
    return sound if sound or failed is not None else nodes
