"""Logical cells: a cell is a hash of a node's id, not a place.

Entry point: `LogicalCells`. Used where all nodes hear each other, as under one access point: no
message crosses more than one link, and a node that moves stays in its cell. The number of cells may
change while nodes run (I3).
Clauses: D3, I1, I3.
"""

from __future__ import annotations

from hashlib import blake2b

from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CELLS_MAX, CellId

STATION_CELL = CellId(CELLS_MAX - 1)
"""The cell in the address of a base station, which belongs to no cell: a replica in this cell is
the copy of an object at its source station (I4)."""


class LogicalCells:
    """The logical cells of one world (I1)."""

    def __init__(self, count: int) -> None:
        self._count = 0
        self.resize(count)

    def resize(self, count: int) -> None:
        """Changes the number of cells (I3)."""
        if not 1 <= count < CELLS_MAX:
            raise ValueError(f"a world has 1 to {CELLS_MAX - 1} logical cells, not {count}")
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __contains__(self, cell: object) -> bool:
        return isinstance(cell, int) and 0 <= cell < self._count

    def cell_of_node(self, node_id: NodeId) -> CellId:
        """The cell of a node, the same in every process."""
        return self._cell_of_bytes(node_id, b"thyme node")

    def cell_of_key(self, key: str) -> CellId:
        """The key cell of a key (D3)."""
        return self._cell_of_bytes(key.encode(), b"thyme cell")

    def _cell_of_bytes(self, content: bytes, purpose: bytes) -> CellId:
        digest = blake2b(content, digest_size=8, person=purpose).digest()
        return CellId(int.from_bytes(digest, "big") % self._count)

    def distance(self, one: CellId, other: CellId) -> int:
        """0 within a cell, 1 between any two: all nodes are one hop apart."""
        return int(one != other)

    def proxy_order(self, cell: CellId, target: CellId) -> int:
        """Sort key: the populated cell with the lowest value is the proxy of an empty target (D6).

        The cells form a ring, and the proxy is the next populated cell on it.
        """
        return (cell - target) % self._count
