"""Next hop: decides where a message goes next, from the neighbourhood of a cell.

Entry point: `NextHopSelector.decide`. Greedy mode comes first: to the closest cell in range if it
is closer than this one, else towards a closer cell that a neighbour knows. If there is none,
perimeter mode follows the right-hand rule (`faces`) over the planar cell graph, until a cell closer
than the entry cell is reached or known. The graph is a Gabriel graph, so one face suffices: either
a closer cell is on it, or the message returns to the entry cell, which then is the closest of all,
the proxy.
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
    """Deliver the message here: in its cell, or in the proxy of its empty cell."""


class Onward(msgspec.Struct, frozen=True):
    """Forward the message to one of the candidates, with an updated target."""

    nodes: list[Neighbour]
    target: CellTarget


class Stuck(msgspec.Struct, frozen=True):
    """Drop the message: there is no next hop."""

    cause: str


Step = Arrived | Onward | Stuck


class Steps:
    """Next-hop decisions on one grid."""

    def __init__(self, grid: Grid, *, loop_always: bool) -> None:
        self._grid = grid
        self._loop_always = loop_always

    def from_outside(
        self, around: Around, target: CellTarget, failed: Neighbour | None = None
    ) -> Step:
        """The first hop of a message from a node that serves no cell (D20)."""
        rank, cell = self._grid.rank, target.cell
        for reached in sorted(around.nodes, key=lambda reached: rank(reached, cell)):
            if nodes := usable(around.nodes[reached], failed):
                return Onward(nodes, plain(target))
        return Stuck("no neighbour")

    def next(self, around: Around, target: CellTarget, failed: Neighbour | None = None) -> Step:
        """The next hop of a message, excluding the neighbour that did not acknowledge it."""
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
        """The closest cell in range, if it is closer than the limit.

        Most decisions end here, so `Grid.distance_key` is written out.
        """
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
        """Forwards towards the closest cell that has a usable candidate."""
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
                return Stuck("the way back is gone")  # and this cell is not the proxy
            turned = self._turn(around, target.cell, detour)
            if turned is None:
                return Arrived()
            detour = turned
        nodes = usable(around.towards(detour.ahead), failed)
        if not nodes:
            return Stuck("nobody on the way around answers")
        return Onward(nodes, CellTarget(target.cell, target.node, detour))

    def _turn(self, around: Around, cell: CellId, detour: Detour | None) -> Detour | None:
        """The next perimeter edge; None if the perimeter is complete or not needed."""
        here, grid = around.cell, self._grid
        edges = around.edges
        if not edges:
            return None
        if detour is not None:
            behind = grid.offset(here, detour.behind)
            if behind != (0, 0):
                if behind not in edges and around.towards(detour.behind):
                    # This cell knows a cell between the two ends, the previous cell does not.
                    # The message goes back, so that both ends agree on the edge.
                    return Detour(detour.entry, detour.first, here, detour.behind)
                ahead = grid.beside(here, next_edge(edges, behind))
                assert ahead is not None
                if here != detour.entry or grid.offset(here, detour.first) in edges:
                    complete = here == detour.entry and ahead == detour.first
                    return None if complete else Detour(detour.entry, detour.first, here, ahead)
            # The first edge no longer exists: the perimeter starts again.
        if not self._loop_always and self.nobody_closer(around, cell):
            return None
        first = grid.beside(here, next_edge(edges, grid.offset(here, cell)))
        assert first is not None
        return Detour(here, first, here, first)

    def nobody_closer(self, around: Around, cell: CellId) -> bool:
        """Whether every closer cell is known to be empty."""
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
    """The target without perimeter state."""
    return target if target.detour is None else CellTarget(target.cell, target.node)


def usable(nodes: list[Neighbour], failed: Neighbour | None) -> list[Neighbour]:
    """The neighbours to try, those without recent failures.

    If all have failures, all are tried, except with a message that a neighbour just failed to
    acknowledge: it may have been the same neighbour (D10).
    """
    without_failures = [node for node in nodes if not node.failures]
    return without_failures if without_failures or failed is not None else nodes
