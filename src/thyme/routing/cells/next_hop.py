"""Next hop: decides where a message goes next, from the neighbourhood of a cell.

Entry point: `NextHopSelector.decide`. Greedy mode comes first: to the closest cell in range if it
is closer than this one, over a strong link if one leads closer; else towards a closer cell that a
neighbour knows. If there is none, perimeter mode follows the right-hand rule (`faces`) over the
planar cell graph, until a cell closer than the entry cell is reached or known. The graph is a
Gabriel graph, so one face suffices: either a closer cell is on it, or the message returns to the
entry cell, which then is the closest of all, the proxy. If so configured, the targets of one
message share next hops (`NextHopSelector.share_hops`).
Clauses: D5, D6, D9, D28.
"""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CELLS_MAX, CellId, CellTarget, PerimeterState
from thyme.routing.cells.faces import next_edge
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.neighbours import CellNeighbourhood, Neighbour
from thyme.routing.cells.proxies import has_no_closer_cell


class Deliver(msgspec.Struct, frozen=True):
    """Deliver the message here: in its cell, or in the proxy of its empty cell."""


class Forward(msgspec.Struct, frozen=True):
    """Forward the message to one of the candidates, with an updated target."""

    candidates: list[Neighbour]
    target: CellTarget


class NoRoute(msgspec.Struct, frozen=True):
    """Drop the message: there is no next hop."""

    cause: str


HopDecision = Deliver | Forward | NoRoute
Hops = dict[NodeId, list[CellTarget]]
"""The next hops of a message, each with the targets that it is to reach."""
_HOP_PERCENT = 80
"""How far a message advances with each further hop by estimate, in percent of the range: links at
its edge are weak."""


class NextHopSelector:
    """Next-hop decisions on one grid."""

    def __init__(self, grid: Grid, *, always_perimeter: bool, rates_links: bool = False) -> None:
        """With `rates_links`, weak links are used only where no strong one leads closer."""
        self._grid = grid
        self._rates_links = rates_links
        self._always_perimeter = always_perimeter

    def decide_from_outside(
        self, neighbourhood: CellNeighbourhood, target: CellTarget, failed: Neighbour | None = None
    ) -> HopDecision:
        """The first hop of a message from a node that serves no cell (D20)."""
        distance_key, cell = self._grid.distance_key, target.cell
        for other in sorted(
            neighbourhood.nodes_by_cell, key=lambda other: distance_key(other, cell)
        ):
            if nodes := usable_neighbours(neighbourhood.nodes_by_cell[other], failed):
                return Forward(nodes, without_perimeter_state(target))
        return NoRoute("no neighbour")

    def decide(
        self, neighbourhood: CellNeighbourhood, target: CellTarget, failed: Neighbour | None = None
    ) -> HopDecision:
        """The next hop of a message, excluding the neighbour that did not acknowledge it."""
        if neighbourhood.cell == target.cell:
            return Deliver()
        distance_key, cell = self._grid.distance_key, target.cell
        limit = distance_key(neighbourhood.cell, cell)
        perimeter = target.perimeter
        if perimeter is not None:
            entry_key = distance_key(perimeter.entry_cell, cell)
            if limit < entry_key:
                perimeter = None
            else:
                limit = entry_key
        strong = self.decide_by_strong_links(neighbourhood, target, limit)
        if strong is not None:
            return strong
        best = self._closest_in_range(neighbourhood.cell_coordinates, cell, limit)
        if best is not None:
            if nodes := usable_neighbours(neighbourhood.nodes_by_cell[best], failed):
                return Forward(nodes, without_perimeter_state(target))
            return self._greedy(
                neighbourhood, target, list(neighbourhood.nodes_by_cell), limit, failed
            )
        two_hop = neighbourhood.known & ~neighbourhood.direct
        if two_hop and any(
            distance_key(other, cell) < limit for other in neighbourhood.cells_in(two_hop)
        ):
            return self._greedy(
                neighbourhood, target, neighbourhood.cells_in(two_hop), limit, failed
            )
        return self._perimeter(neighbourhood, target, perimeter, failed)

    def decide_by_strong_links(
        self,
        neighbourhood: CellNeighbourhood,
        target: CellTarget,
        limit: int,
    ) -> Forward | None:
        """The next hop over a strong link to the closest cell, if all links are not taken for
        strong and one of the strong ones leads closer (D28)."""
        if not self._rates_links:
            return None
        best = self._closest_in_range(neighbourhood.strong_coordinates, target.cell, limit)
        if best is None:
            return None
        strong = [node for node in neighbourhood.nodes_by_cell[best] if node.is_strong]
        nodes = [node for node in strong if not node.failures]
        return Forward(nodes, without_perimeter_state(target)) if nodes else None

    def share_hops(
        self, neighbourhood: CellNeighbourhood, forwards: list[Forward], rng: Random
    ) -> Hops:
        """Groups targets by as few next hops as possible. A target in range is sent to directly;
        the others go over a neighbour that is sent the message anyway, else over the one that is
        on the way to most of them (D9)."""
        hops: Hops = {}
        distant: dict[CellTarget, list[NodeId]] = {}
        for forward in sorted(forwards, key=lambda forward: len(forward.candidates)):
            if relays := self._relays(neighbourhood, forward):
                distant[forward.target] = relays
                continue
            node_ids = [node.node_id for node in forward.candidates]
            chosen = next((node for node in node_ids if node in hops), None)
            hops.setdefault(chosen or rng.choice(node_ids), []).append(forward.target)
        for target, relays in list(distant.items()):
            if chosen := next((node for node in relays if node in hops), None):
                hops[chosen].append(target)
                del distant[target]
        while distant:
            counts = Counter(node for relays in distant.values() for node in relays)
            most = max(counts.values())
            chosen = rng.choice([node for node, count in counts.items() if count == most])
            covered = [target for target, relays in distant.items() if chosen in relays]
            hops[chosen] = covered
            for target in covered:
                del distant[target]
        return hops

    def _relays(self, neighbourhood: CellNeighbourhood, forward: Forward) -> list[NodeId]:
        """The neighbours over which a distant target needs no more hops, by estimate, than over the
        chosen ones; closest first. None for a target in range or behind a void."""
        target, chosen = forward.target, forward.candidates[0]
        if target.perimeter is not None or chosen.cell in (target.cell, neighbourhood.cell):
            return []
        limit = self._hops_left(chosen.cell, target.cell)
        here = self._grid.distance_key(neighbourhood.cell, target.cell)
        ranked = []
        for _, _, cell in neighbourhood.strong_coordinates:
            key = self._grid.distance_key(cell, target.cell)
            if key < here and self._hops_left(cell, target.cell) <= limit:
                ranked.append((key, cell))
        strong = [
            node.node_id
            for _, cell in sorted(ranked)
            for node in neighbourhood.nodes_by_cell[cell]
            if node.is_strong and not node.failures
        ]
        return strong or [node.node_id for node in forward.candidates]

    def _hops_left(self, cell: CellId, target: CellId) -> int:
        """How many hops are left to a cell, by estimate."""
        hop_m = self._grid.range_m * _HOP_PERCENT / 100
        return math.ceil(self._grid.distance_m(cell, target) / hop_m)

    def _closest_in_range(
        self, coordinates: list[tuple[int, int, CellId]], cell: CellId, limit: int
    ) -> CellId | None:
        """The closest of some cells, if it is closer than the limit.

        Most decisions end here, so `Grid.distance_key` is written out.
        """
        target_row, target_column = divmod(cell, self._grid.columns)
        best = None
        for column, row, other in coordinates:
            right, down = target_column - column, target_row - row
            key = (right * right + down * down) * CELLS_MAX + other
            if key < limit:
                best, limit = other, key
        return best

    def _greedy(
        self,
        neighbourhood: CellNeighbourhood,
        target: CellTarget,
        cells: list[CellId],
        limit: int,
        failed: Neighbour | None,
    ) -> HopDecision:
        """Forwards towards the closest cell that has a usable candidate."""
        ranked = sorted((self._grid.distance_key(cell, target.cell), cell) for cell in cells)
        for key, cell in ranked:
            if key >= limit:
                break
            if nodes := usable_neighbours(neighbourhood.candidates_for(cell), failed):
                return Forward(nodes, without_perimeter_state(target))
        return NoRoute("nobody closer answers")

    def _perimeter(
        self,
        neighbourhood: CellNeighbourhood,
        target: CellTarget,
        perimeter: PerimeterState | None,
        failed: Neighbour | None,
    ) -> HopDecision:
        here = neighbourhood.cell
        if perimeter is None or perimeter.next_cell == here:
            if perimeter is not None and here != perimeter.entry_cell and not neighbourhood.edges:
                return NoRoute("the way back is gone")  # and this cell is not the proxy
            turned = self._next_perimeter_edge(neighbourhood, target.cell, perimeter)
            if turned is None:
                return Deliver()
            perimeter = turned
        nodes = usable_neighbours(neighbourhood.candidates_for(perimeter.next_cell), failed)
        if not nodes:
            return NoRoute("nobody on the way around answers")
        return Forward(nodes, CellTarget(target.cell, target.node, perimeter))

    def _next_perimeter_edge(
        self, neighbourhood: CellNeighbourhood, cell: CellId, perimeter: PerimeterState | None
    ) -> PerimeterState | None:
        """The next perimeter edge; None if the perimeter is complete or not needed."""
        here, grid = neighbourhood.cell, self._grid
        edges = neighbourhood.edges
        if not edges:
            return None
        if perimeter is not None:
            previous = grid.offset(here, perimeter.previous_cell)
            if previous != (0, 0):
                if previous not in edges and neighbourhood.candidates_for(perimeter.previous_cell):
                    # This cell knows a cell between the two ends, the previous cell does not.
                    # The message goes back, so that both ends agree on the edge.
                    return PerimeterState(
                        perimeter.entry_cell, perimeter.first_cell, here, perimeter.previous_cell
                    )
                next_cell = grid.cell_at_offset(here, next_edge(edges, previous))
                assert next_cell is not None
                if here != perimeter.entry_cell or grid.offset(here, perimeter.first_cell) in edges:
                    complete = here == perimeter.entry_cell and next_cell == perimeter.first_cell
                    return (
                        None
                        if complete
                        else PerimeterState(
                            perimeter.entry_cell, perimeter.first_cell, here, next_cell
                        )
                    )
            # The first edge no longer exists: the perimeter starts again.
        if not self._always_perimeter and has_no_closer_cell(grid, neighbourhood, cell):
            return None
        first = grid.cell_at_offset(here, next_edge(edges, grid.offset(here, cell)))
        assert first is not None
        return PerimeterState(here, first, here, first)


def without_perimeter_state(target: CellTarget) -> CellTarget:
    """The target without perimeter state."""
    return target if target.perimeter is None else CellTarget(target.cell, target.node)


def usable_neighbours(nodes: list[Neighbour], failed: Neighbour | None) -> list[Neighbour]:
    """The neighbours to try, those without recent failures.

    If all have failures, all are tried, except with a message that a neighbour just failed to
    acknowledge: it may have been the same neighbour (D10).
    """
    without_failures = [node for node in nodes if not node.failures]
    return without_failures if without_failures or failed is not None else nodes
