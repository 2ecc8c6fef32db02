"""Floor: what the parts of a node stand on, made once by the node and handed to each as one."""

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
    """Who the node is, how it speaks and asks, what it keeps, and how it is set."""

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
        """Answers in the name of the cell that was asked, if this node heard first (D6, D17)."""
        if arrival.first:
            target = To(arrival.origin_cell, arrival.origin)
            self.routing.send([target], FromCell(arrival.cell, reply), now_us)
