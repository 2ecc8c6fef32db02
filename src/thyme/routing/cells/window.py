"""Cell bitmaps: sets of cells around a centre cell, as integers with one bit per cell.

Entry point: `CellBitmapLayout`. A bitmap covers the square of cells whose nodes may be in range of
the centre; the bitmap of a neighbour is shifted to the own centre. This module also selects the
edges of the Gabriel graph: those without another known cell in the circle between their ends. Such
edges never cross, and the perimeter of each face either passes a cell closer to a point inside the
face or started at the closest cell.
Clauses: D4, D5.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from thyme.protocol.cells import CellId
from thyme.routing.cells.grid import Grid, Offset

Cells = int
"""A set of cells around a centre; see `CellBitmapLayout.bit`."""


_REMEMBERED_MAX = 256


class Window:
    """Layout of cell bitmaps, for grids of one radio range and cell size."""

    def __init__(self, grid: Grid) -> None:
        self.radius = radius = math.ceil(grid.range_m / grid.cell_m - 1e-9)
        self._side = 2 * radius + 1
        # Rows are padded, so that a bitmap shifted sideways never runs into the next row.
        self._stride = 4 * radius + 2
        span = range(-radius, radius + 1)
        self.offsets: tuple[Offset, ...] = tuple(
            (right, down) for down in span for right in span if right or down
        )
        self._bits = {offset: 1 << self._place(offset) for offset in self.offsets}
        self._at = {bit: offset for offset, bit in self._bits.items()}
        self.middle: Cells = 1 << self._place((0, 0))
        self.all: Cells = sum(self._bits.values())
        self.linkable: Cells = self.of(o for o in self.offsets if grid.perhaps_reached(o))
        """Cells that may be in range of the centre."""
        self.sure: Cells = self.of(o for o in self.offsets if grid.surely_reached(o))
        """Cells that are in range of every node in the centre cell."""
        self._between = {offset: self._circle(offset) for offset in self.offsets}
        self._inside: dict[CellId, Cells] = {}
        self._unpacked: dict[bytes, tuple[Cells, Cells]] = {}
        self.bytes = (2 * len(self.offsets) + 7) // 8

    def _place(self, offset: Offset) -> int:
        return (offset[1] + self.radius) * self._stride + offset[0] + self.radius

    def _circle(self, end: Offset) -> Cells:
        """The cells in and on the circle whose diameter is the line from the centre to `end`."""
        return self.of(
            (right, down)
            for right, down in self.offsets
            if (right, down) != end and right * (right - end[0]) + down * (down - end[1]) <= 0
        )

    def inside(self, grid: Grid, cell: CellId) -> Cells:
        """The cells around a cell that are inside the grid."""
        found = self._inside.get(cell)
        if found is None:
            found = self.of(o for o in self.offsets if grid.beside(cell, o) is not None)
            self._inside[cell] = found
        return found

    def bit(self, offset: Offset) -> Cells:
        """The bitmap of one cell; empty if the cell is outside the bitmap."""
        return self._bits.get(offset, 0)

    def of(self, offsets: Iterator[Offset]) -> Cells:
        """The bitmap of several cells."""
        return sum(self._bits[offset] for offset in offsets)

    def each(self, cells: Cells) -> Iterator[Offset]:
        """The cells of a bitmap, row by row."""
        while cells:
            lowest = cells & -cells
            yield self._at[lowest]
            cells ^= lowest

    def moved(self, cells: Cells, offset: Offset) -> Cells:
        """A bitmap around a centre at `offset`, relative to the own centre and clipped."""
        shift = offset[1] * self._stride + offset[0]
        return (cells << shift if shift >= 0 else cells >> -shift) & (self.all | self.middle)

    def edges(self, ends: Cells, known: Cells) -> tuple[Offset, ...]:
        """The edges to `ends` without another known cell in between (D5)."""
        between = self._between
        return tuple(end for end in self.each(ends) if not known & between[end])

    # Wire format

    def packed(self, direct: Cells, second: Cells) -> bytes:
        """Two bitmaps as bytes; see docs/wire.md."""
        half = len(self.offsets)
        return (self._compact(direct) | self._compact(second) << half).to_bytes(self.bytes, "big")

    def unpacked(self, data: bytes) -> tuple[Cells, Cells] | None:
        """The two bitmaps; None if the bytes do not have this layout.

        Results are cached, because neighbours repeat the same bytes.
        """
        known = self._unpacked.get(data)
        if known is None:
            known = self._unpack(data)
            if known is not None:
                if len(self._unpacked) >= _REMEMBERED_MAX:
                    self._unpacked.clear()
                self._unpacked[data] = known
        return known

    def _unpack(self, data: bytes) -> tuple[Cells, Cells] | None:
        half = len(self.offsets)
        number = int.from_bytes(data, "big")
        if len(data) != self.bytes or number >> 2 * half:
            return None
        return self._spread(number & (1 << half) - 1), self._spread(number >> half)

    def _compact(self, cells: Cells) -> int:
        side, number = self._side, 0
        for row in range(side):
            number |= (cells >> row * self._stride & (1 << side) - 1) << row * side
        half = len(self.offsets) // 2
        return number & (1 << half) - 1 | number >> half + 1 << half

    def _spread(self, number: int) -> Cells:
        half, side, cells = len(self.offsets) // 2, self._side, 0
        number = number & (1 << half) - 1 | number >> half << half + 1
        for row in range(side):
            cells |= (number >> row * side & (1 << side) - 1) << row * self._stride
        return cells
