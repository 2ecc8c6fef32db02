"""Position filter: decides from noisy positions in which cell a device is, and whether it moves.

The positions that a device reports, such as those of GPS, are off by some metres. At the boundary
of its cell a standing device would cross it again and again, and never be stationary. So a node
changes its cell only if the positions are outside, by a margin, for some seconds; and it is
stationary while the mean of its recent positions stays within the margin. Where positions are
exact, each of them counts at once. Entry point: `PositionFilter.on_position`.
Clause: D20.
"""

from __future__ import annotations

from collections import deque
from math import dist
from typing import NamedTuple

import msgspec

from thyme.model.positions import Position
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.outbox import Outbox
from thyme.substrates.dcs.cell_map import CellMap

LEAVE_US = 3 * SECOND_US
"""How long positions must be outside a cell before the device has left it."""
_AVERAGED_US = 5 * SECOND_US
_AVERAGED_MAX = 64
"""The time over which positions are averaged, and their maximum number."""
_MARGIN_PER_NOISE = 2.0


class LeaveCellTimer(msgspec.Struct, frozen=True):
    """The timer at which a device has left its cell, unless a later position is inside again."""


class FilteredPosition(NamedTuple):
    """The cell in which a device is, and whether the device has moved since it last had."""

    cell: CellId
    displaced: bool


def margin_m(noise_m: float) -> float:
    """How far outside its cell a position must be before the device may have left the cell."""
    return _MARGIN_PER_NOISE * noise_m


class PositionFilter:
    """The recent positions of one device."""

    def __init__(self, cell_map: CellMap, outbox: Outbox, noise_m: float) -> None:
        self._cell_map = cell_map
        self._outbox = outbox
        self._margin_m = margin_m(noise_m)
        self._recent: deque[tuple[int, Position]] = deque(maxlen=_AVERAGED_MAX)
        self._anchor: Position | None = None
        """The mean position from which the device has not moved by more than the margin."""
        self._outside_us: int | None = None
        """Since when all positions are outside the cell; None if the last one is not."""

    def on_position(self, position: Position, cell: CellId, now_us: int) -> FilteredPosition:
        """Handles a new position of a device that is in a cell so far."""
        if self._margin_m == 0:
            return FilteredPosition(self._cell_map.cell_at(position), True)
        self._recent.append((now_us, position))
        displaced = self._is_displaced(now_us)
        if self._cell_map.is_within(cell, position, self._margin_m):
            if self._outside_us is not None:
                self._outside_us = None
                self._outbox.cancel_timer(LeaveCellTimer())
            return FilteredPosition(cell, displaced)
        if self._outside_us is None:
            self._outside_us = now_us
            self._outbox.set_timer(LeaveCellTimer(), now_us + LEAVE_US)
        elif now_us >= self._outside_us + LEAVE_US:
            return self.leave_cell()
        return FilteredPosition(cell, displaced)

    def leave_cell(self) -> FilteredPosition:
        """The cell of the latest position, after the time to leave a cell has passed."""
        self._outside_us = None
        self._outbox.cancel_timer(LeaveCellTimer())
        return FilteredPosition(self._cell_map.cell_at(self._recent[-1][1]), True)

    def _is_displaced(self, now_us: int) -> bool:
        while self._recent[0][0] < now_us - _AVERAGED_US:
            self._recent.popleft()
        count = len(self._recent)
        mean = (
            sum(position[0] for _, position in self._recent) / count,
            sum(position[1] for _, position in self._recent) / count,
        )
        if self._anchor is not None and dist(mean, self._anchor) <= self._margin_m:
            return False
        self._anchor = mean
        return True
