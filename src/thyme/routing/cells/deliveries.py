"""Deliveries: the part of cell routing that does not depend on how cells are laid out.

Entry point: `CellDeliveries`, the base class of `Beaconing` and of `LogicalRouting`. It keeps the
cell of a node, sends its beacons, delivers messages that have arrived to the `CellRoutingUser`, and
has them broadcast inside the cell. The subclass decides how a message reaches a cell (`send`).
Clauses: D4, D6–D8, D20.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.protocol.messages.cells import CellBeacon, Undelivered
from thyme.protocol.messages.common import CellBroadcast, CellPacket, Message
from thyme.protocol.outbox import Outbox
from thyme.protocol.quick_receiver import QuickReceiver
from thyme.routing.cells.cell_broadcast import CellBroadcaster
from thyme.routing.cells.config import CellRoutingConfig
from thyme.routing.cells.duplicate_filter import DuplicateFilter
from thyme.routing.cells.interface import (
    BeaconTimer,
    CellRoutingUser,
    CellTraffic,
    Delivery,
    DeliveryFailure,
    Destination,
)

_BEACON_INTERVAL_US: Final = SECOND_US
"""Mean time between two beacons (D4)."""
_BEACON_JITTER_US: Final = SECOND_US // 2
"""Maximum random deviation from the mean, against synchronised beacons."""
_FIRST_BEACON_US_MAX: Final = SECOND_US // 10
"""Maximum delay of the first beacon after a start."""
_PAYLOAD_BYTES_MAX: Final = 128
"""Maximum size of the payload that the layer above adds to a beacon."""


class CellDeliveries(QuickReceiver):
    """The cell of one node, and the messages delivered to the node or its cell."""

    def __init__(
        self,
        node_id: NodeId,
        outbox: Outbox,
        rng: Random,
        user: CellRoutingUser,
        config: CellRoutingConfig,
    ) -> None:
        self._node_id = node_id
        self._outbox = outbox
        self._rng = rng
        self._user = user
        self._config = config
        self._world = config.world
        self._cell = CellId(0)
        self._serving = False
        self.traffic = CellTraffic()
        self._delivered = DuplicateFilter(config)
        self.broadcaster = CellBroadcaster(node_id, outbox, config)
        # Random, so that a restarted node does not reuse numbers of its earlier incarnation.
        self._next_number = rng.getrandbits(32)
        self._beacon: CellBeacon | None = None
        """The last beacon."""

    # Supplied by the subclass

    def is_cell(self, cell: CellId) -> bool:
        """Whether a cell exists."""
        raise NotImplementedError

    def nodes_in(self, cell: CellId) -> list[NodeId]:
        """The serving neighbours in a cell."""
        raise NotImplementedError

    def send(self, targets: Sequence[Destination], message: Message, now_us: int) -> int:
        """Sends one message to several destinations; returns its number."""
        raise NotImplementedError

    def _send_beacon(self, now_us: int) -> None:
        """Broadcasts a beacon and schedules the next one."""
        raise NotImplementedError

    # The cell of this node

    @property
    def cell(self) -> CellId:
        return self._cell

    @property
    def serving(self) -> bool:
        return self._serving

    def start(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Starts in a cell, and schedules the first beacon."""
        self._set_cell(cell, serving)
        first_us = self._rng.randint(0, _FIRST_BEACON_US_MAX)
        self._outbox.set_timer(BeaconTimer(), now_us + first_us)

    def set_cell(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Changes the cell or the serving state, and sends a beacon at once (D20)."""
        if (cell, serving) != (self._cell, self._serving):
            self._set_cell(cell, serving)
            self._send_beacon(now_us)

    def _set_cell(self, cell: CellId, serving: bool) -> None:
        if not self.is_cell(cell):
            raise ValueError(f"there is no cell {cell}")
        self._cell = cell
        self._serving = serving

    def _broadcast_beacon(self, populated_cells: bytes, now_us: int) -> None:
        payload = self._user.beacon_payload(now_us)
        assert len(payload) <= _PAYLOAD_BYTES_MAX
        beacon = CellBeacon(self._cell, self._serving, populated_cells, payload, self._world)
        if self._beacon is None or self._beacon != beacon:
            self._beacon = beacon
        self._outbox.broadcast(self._beacon)  # the same object if nothing has changed
        self.traffic.beacons += 1
        jitter_us = self._rng.randint(-_BEACON_JITTER_US, _BEACON_JITTER_US)
        self._outbox.set_timer(BeaconTimer(), now_us + _BEACON_INTERVAL_US + jitter_us)

    # Broadcasts in the own cell

    def broadcast_in_cell(self, message: Message, now_us: int) -> int:
        """Broadcasts a message to the other nodes of the own cell; returns its number (D7)."""
        number, cell = self._new_number(), self._cell
        world = self._world
        broadcast = CellBroadcast(self._node_id, cell, number, 0, cell, cell, message, world)
        self.broadcaster.broadcast(broadcast, self.nodes_in(cell), now_us)
        self.traffic.sent += 1
        return number

    def when_acknowledged(
        self, delivery: Delivery, callback: Callable[[int], None], now_us: int
    ) -> None:
        """Calls a function once all nodes of the cell acknowledged a delivered message (B2)."""
        cell = delivery.cell
        self.broadcaster.when_acknowledged(
            delivery.origin, delivery.number, cell, callback, now_us, delivery.message
        )

    def when_broadcast_acknowledged(
        self, number: int, cell: CellId, callback: Callable[[int], None], now_us: int
    ) -> None:
        """Calls a function once enough nodes acknowledged a broadcast of this node (B2)."""
        self.broadcaster.when_acknowledged(self._node_id, number, cell, callback, now_us)

    def _new_number(self) -> int:
        self._next_number += 1
        return self._next_number

    def _count_copy(self, hops: int) -> None:
        if hops:
            self.traffic.forwarded += 1
        else:
            self.traffic.sent += 1

    # Deliveries

    def _deliver_here(self, packet: CellPacket, target: CellTarget, hops: int, now_us: int) -> None:
        """Delivers a message that reached its cell or the cell's proxy.

        The message is for this node, for an absent node, or for all nodes of the cell.
        """
        if target.node not in (None, self._node_id):
            self._report_undelivered(packet, target, now_us)
            return
        key = (packet.origin, packet.number, target.cell, target.node)
        if not self._delivered.add_if_new(key, now_us):
            return
        if target.node is not None:
            self._deliver_to_user(
                packet, target.cell, hops, is_unicast=True, is_first=True, now_us=now_us
            )
            return
        others = self.nodes_in(self._cell)
        if others and self._should_broadcast(packet, target.cell):
            self._count_copy(hops)
            self.broadcaster.broadcast(
                self._broadcast_copy(packet, target.cell, hops), others, now_us
            )
        self._deliver_to_user(
            packet, target.cell, hops, is_unicast=False, is_first=True, now_us=now_us
        )

    def _should_broadcast(self, packet: CellPacket, cell: CellId) -> bool:
        """Whether a message is broadcast to the other nodes of the cell. One that this node knows
        is so if it is a request which another node may have broadcast in vain."""
        origin, message, config = packet.origin, packet.message, self._config
        if not self.broadcaster.is_for_all(message):
            return False
        if config.broadcast_redundant:
            return True
        if not self._user.is_redundant(origin, packet.origin_cell, message):
            return True
        is_request = config.answer_when_known and hasattr(message, "request_id")
        return is_request and not self.broadcaster.is_waiting_for(origin, message, cell)

    def _broadcast_copy(self, packet: CellPacket, cell: CellId, hops: int) -> CellBroadcast:
        return CellBroadcast(
            packet.origin,
            packet.origin_cell,
            packet.number,
            hops,
            self._cell,
            cell,
            packet.message,
            packet.world,
        )

    def _on_broadcast(self, sender: NodeId, broadcast: CellBroadcast, now_us: int) -> None:
        """Delivers a broadcast of the own cell; it is not forwarded (D7)."""
        if not self._serving or broadcast.receiving_cell != self._cell:
            return
        if not (self.is_cell(broadcast.origin_cell) and self.is_cell(broadcast.addressed_cell)):
            self.traffic.dropped["no such cell"] += 1
            return
        self.broadcaster.on_broadcast(sender, broadcast)
        key = (broadcast.origin, broadcast.number, broadcast.addressed_cell, None)
        if self._delivered.add_if_new(key, now_us):
            hops = broadcast.hops + 1
            self._deliver_to_user(
                broadcast,
                broadcast.addressed_cell,
                hops,
                is_unicast=False,
                is_first=False,
                now_us=now_us,
            )

    def _deliver_to_user(
        self,
        carried: CellPacket | CellBroadcast,
        cell: CellId,
        hops: int,
        *,
        is_unicast: bool,
        is_first: bool,
        now_us: int,
    ) -> None:
        if isinstance(carried.message, Undelivered):
            nack = carried.message
            failure = DeliveryFailure(number=nack.number, node=nack.node, cell=nack.cell)
            self._user.on_delivery_failure(failure, now_us)
            return
        delivery = Delivery(
            origin=carried.origin,
            origin_cell=carried.origin_cell,
            number=carried.number,
            cell=cell,
            is_unicast=is_unicast,
            is_first=is_first,
            hops=hops,
            message=carried.message,
        )
        self._user.on_delivery(delivery, now_us)

    def _report_undelivered(self, packet: CellPacket, target: CellTarget, now_us: int) -> None:
        """Notifies the sender that its target node is not in its cell; a lost NACK is only counted
        (D8)."""
        assert target.node is not None
        if isinstance(packet.message, Undelivered):
            self.traffic.dropped["sender gone"] += 1
            return
        self.traffic.dropped["not there"] += 1
        if packet.origin == self._node_id:
            failure = DeliveryFailure(number=packet.number, node=target.node, cell=target.cell)
            self._user.on_delivery_failure(failure, now_us)
        else:
            nack = Undelivered(packet.number, target.node, target.cell)
            self.send([Destination(packet.origin_cell, packet.origin)], nack, now_us)
