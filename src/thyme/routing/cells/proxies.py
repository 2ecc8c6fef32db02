"""Proxies: which populated cell is responsible for an empty cell.

The proxy of an empty cell is the populated cell closest to it, the same for all senders (D6). A
node knows the populated cells in its neighbourhood only: `proxy_among` is its best guess, and
`has_no_closer_cell` says whether the guess is certain. A message finds the proxy without this
knowledge, by perimeter mode (`next_hop`).
Clause: D6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.neighbours import CellNeighbourhood


def proxy_among(grid: Grid, cell: CellId, populated: Iterable[CellId]) -> CellId | None:
    """The populated cell closest to a cell, which may be the cell itself; None if there is none."""
    return min(populated, key=lambda other: grid.distance_key(other, cell), default=None)


def has_no_closer_cell(grid: Grid, neighbourhood: CellNeighbourhood, cell: CellId) -> bool:
    """Whether every cell that is closer to a cell than the own one is known to be empty."""
    here = neighbourhood.cell
    right, down = grid.offset(here, cell)
    radius = math.isqrt(right * right + down * down)
    limit = grid.distance_key(here, cell)
    span = range(-radius, radius + 1)
    for offset in ((right + x, down + y) for x in span for y in span):
        other = grid.cell_at_offset(here, offset)
        if other is None or grid.distance_key(other, cell) >= limit:
            continue
        if not neighbourhood.is_empty(offset):
            return False
    return True
