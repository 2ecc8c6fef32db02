"""Beacons: the cell of a node, and the exchange of beacons with its neighbours.

Entry point: `Beaconing`, the base class of `GeographicRouting`. The neighbour table is kept by
`neighbours`; messages are forwarded by `geographic`.
Clauses: D4, D6, D20.
"""

from __future__ import annotations

from random import Random

from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.outbox import Outbox
from thyme.routing.cells.config import CellRoutingConfig
from thyme.routing.cells.deliveries import CellDeliveries
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.interface import BeaconReceived, CellRoutingUser
from thyme.routing.cells.neighbours import Neighbours
from thyme.routing.cells.proxies import proxy_among


class Beaconing(CellDeliveries):
    """The cell of one node, its beacons and its neighbours."""

    def __init__(
        self,
        node_id: NodeId,
        grid: Grid,
        outbox: Outbox,
        rng: Random,
        user: CellRoutingUser,
        config: CellRoutingConfig,
    ) -> None:
        super().__init__(node_id, outbox, rng, user, config)
        self.grid = grid
        self.neighbours = Neighbours(grid, config)

    def is_cell(self, cell: CellId) -> bool:
        """Whether a cell is on the grid."""
        return cell in self.grid

    def cell_of_key(self, key: str) -> CellId:
        """The key cell of a key (D3)."""
        return self.grid.cell_of_key(key)

    def distance(self, one: CellId, other: CellId) -> float:
        """Distance between two cells, in metres."""
        return self.grid.distance_m(one, other)

    def nodes_in(self, cell: CellId) -> list[NodeId]:
        """The serving neighbours in a cell."""
        nodes = self.neighbours.neighbourhood(self._cell).nodes_by_cell.get(cell, ())
        return [neighbour.node_id for neighbour in nodes]

    def populated_cells(self) -> tuple[CellId, ...]:
        """The other cells that are known to have serving nodes, row by row."""
        return self.neighbours.neighbourhood(self._cell).populated_cells

    def proxy_of(self, cell: CellId, *, exclude_own: bool = False) -> CellId | None:
        """The known populated cell closest to a cell (D6); None if no populated cell is known."""
        cells = self.populated_cells()
        if self._serving and not exclude_own:
            cells = (self._cell, *cells)
        return proxy_among(self.grid, cell, cells)

    # Beacons

    def _send_beacon(self, now_us: int) -> None:
        around = b""
        if self._serving:
            neighbourhood = self.neighbours.neighbourhood(self._cell)
            around = self.neighbours.layout.encode(neighbourhood.direct, neighbourhood.second)
        self._broadcast_beacon(around, now_us)

    def _on_beacon(self, sender: NodeId, beacon: CellBeacon, now_us: int) -> None:
        own = sender == self._node_id
        changed = None if own else self.neighbours.process_beacon(sender, beacon, now_us)
        if changed is None:
            self.traffic.dropped["strange beacon"] += 1
            return
        self._user.on_payload(sender, beacon.cell, beacon.payload)
        same_cell = beacon.cell == self._cell
        if not (changed or same_cell or self._user.is_new_payload(beacon.payload)):
            return  # most beacons
        received = BeaconReceived(
            node=sender, cell=beacon.cell, serving=beacon.serving, payload=beacon.payload
        )
        self._user.on_beacon(received, now_us)
