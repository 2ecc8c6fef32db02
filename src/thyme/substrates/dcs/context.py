"""Node context: the services that the components of one Thyme-DCS node share.

`DcsNode` creates one `NodeContext` and passes it to its components.
Clauses: D6, D17, D28.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import CellReply, ReplyFromCell
from thyme.protocol.outbox import Outbox
from thyme.protocol.round_trip import RoundTripTimes
from thyme.routing.cells import CellRouting, Delivery, Destination
from thyme.storage.store import Store
from thyme.substrates.dcs.client.cell_requests import CellRequests
from thyme.substrates.dcs.client.deletion_log import DeletionLog
from thyme.substrates.dcs.client.large_replicas import LargeReplicas
from thyme.substrates.dcs.client.neighbour_replicas import NeighbourReplicas
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.state.cell_index import CellIndex
from thyme.substrates.dcs.state.replica_store import ReplicaStore
from thyme.substrates.dcs.state.small_objects import SmallObjects


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """The identity, routing, requests, state and settings of one node."""

    node_id: NodeId
    routing: CellRouting
    outbox: Outbox
    requests: CellRequests
    store: Store
    index: CellIndex
    replicas: ReplicaStore
    large_replicas: LargeReplicas
    received_objects: SmallObjects
    """The small objects that this node received with their metadata."""
    neighbour_replicas: NeighbourReplicas | None
    """The retrieved objects that beacons name; None if they name none."""
    deletion_log: DeletionLog | None
    """The deletes to be repeated after topology changes; None without re-announcements."""
    round_trips: RoundTripTimes | None
    """How long replies take at present; None if nothing depends on it."""
    rng: Random
    config: DcsConfig

    @property
    def is_busy(self) -> bool:
        """Whether the channel is busy: announcements and repair then wait (D28)."""
        return self.round_trips is not None and self.round_trips.is_busy

    def send_reply(self, delivery: Delivery, reply: CellReply, now_us: int) -> None:
        """Replies for the requested cell, if this node was the first of it to receive the request
        (D6, D17)."""
        if delivery.is_first:
            target = Destination(delivery.origin_cell, delivery.origin)
            self.routing.send([target], ReplyFromCell(delivery.cell, reply), now_us)
