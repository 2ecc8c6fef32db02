"""Redundancy: whether a message to a cell contains nothing new for this node.

Retries and re-announcements mostly repeat records that the cell has. They need not be broadcast in
the cell again: its other nodes received them the first time, or find by digests that they lack
them. Passive replicas and subscriber locations are not part of digests, so messages about them are
always broadcast. Entry point: `is_redundant`.
Clauses: D7, B2.
"""

from __future__ import annotations

from thyme.model.ids import NodeId
from thyme.protocol.cell_messages import IndexObject, NodeMoved, SignedMove
from thyme.protocol.cells import CellId, Replica
from thyme.protocol.messages import DeleteObject, Message
from thyme.substrates.catalogue import DELETED
from thyme.substrates.dcs.index import CellIndex


def is_known(index: CellIndex, origin: NodeId, cell: CellId, message: Message) -> bool:
    """Whether a message from a node in the given cell contains nothing new for this node."""
    catalogue = index.broker.catalogue
    match message:
        case IndexObject(indexed=indexed):
            return catalogue.history.get(indexed.metadata.key) == indexed.metadata
        case DeleteObject(key=key):
            return catalogue.state(key) == DELETED
        case NodeMoved(sids=sids, keys=keys):
            if isinstance(message, SignedMove) and message.place is not None:
                cell = message.place.cell
            replica = Replica(cell, origin)
            return not sids and all(index.is_active(key, replica) for key in keys)
        case _:
            return False
