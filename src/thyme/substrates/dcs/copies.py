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
from thyme.protocol.cell_messages import AnnounceReplica, HoldObject
from thyme.protocol.cells import Replica
from thyme.routing.cells import Arrival, To
from thyme.substrates.dcs.floor import Floor
from thyme.substrates.dcs.replicas import HeldObject, Role

_AT_ONCE_MAX = 16
"""The maximum number of objects copied per round, to limit the load on the radio."""


class KeepUpTimer(msgspec.Struct, frozen=True):
    """The timer of the next upkeep round."""


class Copies:
    """The partially replicated objects of which this node is a holder."""

    def __init__(self, floor: Floor) -> None:
        self._node_id = floor.node_id
        self._routing = floor.routing
        self._outbox = floor.outbox
        self._replicas = floor.replicas
        self._rng = floor.rng
        self._config = floor.config.replication
        self.made = 0
        self.refused = 0

    def start(self, now_us: int) -> None:
        """Schedules the next upkeep round."""
        interval_us = self._config.keep_up_us
        if interval_us is not None:
            wait_us = self._rng.randint(interval_us // 2, interval_us)
            self._outbox.set_timer(KeepUpTimer(), now_us + wait_us)

    def on_hold(self, arrival: Arrival, message: HoldObject, now_us: int) -> None:
        """Stores a copy that is meant for this node; a copy that replaces a missing holder's is
        announced (D13)."""
        if self._node_id not in message.holders:
            return
        metadata = message.metadata
        active = tuple(Replica(arrival.cell, holder) for holder in message.holders)
        try:
            self._replicas.hold(HeldObject(metadata, Role.ACTIVE, active), message.data, now_us)
        except OperationError:
            self.refused += 1
            return
        if arrival.personal:
            cells = dict.fromkeys(map(self._routing.cell_of_key, metadata.tags))
            self._routing.send([To(cell) for cell in cells], AnnounceReplica(metadata.key), now_us)

    def on_timer(self, now_us: int) -> None:
        """Replaces the copies of missing holders."""
        self.start(now_us)
        if not self._routing.serving:
            return
        incomplete = [stored for stored in self._replicas.few() if self._lacking(stored) > 0]
        for stored in incomplete[:_AT_ONCE_MAX]:
            self._copy(stored, now_us)

    def _lacking(self, held: HeldObject) -> int:
        """The number of missing copies, if this node is the one to make them."""
        present = self._there(held)
        if not present or present[0] != self._node_id:
            return 0
        nodes = 1 + len(self._routing.nodes_in(self._routing.cell))
        return min(self._config.active_max or nodes, nodes) - len(present)

    def _there(self, held: HeldObject) -> list[NodeId]:
        """The holders that are still in the cell, in the order that all of them use."""
        cell = self._routing.cell
        cell_nodes = {self._node_id, *self._routing.nodes_in(cell)}
        return [
            replica.node
            for replica in held.active
            if replica.cell == cell and replica.node in cell_nodes
        ]

    def _copy(self, held: HeldObject, now_us: int) -> None:
        cell, metadata = self._routing.cell, held.metadata
        present = self._there(held)
        candidates = [node for node in self._routing.nodes_in(cell) if node not in present]
        chosen = self._rng.sample(candidates, min(self._lacking(held), len(candidates)))
        holders = (*present, *chosen)
        self._replicas.name_holders(metadata.key, tuple(Replica(cell, node) for node in holders))
        copy = HoldObject(metadata, self._replicas.data(metadata.key), holders)
        self._routing.send([To(cell, node) for node in chosen], copy, now_us)
        self.made += len(chosen)
