"""Beacons: the cell of a node, and the exchange of beacons with its neighbours.

Entry point: `Beaconing`, the base class of `GeographicRouting`. The neighbour table is kept by
`neighbours`; messages are forwarded by `geographic`.
Clauses: D4, D6, D20.
"""

from __future__ import annotations

from random import Random
from typing import Final

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellBeacon
from thyme.protocol.outbox import Outbox
from thyme.routing.cells.config import CellRoutingConfig
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.interface import BeaconReceived, BeaconTimer, CellRoutingUser, CellTraffic
from thyme.routing.cells.neighbours import Neighbours
from thyme.routing.cells.proxies import proxy_among

_BEACON_INTERVAL_US: Final = SECOND_US
"""Mean time between two beacons (D4)."""
_BEACON_JITTER_US: Final = SECOND_US // 2
"""Maximum random deviation from the mean, against synchronised beacons."""
_FIRST_BEACON_US_MAX: Final = SECOND_US // 10
"""Maximum delay of the first beacon after a start."""
_PAYLOAD_BYTES_MAX: Final = 128
"""Maximum size of the payload that the layer above adds to a beacon."""


class Beaconing:
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
        self._node_id = node_id
        self.grid = grid
        self._outbox = outbox
        self._rng = rng
        self._user = user
        self._config = config
        self._world = config.world
        self.neighbours = Neighbours(grid, config)
        self._cell = CellId(0)
        self._serving = False
        self.traffic = CellTraffic()

    @property
    def cell(self) -> CellId:
        return self._cell

    @property
    def serving(self) -> bool:
        return self._serving

    def start(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Starts in a cell, and schedules the first beacon."""
        self._set_cell(cell, serving)
        first_us = self._rng.randint(0, _FIRST_BEACON_US_MAX)
        self._outbox.set_timer(BeaconTimer(), now_us + first_us)

    def set_cell(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Changes the cell or the serving state, and sends a beacon at once (D20)."""
        if (cell, serving) != (self._cell, self._serving):
            self._set_cell(cell, serving)
            self._send_beacon(now_us)

    def _set_cell(self, cell: CellId, serving: bool) -> None:
        if cell not in self.grid:
            raise ValueError(f"cell {cell} is outside the grid")
        self._cell = cell
        self._serving = serving

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
        payload = self._user.beacon_payload(now_us)
        assert len(payload) <= _PAYLOAD_BYTES_MAX
        world = self._world
        self._outbox.broadcast(CellBeacon(self._cell, self._serving, around, payload, world))
        self.traffic.beacons += 1
        jitter_us = self._rng.randint(-_BEACON_JITTER_US, _BEACON_JITTER_US)
        self._outbox.set_timer(BeaconTimer(), now_us + _BEACON_INTERVAL_US + jitter_us)

    def _on_beacon(self, sender: NodeId, beacon: CellBeacon, now_us: int) -> None:
        own = sender == self._node_id
        changed = None if own else self.neighbours.process_beacon(sender, beacon, now_us)
        if changed is None:
            self.traffic.dropped["strange beacon"] += 1
            return
        same_cell = beacon.cell == self._cell
        if not (changed or same_cell or self._user.is_new_payload(beacon.payload)):
            return  # most beacons
        received = BeaconReceived(
            node=sender, cell=beacon.cell, serving=beacon.serving, payload=beacon.payload
        )
        self._user.on_beacon(received, now_us)
