"""Movement: detects that a node has left its cell, and when it has settled.

Only stationary nodes form the hash table. A node that crosses the boundary of its cell stops
serving it at once; it still receives beacons, sends requests and is notified (`location_updates`).
Entry point: `MovementTracker.on_moved`.
Clause: D20.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thyme.protocol.messages.cell_records import CellId
from thyme.substrates.dcs.context import NodeContext


class SettleTimer(msgspec.Struct, frozen=True):
    """The timer at which a device counts as stationary."""


class MovementTracker:
    """Whether one node is moving."""

    def __init__(self, context: NodeContext, on_settled: Callable[[int], None]) -> None:
        self._routing = context.routing
        self._outbox = context.outbox
        self._config = context.config.movement
        self._on_settled = on_settled
        self.is_moving = False
        self.crossings = 0

    def on_moved(self, cell: CellId, now_us: int, *, displaced: bool) -> bool:
        """Handles the cell of a new position; returns whether the node crossed a boundary. Movement
        within a cell has no effect on a stationary node; a moving one is stationary only after a
        time in which it was not `displaced`."""
        crossed = cell != self._routing.cell
        if crossed:
            self.crossings += 1
            self.is_moving = True
            self._routing.set_cell(cell, now_us, serving=False)
        if crossed or (self.is_moving and displaced):
            self._outbox.set_timer(SettleTimer(), now_us + self._config.settle_us)
        return crossed

    def settle_again(self, now_us: int) -> None:
        """Treats the node as one that has just stopped to move."""
        self.is_moving = True
        self._outbox.set_timer(SettleTimer(), now_us + self._config.settle_us)

    def on_timer(self, now_us: int) -> None:
        """Reports that the device is stationary."""
        if self.is_moving:
            self.is_moving = False
            self._on_settled(now_us)
