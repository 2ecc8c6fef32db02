"""Moving: a node that leaves its cell, until it has come to rest.

Only nodes that stand form the hash table. Whoever crosses the border of its cell stops working for
it at once, but hears beacons, asks and is told as before (`location`).
Clause: D20.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thyme.protocol.cells import CellId
from thyme.substrates.dcs.floor import Floor


class SettleTimer(msgspec.Struct, frozen=True):
    """The device has not moved for long enough."""


class Moving:
    """Where a node is, and who has to know."""

    def __init__(self, floor: Floor, on_settled: Callable[[int], None]) -> None:
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._config = floor.config.moving
        self._on_settled = on_settled
        self.moving = False
        self.crossings = 0

    def on_moved(self, cell: CellId, now_us: int) -> bool:
        """The device is in this cell; returns whether it crossed a border. Within the own cell a
        node may move as it likes."""
        crossed = cell != self._routing.cell
        if crossed:
            self.crossings += 1
            self.moving = True
            self._routing.set_cell(cell, now_us, serving=False)
        if self.moving:
            self._outbox.set_timer(SettleTimer(), now_us + self._config.settle_us)
        return crossed

    def on_timer(self, now_us: int) -> None:
        """The device stands."""
        if self.moving:
            self.moving = False
            self._on_settled(now_us)
