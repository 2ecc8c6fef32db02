"""Replica upkeep: keeps up the number of active replicas of partially replicated objects.

In a crowded cell only a few nodes store an object, and each knows the other holders. At intervals
the first holder that is still in the cell replaces missing holders: another node receives a copy
and announces it to the tag cells. Entry point: `ReplicaUpkeep.on_timer`.
Clauses: D13, D14, B6.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import Replica
from thyme.protocol.messages.cells import StoreReplica
from thyme.protocol.messages.chunks import ChunkHolder
from thyme.routing.cells import Delivery, Destination
from thyme.substrates.dcs.context import NodeContext
from thyme.substrates.dcs.state.replica_store import ReplicaRole, StoredReplica

_OBJECTS_PER_ROUND_MAX = 16
"""The maximum number of objects copied per round, to limit the load on the radio."""


class ReplicaUpkeepTimer(msgspec.Struct, frozen=True):
    """The timer of the next upkeep round."""


class ReplicaUpkeep:
    """The partially replicated objects of which this node is a holder."""

    def __init__(self, context: NodeContext) -> None:
        self._node_id = context.node_id
        self._routing = context.routing
        self._outbox = context.outbox
        self._replicas = context.replicas
        self._large_replicas = context.large_replicas
        self._rng = context.rng
        self._config = context.config.replication
        self.copies_sent = 0
        self.rejected = 0

    def schedule_round(self, now_us: int) -> None:
        """Schedules the next upkeep round."""
        interval_us = self._config.upkeep_us
        if interval_us is not None:
            wait_us = self._rng.randint(interval_us // 2, interval_us)
            self._outbox.set_timer(ReplicaUpkeepTimer(), now_us + wait_us)

    def on_store_replica(self, delivery: Delivery, message: StoreReplica, now_us: int) -> None:
        """Stores a copy that is meant for this node; a copy that replaces a missing holder's is
        announced (D13)."""
        if self._node_id not in message.holders:
            return
        metadata = message.metadata
        active = tuple(Replica(delivery.cell, holder) for holder in message.holders)
        sources = [ChunkHolder(node, delivery.cell) for node in (delivery.origin, *message.holders)]
        try:
            self._large_replicas.store(
                StoredReplica(metadata, ReplicaRole.ACTIVE, active),
                message.data,
                sources,
                now_us,
                announced=delivery.is_unicast,
            )
        except OperationError:
            self.rejected += 1

    def on_timer(self, now_us: int) -> None:
        """Replaces the copies of missing holders."""
        self.schedule_round(now_us)
        if not self._routing.serving:
            return
        incomplete = [
            stored
            for stored in self._replicas.partially_replicated()
            if self._missing_count(stored) > 0
        ]
        for stored in incomplete[:_OBJECTS_PER_ROUND_MAX]:
            self._replace_holders(stored, now_us)

    def _missing_count(self, stored: StoredReplica) -> int:
        """The number of missing copies, if this node is the one to make them."""
        present = self._present_holders(stored)
        if not present or present[0] != self._node_id:
            return 0
        nodes = 1 + len(self._routing.nodes_in(self._routing.cell))
        wanted = (
            self._replicas.replicas_wanted(stored.metadata.key) or self._config.active_max or nodes
        )
        return min(wanted, nodes) - len(present)

    def _present_holders(self, stored: StoredReplica) -> list[NodeId]:
        """The holders that are still in the cell, in the order that all of them use."""
        cell = self._routing.cell
        cell_nodes = {self._node_id, *self._routing.nodes_in(cell)}
        return [
            replica.node
            for replica in stored.active
            if replica.cell == cell and replica.node in cell_nodes
        ]

    def _replace_holders(self, stored: StoredReplica, now_us: int) -> None:
        cell, metadata = self._routing.cell, stored.metadata
        present = self._present_holders(stored)
        candidates = [node for node in self._routing.nodes_in(cell) if node not in present]
        chosen = self._rng.sample(candidates, min(self._missing_count(stored), len(candidates)))
        holders = (*present, *chosen)
        self._replicas.set_holders(metadata.key, tuple(Replica(cell, node) for node in holders))
        copy = StoreReplica(metadata, self._replicas.data_to_send(metadata.key), holders)
        self._routing.send([Destination(cell, node) for node in chosen], copy, now_us)
        self.copies_sent += len(chosen)
