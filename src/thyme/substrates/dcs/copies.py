"""Copies: enough of them, where not all nodes of a cell keep an object.

In a crowded cell an object is kept by a few nodes, which know of each other. Now and then the first
of them that is still there looks for the others; for each that is gone another node gets a copy,
and says so where the object is indexed.
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
"""How many objects are copied each time, lest the radio be full of them."""


class KeepUpTimer(msgspec.Struct, frozen=True):
    """Time to look for the others."""


class Copies:
    """The objects of which a node holds one of few copies."""

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
        """The node came up."""
        every_us = self._config.keep_up_us
        if every_us is not None:
            wait_us = self._rng.randint(every_us // 2, every_us)
            self._outbox.set_timer(KeepUpTimer(), now_us + wait_us)

    def on_hold(self, arrival: Arrival, message: HoldObject, now_us: int) -> None:
        """Keeps a copy, if it is for this node; one that came later is announced (D13)."""
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
        """Makes up for copies that are gone."""
        self.start(now_us)
        if not self._routing.serving:
            return
        short = [held for held in self._replicas.few() if self._lacking(held) > 0]
        for held in short[:_AT_ONCE_MAX]:
            self._copy(held, now_us)

    def _lacking(self, held: HeldObject) -> int:
        """How many copies there are too few, if it is on this node to make them."""
        there = self._there(held)
        if not there or there[0] != self._node_id:
            return 0
        nodes = 1 + len(self._routing.nodes_in(self._routing.cell))
        return min(self._config.active_max or nodes, nodes) - len(there)

    def _there(self, held: HeldObject) -> list[NodeId]:
        """The holders that are still in the cell, in the order all of them know."""
        cell = self._routing.cell
        present = {self._node_id, *self._routing.nodes_in(cell)}
        return [at.node for at in held.active if at.cell == cell and at.node in present]

    def _copy(self, held: HeldObject, now_us: int) -> None:
        cell, metadata = self._routing.cell, held.metadata
        there = self._there(held)
        others = [node for node in self._routing.nodes_in(cell) if node not in there]
        chosen = self._rng.sample(others, min(self._lacking(held), len(others)))
        holders = (*there, *chosen)
        self._replicas.name_holders(metadata.key, tuple(Replica(cell, node) for node in holders))
        copy = HoldObject(metadata, self._replicas.data(metadata.key), holders)
        self._routing.send([To(cell, node) for node in chosen], copy, now_us)
        self.made += len(chosen)
