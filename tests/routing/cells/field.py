"""A network for cell routing: nodes at positions, which receive from all nodes in range, in order.

There is no loss and no delay. Time passes in rounds of beacons; between them messages travel until
none is in transit. Also the oracle: the connected cells, and the closest populated cell to any
cell.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping

from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.rng import derive_rng
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import CellPacket, Message
from thyme.protocol.messages.requests import FetchStatus
from thyme.protocol.node import Broadcast, Send
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import (
    BeaconReceived,
    CellRoutingConfig,
    Delivery,
    DeliveryFailure,
    GeographicRouting,
    Grid,
)
from thyme.routing.cells.interface import BeaconTimer

SECOND_US = 1_000_000
Place = tuple[float, float]
ROUNDS = 4
"""After this many rounds of beacons all nodes know their neighbourhood."""


def name(number: int) -> NodeId:
    return NodeId(number.to_bytes(2, "big"))


def question(number: int) -> FetchStatus:
    """A message to send."""
    return FetchStatus(number, Key(ObjectId("any"), name(0)))


class Ear:
    """The layer above routing: records deliveries, failures and beacons."""

    def __init__(self) -> None:
        self.arrivals: list[Delivery] = []
        self.lost: list[DeliveryFailure] = []
        self.sightings: list[BeaconReceived] = []
        self.says = b""
        self.cares: bytes | None = None

    def on_delivery(self, arrival: Delivery, now_us: int) -> None:
        self.arrivals.append(arrival)

    def on_delivery_failure(self, failure: DeliveryFailure, now_us: int) -> None:
        self.lost.append(failure)

    def on_beacon(self, sighting: BeaconReceived, now_us: int) -> None:
        self.sightings.append(sighting)

    def is_redundant(self, origin: NodeId, origin_cell: CellId, message: Message) -> bool:
        return False

    def on_payload(self, node: NodeId, cell: CellId, payload: bytes) -> None:
        pass

    def is_new_payload(self, payload: bytes) -> bool:
        return payload == self.cares

    def may_become_new(self, payload: bytes) -> bool:
        return self.is_new_payload(payload)

    def beacon_payload(self, now_us: int) -> bytes:
        return self.says


class Field:
    """Nodes at positions, and the messages between them."""

    def __init__(
        self,
        grid: Grid,
        places: Mapping[int, Place],
        *,
        seed: int = 0,
        config: CellRoutingConfig | None = None,
        hears: Callable[[Place, Place], bool] | None = None,
    ) -> None:
        self.grid = grid
        self.places = dict(places)
        self.now_us = 0
        self.log: list[tuple[NodeId, NodeId | None, Message]] = []
        self.logging = True
        self._hears = hears or (lambda one, other: math.dist(one, other) <= grid.range_m)
        self._queue: deque[tuple[NodeId, NodeId, Message]] = deque()
        self.ears: dict[NodeId, Ear] = {}
        self.nodes: dict[NodeId, GeographicRouting] = {}
        self._outboxes: dict[NodeId, Outbox] = {}
        self.links: dict[NodeId, list[NodeId]] = {}
        for number, place in self.places.items():
            node_id, outbox, ear = name(number), Outbox(), Ear()
            rng = derive_rng(seed, "cells", number)
            node = GeographicRouting(node_id, grid, outbox, rng, ear, config)
            node.start(grid.cell_at(place), 0, serving=True)
            outbox.drain_actions()
            self.nodes[node_id], self.ears[node_id] = node, ear
            self._outboxes[node_id] = outbox
        self._link()

    def _link(self) -> None:
        self.links = {
            name(one): [
                name(other)
                for other in self.places
                if other != one and self._hears(self.places[one], self.places[other])
            ]
            for one in self.places
        }

    # Time and messages

    def settle(self, rounds: int = ROUNDS) -> Field:
        """Lets all nodes send some beacons."""
        logging, self.logging = self.logging, False
        for _ in range(rounds):
            self.now_us += SECOND_US
            for node_id, node in self.nodes.items():
                node.on_timer(BeaconTimer(), self.now_us)
                self.run(node_id)
        self.logging = logging
        return self

    def run(self, node_id: NodeId) -> None:
        """Carries out the actions of a node, and all actions that follow from them."""
        self._carry_out(node_id)
        while self._queue:
            sender, to, message = self._queue.popleft()
            if to in self.nodes:
                self.nodes[to].on_received(sender, message, self.now_us)
                self._carry_out(to)

    def _carry_out(self, node_id: NodeId) -> None:
        for action in self._outboxes[node_id].drain_actions():
            if isinstance(action, Send):
                self._note(node_id, action.to, action.message)
                if action.to in self.links[node_id]:
                    self._queue.append((node_id, action.to, action.message))
                else:
                    self.nodes[node_id].on_send_failed(action.to, action.message, self.now_us)
                    self._carry_out(node_id)
            elif isinstance(action, Broadcast):
                self._note(node_id, None, action.message)
                for to in self.links[node_id]:
                    self._queue.append((node_id, to, action.message))

    def _note(self, sender: NodeId, to: NodeId | None, message: Message) -> None:
        if self.logging:
            self.log.append((sender, to, message))

    def remove(self, number: int) -> None:
        """Removes a node without warning."""
        del self.places[number]
        del self.nodes[name(number)]
        self._link()

    def move(self, number: int, place: Place, *, serving: bool) -> None:
        """Moves a node, which learns its new cell and sends a beacon."""
        self.places[number] = place
        self._link()
        cell = self.grid.cell_at(place)
        self.nodes[name(number)].set_cell(cell, self.now_us, serving=serving)
        self.run(name(number))

    def hops(self) -> list[tuple[NodeId, NodeId]]:
        """Senders and receivers of the packets since the log was cleared."""
        return [(s, to) for s, to, m in self.log if to is not None and isinstance(m, CellPacket)]

    # The oracle

    def cell(self, node_id: NodeId) -> CellId:
        return self.nodes[node_id].cell

    def component(self, node_id: NodeId) -> dict[NodeId, int]:
        """The nodes that a node can reach, with the number of links."""
        found, waiting = {node_id: 0}, deque([node_id])
        while waiting:
            at = waiting.popleft()
            for other in self.links[at]:
                if other not in found and self.nodes[other].serving:
                    found[other] = found[at] + 1
                    waiting.append(other)
        return found

    def closest(self, reached: Mapping[NodeId, int], cell: CellId) -> CellId:
        """The populated cell closest to a cell: the cell itself, or its proxy."""
        return min(
            {self.cell(node_id) for node_id in reached},
            key=lambda c: self.grid.distance_key(c, cell),
        )
