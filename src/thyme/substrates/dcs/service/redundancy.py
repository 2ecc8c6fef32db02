"""Redundancy: whether a message to a cell contains nothing new for this node.

Retries and re-announcements mostly repeat records that the cell has. They need not be broadcast in
the cell again: its other nodes received them the first time, or find by digests that they lack
them. Passive replicas and subscriber locations are not part of digests, so messages about them are
always broadcast. Entry point: `is_redundant`.
Clauses: D7, B2.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.protocol.messages.cells import IndexObject, LocationUpdate, SignedLocationUpdate
from thyme.protocol.messages.common import DeleteObject, Message
from thyme.substrates.dcs.state.cell_index import CellIndex


def is_redundant(index: CellIndex, origin: NodeId, cell: CellId, message: Message) -> bool:
    """Whether a message from a node in the given cell contains nothing new for this node."""
    match message:
        case IndexObject(indexed=indexed):
            return index.get_object(indexed.metadata.key) == indexed.metadata
        case DeleteObject(key=key):
            return index.is_deleted(key)
        case LocationUpdate(sids=sids, keys=keys):
            if isinstance(message, SignedLocationUpdate) and message.location is not None:
                cell = message.location.cell
            replica = Replica(cell, origin)
            return not sids and all(index.is_active_replica(key, replica) for key in keys)
        case _:
            return False
