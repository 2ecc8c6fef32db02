"""Node context: the services that the components of one Thyme-DCS node share.

`DcsNode` creates one `NodeContext` and passes it to its components.
Clauses: D6, D17.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from thyme.model.ids import NodeId
from thyme.protocol.messages import CellReply, FromCell
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import Arrival, CellRouting, To
from thyme.storage.store import Store
from thyme.substrates.dcs.asks import CellAsks
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.deletions import Deletions
from thyme.substrates.dcs.index import CellIndex
from thyme.substrates.dcs.replicas import Replicas


@dataclass(frozen=True, slots=True, kw_only=True)
class Floor:
    """The identity, routing, requests, state and settings of one node."""

    node_id: NodeId
    routing: CellRouting
    outbox: Outbox
    asks: CellAsks
    store: Store
    index: CellIndex
    replicas: Replicas
    deletions: Deletions
    rng: Random
    config: DcsConfig

    def reply(self, arrival: Arrival, reply: CellReply, now_us: int) -> None:
        """Replies for the requested cell, if this node was the first of it to receive the request
        (D6, D17)."""
        if arrival.first:
            target = To(arrival.origin_cell, arrival.origin)
            self.routing.send([target], FromCell(arrival.cell, reply), now_us)
