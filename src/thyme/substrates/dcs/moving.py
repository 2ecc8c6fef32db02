"""Movement: detects that a node has left its cell, and when it has settled.

Only stationary nodes form the hash table. A node that crosses the boundary of its cell stops
serving it at once; it still receives beacons, sends requests and is notified (`location_updates`).
Entry point: `MovementTracker.on_moved`.
Clause: D20.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thyme.protocol.cells import CellId
from thyme.substrates.dcs.floor import Floor


class SettleTimer(msgspec.Struct, frozen=True):
    """The timer at which a device counts as stationary."""


class Moving:
    """Whether one node is moving."""

    def __init__(self, floor: Floor, on_settled: Callable[[int], None]) -> None:
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._config = floor.config.moving
        self._on_settled = on_settled
        self.moving = False
        self.crossings = 0

    def on_moved(self, cell: CellId, now_us: int) -> bool:
        """Handles the cell of a new position; returns whether the node crossed a boundary. Movement
        within a cell has no effect."""
        crossed = cell != self._routing.cell
        if crossed:
            self.crossings += 1
            self.moving = True
            self._routing.set_cell(cell, now_us, serving=False)
        if self.moving:
            self._outbox.set_timer(SettleTimer(), now_us + self._config.settle_us)
        return crossed

    def on_timer(self, now_us: int) -> None:
        """Reports that the device is stationary."""
        if self.moving:
            self.moving = False
            self._on_settled(now_us)
