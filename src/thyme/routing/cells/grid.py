"""Grid: divides an area into equal square cells and maps keys to cells.

Entry point: `Grid`. Cells are numbered row by row. The distance between two cells is that of their
centres, in cells and squared, and thus exact. The radio range determines which cells are always in
range of each other, wherever their nodes are, and which may be.
Clauses: D1, D2, D3.
"""

from __future__ import annotations

import math
from hashlib import blake2b

import msgspec

from thyme.model.positions import Position
from thyme.protocol.messages.cell_records import CELLS_MAX, CellId

Offset = tuple[int, int]
"""Columns and rows from one cell to another cell."""

CELL_M = 40.0
RANGE_M = math.sqrt(8) * CELL_M
"""About 113 m: the diagonal of two by two cells, so that adjacent cells are always in range."""
_TOLERANCE = 1e-9


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A rectangle of cells (D1)."""

    columns: int
    rows: int
    cell_m: float = CELL_M
    range_m: float = RANGE_M
    """Radio range of the nodes."""
    corner_m: Position = (0.0, 0.0)
    """The corner with the lowest x and y."""

    def __post_init__(self) -> None:
        if not (self.columns > 0 and self.rows > 0 and self.cell_m > 0):
            raise ValueError("columns, rows and cell_m must be positive")
        if self.range_m < math.sqrt(8) * self.cell_m - _TOLERANCE:
            raise ValueError(
                "adjacent cells must be in range of each other: use smaller cells (D2)"
            )
        if self.columns * self.rows > CELLS_MAX:
            raise ValueError(f"a grid has at most {CELLS_MAX} cells")

    @classmethod
    def covering(
        cls,
        width_m: float,
        height_m: float,
        cell_m: float = CELL_M,
        range_m: float = RANGE_M,
        corner_m: Position = (0.0, 0.0),
    ) -> Grid:
        """The grid that covers an area; its last column and row may extend beyond it (D1)."""
        return cls(
            columns=math.ceil(width_m / cell_m - _TOLERANCE),
            rows=math.ceil(height_m / cell_m - _TOLERANCE),
            cell_m=cell_m,
            range_m=range_m,
            corner_m=corner_m,
        )

    @classmethod
    def for_range(cls, width_m: float, height_m: float, range_m: float) -> Grid:
        """The grid with the largest cells that a radio range allows (D2)."""
        return cls.covering(width_m, height_m, cls.cell_m_for(range_m), range_m)

    @staticmethod
    def cell_m_for(range_m: float) -> float:
        """The width of the largest cells that a radio range allows (D2)."""
        return range_m / math.sqrt(8)

    def __len__(self) -> int:
        return self.columns * self.rows

    def __contains__(self, cell: object) -> bool:
        return isinstance(cell, int) and 0 <= cell < len(self)

    def cell_at(self, position: Position) -> CellId:
        """The cell of a position; for a position outside the area, the nearest cell."""
        column = math.floor((position[0] - self.corner_m[0]) / self.cell_m)
        row = math.floor((position[1] - self.corner_m[1]) / self.cell_m)
        column = min(max(column, 0), self.columns - 1)
        row = min(max(row, 0), self.rows - 1)
        return CellId(row * self.columns + column)

    def is_within(self, cell: CellId, position: Position, margin_m: float) -> bool:
        """Whether a position is in a cell, or outside by at most a margin. The margin is at most a
        quarter of a cell, so that nodes of adjacent cells stay in range (D2). Beyond the edge of
        the grid, positions belong to the nearest cell."""
        margin_m = min(margin_m, self.cell_m / 4)
        x_m, y_m = position
        shifts = (-margin_m, 0.0, margin_m)
        return any(self.cell_at((x_m + dx, y_m + dy)) == cell for dx in shifts for dy in shifts)

    def centre_of(self, cell: CellId) -> Position:
        """The centre of a cell."""
        row, column = divmod(cell, self.columns)
        x_m, y_m = self.corner_m
        return x_m + (column + 0.5) * self.cell_m, y_m + (row + 0.5) * self.cell_m

    def cell_of_key(self, key: str) -> CellId:
        """The key cell of a key, the same in every process and on every platform (D3)."""
        digest = blake2b(key.encode(), digest_size=8, person=b"thyme cell").digest()
        return CellId(int.from_bytes(digest, "big") % len(self))

    def offset(self, start: CellId, end: CellId) -> Offset:
        """Columns and rows from a start cell to an end cell."""
        columns = self.columns
        return end % columns - start % columns, end // columns - start // columns

    def cell_at_offset(self, cell: CellId, offset: Offset) -> CellId | None:
        """The cell at an offset from another cell; None outside the grid."""
        row, column = divmod(cell, self.columns)
        column += offset[0]
        row += offset[1]
        if 0 <= column < self.columns and 0 <= row < self.rows:
            return CellId(row * self.columns + column)
        return None

    def distance2(self, one: CellId, other: CellId) -> int:
        """Squared distance between two cells, in cells."""
        right, down = self.offset(one, other)
        return right * right + down * down

    def distance_m(self, one: CellId, other: CellId) -> float:
        """Distance between the centres of two cells."""
        return math.sqrt(self.distance2(one, other)) * self.cell_m

    def distance_key(self, cell: CellId, target: CellId) -> int:
        """Sort key: lower is closer to a target; cell numbers break ties (D6)."""
        return self.distance2(cell, target) * CELLS_MAX + cell

    def always_in_range(self, offset: Offset) -> bool:
        """Whether all nodes of two cells are in range of each other, wherever they are (D2)."""
        distance_m_max = math.hypot(abs(offset[0]) + 1, abs(offset[1]) + 1) * self.cell_m
        return distance_m_max <= self.range_m + _TOLERANCE

    def maybe_in_range(self, offset: Offset) -> bool:
        """Whether some nodes of two cells may be in range of each other."""
        distance_m_min = (
            math.hypot(max(0, abs(offset[0]) - 1), max(0, abs(offset[1]) - 1)) * self.cell_m
        )
        return distance_m_min < self.range_m - _TOLERANCE
