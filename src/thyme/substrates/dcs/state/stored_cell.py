"""Stored cell: the cell to which a node's stored state belongs, and the timer of a delayed join.

Clauses: D20, D23, M24.
"""

from __future__ import annotations

import msgspec

from thyme.protocol.messages.cell_records import CellId
from thyme.storage.store import RecordTable


class DelayedJoinTimer(msgspec.Struct, frozen=True):
    """The timer at which a node whose join was delayed starts to join its cell."""


class StoredCell(msgspec.Struct, frozen=True, array_like=True):
    """The cell to which the state in the store belongs."""

    cell: CellId


STORED_CELL = RecordTable("home cell", StoredCell)
