"""Home: which cell the state in a node's store belongs to, and when the node joins it.

Clauses: D20, D23, M24.
"""

from __future__ import annotations

import msgspec

from thyme.protocol.cells import CellId
from thyme.storage.store import Shelf


class JoinDue(msgspec.Struct, frozen=True):
    """The timer at which a node that was up before joins its cell."""


class HomeCell(msgspec.Struct, frozen=True, array_like=True):
    """The cell that the state in the store belongs to."""

    cell: CellId


HOME = Shelf("home cell", HomeCell)
