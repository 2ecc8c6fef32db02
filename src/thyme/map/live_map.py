"""Live map: what one live node tells the map, and the page that shows it.

A node of Thyme-DCS knows the cells of its neighbours and draws them there; in other worlds, which
have no places, the neighbours are drawn on a circle around the node.
Entry point: `LiveMap`.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Iterator
from hashlib import blake2b

from thyme.live.node_factory import current_station, unwrap_node
from thyme.live.open_node import LiveNode
from thyme.map.hub import MapAbout, MapHub
from thyme.map.node_observer import NeighbourFacts, NodeObserver
from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.routing.cells import GeographicRouting, Grid
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.dcs.state.replica_store import ReplicaRole

REPLICAS_MAX = 1_000
"""Number of replicas that the map of a node shows."""
SIDE_M = 100.0
"""Side of the square that a world without places is drawn in."""


class LiveMap:
    """The map of one live node; must be made before the node starts."""

    def __init__(self, live_node: LiveNode, position: Position | None) -> None:
        self._live_node = live_node
        self._grid = _find_grid(live_node)
        area = live_node.world.area
        if self._grid is None or area is None:
            place, size = (SIDE_M / 2, SIDE_M / 2), (SIDE_M, SIDE_M)
        else:
            size = (area.width_m, area.height_m)
            place = position or (size[0] / 2, size[1] / 2)
        grid = self._grid
        self.hub = MapHub(
            MapAbout(
                title=live_node.world.name,
                range_m=0.0 if grid is None else grid.range_m,
                area=size,
                grid=None if grid is None else (grid.columns, grid.rows, grid.cell_m),
            )
        )
        own = live_node.profile.node_id
        role = "server" if live_node.world.server == own else ""
        self._observer = NodeObserver(self.hub, own, place, role)
        live_node.wrap_node = self._observer.wrap

    def sample(self, now_us: int) -> None:
        """Looks for changes of neighbours, replicas and cells, if anybody watches."""
        if self.hub.watched:
            self._sample(now_us)

    async def watch(self, now_us: Callable[[], int]) -> AsyncIterator[list[bytes]]:
        """Yields batches of lines for a page."""
        self._sample(now_us())
        async for lines in self.hub.watch(now_us()):
            yield lines

    def _sample(self, now_us: int) -> None:
        self._observer.sample(self._neighbours(), self._replicas(), now_us)

    def _neighbours(self) -> Iterator[NeighbourFacts]:
        live = self._live_node
        station = current_station(live.node)
        present = dict.fromkeys(live.link.neighbours)
        if station is not None:
            present[station] = None
        for node_id in present:
            role = "station" if node_id == station else ""
            if node_id == live.world.server:
                role = "server"
            yield NeighbourFacts(node_id, self._place_of(node_id), role)

    def _place_of(self, node_id: NodeId) -> Position:
        """Somewhere in the cell of a neighbour, always the same; else on the circle."""
        share, other = (
            int.from_bytes(blake2b(node_id, digest_size=2, salt=salt).digest(), "big") / 2**16
            for salt in (b"x", b"y")
        )
        inner = unwrap_node(self._live_node.node)
        routing = inner.routing if isinstance(inner, DcsNode) else None
        if self._grid is None or not isinstance(routing, GeographicRouting):
            angle, radius = share * math.tau, SIDE_M * (0.3 + 0.15 * other)
            return (
                round(SIDE_M / 2 + radius * math.cos(angle), 1),
                round(SIDE_M / 2 + radius * math.sin(angle), 1),
            )
        neighbour = routing.neighbours.get(node_id)
        cell = routing.cell if neighbour is None else neighbour.cell
        x, y = self._grid.centre_of(cell)
        spread = self._grid.cell_m * 0.6
        return round(x + (share - 0.5) * spread, 1), round(y + (other - 0.5) * spread, 1)

    def _replicas(self) -> dict[str, str]:
        inner = unwrap_node(self._live_node.node)
        if not isinstance(inner, DcsNode):
            return {}
        found: dict[str, str] = {}
        for role in ReplicaRole:
            for stored in inner.replicas.brief_with_role(role):
                if len(found) == REPLICAS_MAX:
                    return found
                found[stored.metadata.oid] = role.value
        return found


def _find_grid(live_node: LiveNode) -> Grid | None:
    inner = unwrap_node(live_node.node)
    routing = inner.routing if isinstance(inner, DcsNode) else None
    return routing.grid if isinstance(routing, GeographicRouting) else None
