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

from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells.grid import Grid, Offset

CellBitmap = int
"""A set of cells around a centre; see `CellBitmapLayout.bit`."""


_DECODED_MAX = 256


class CellBitmapLayout:
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
        self._bits = {offset: 1 << self._bit_index(offset) for offset in self.offsets}
        self._offset_of_bit = {bit: offset for offset, bit in self._bits.items()}
        self.centre: CellBitmap = 1 << self._bit_index((0, 0))
        self.all: CellBitmap = sum(self._bits.values())
        self.maybe_in_range: CellBitmap = self.from_offsets(
            o for o in self.offsets if grid.maybe_in_range(o)
        )
        """Cells that may be in range of the centre."""
        self.always_in_range: CellBitmap = self.from_offsets(
            o for o in self.offsets if grid.always_in_range(o)
        )
        """Cells that are in range of every node in the centre cell."""
        self._between = {offset: self._circle(offset) for offset in self.offsets}
        self._grid_masks: dict[CellId, CellBitmap] = {}
        self._decoded: dict[bytes, tuple[CellBitmap, CellBitmap]] = {}
        self.encoded_bytes = (2 * len(self.offsets) + 7) // 8

    def _bit_index(self, offset: Offset) -> int:
        return (offset[1] + self.radius) * self._stride + offset[0] + self.radius

    def _circle(self, end: Offset) -> CellBitmap:
        """The cells in and on the circle whose diameter is the line from the centre to `end`."""
        return self.from_offsets(
            (right, down)
            for right, down in self.offsets
            if (right, down) != end and right * (right - end[0]) + down * (down - end[1]) <= 0
        )

    def grid_mask(self, grid: Grid, cell: CellId) -> CellBitmap:
        """The cells around a cell that are inside the grid."""
        mask = self._grid_masks.get(cell)
        if mask is None:
            mask = self.from_offsets(
                o for o in self.offsets if grid.cell_at_offset(cell, o) is not None
            )
            self._grid_masks[cell] = mask
        return mask

    def bit(self, offset: Offset) -> CellBitmap:
        """The bitmap of one cell; empty if the cell is outside the bitmap."""
        return self._bits.get(offset, 0)

    def from_offsets(self, offsets: Iterator[Offset]) -> CellBitmap:
        """The bitmap of several cells."""
        return sum(self._bits[offset] for offset in offsets)

    def offsets_in(self, bitmap: CellBitmap) -> Iterator[Offset]:
        """The cells of a bitmap, row by row."""
        while bitmap:
            lowest = bitmap & -bitmap
            yield self._offset_of_bit[lowest]
            bitmap ^= lowest

    def shifted(self, bitmap: CellBitmap, offset: Offset) -> CellBitmap:
        """A bitmap around a centre at `offset`, relative to the own centre and clipped."""
        shift = offset[1] * self._stride + offset[0]
        return (bitmap << shift if shift >= 0 else bitmap >> -shift) & (self.all | self.centre)

    def gabriel_edges(self, ends: CellBitmap, known: CellBitmap) -> tuple[Offset, ...]:
        """The edges to `ends` without another known cell in between (D5)."""
        between = self._between
        return tuple(end for end in self.offsets_in(ends) if not known & between[end])

    # Wire format

    def encode(self, direct: CellBitmap, second: CellBitmap) -> bytes:
        """Two bitmaps as bytes; see docs/wire.md."""
        half = len(self.offsets)
        return (self._compress(direct) | self._compress(second) << half).to_bytes(
            self.encoded_bytes, "big"
        )

    def decode(self, data: bytes) -> tuple[CellBitmap, CellBitmap] | None:
        """The two bitmaps; None if the bytes do not have this layout.

        Results are cached, because neighbours repeat the same bytes.
        """
        decoded = self._decoded.get(data)
        if decoded is None:
            decoded = self._decode(data)
            if decoded is not None:
                if len(self._decoded) >= _DECODED_MAX:
                    self._decoded.clear()
                self._decoded[data] = decoded
        return decoded

    def _decode(self, data: bytes) -> tuple[CellBitmap, CellBitmap] | None:
        half = len(self.offsets)
        number = int.from_bytes(data, "big")
        if len(data) != self.encoded_bytes or number >> 2 * half:
            return None
        return self._expand(number & (1 << half) - 1), self._expand(number >> half)

    def _compress(self, bitmap: CellBitmap) -> int:
        side, number = self._side, 0
        for row in range(side):
            number |= (bitmap >> row * self._stride & (1 << side) - 1) << row * side
        half = len(self.offsets) // 2
        return number & (1 << half) - 1 | number >> half + 1 << half

    def _expand(self, number: int) -> CellBitmap:
        half, side, bitmap = len(self.offsets) // 2, self._side, 0
        number = number & (1 << half) - 1 | number >> half << half + 1
        for row in range(side):
            bitmap |= (number >> row * side & (1 << side) - 1) << row * self._stride
        return bitmap
