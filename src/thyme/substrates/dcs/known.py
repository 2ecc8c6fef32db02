"""Known: whether a message to a cell says nothing new.

Who got no answer in time asks again, and who renews says what cells mostly know. The others of the
cell need not hear of that: they were told the first time, or see by digests that they were not.
Who retrieved an object and where a subscriber is are not in digests: that is told each time.
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
    """Whether this node has nothing to learn from a message of somebody in a cell."""
    catalogue = index.broker.catalogue
    match message:
        case IndexObject(indexed=indexed):
            return catalogue.history.get(indexed.metadata.key) == indexed.metadata
        case DeleteObject(key=key):
            return catalogue.state(key) == DELETED
        case NodeMoved(sids=sids, keys=keys):
            if isinstance(message, SignedMove) and message.place is not None:
                cell = message.place.cell
            here = Replica(cell, origin)
            return not sids and all(index.is_active(key, here) for key in keys)
        case _:
            return False
