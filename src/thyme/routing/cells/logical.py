"""Logical routing: sends messages to logical cells, whose nodes are all one hop away.

Entry point: `LogicalRouting`, a `CellRouting`. Every node hears the beacons of every other node, so
each node knows who serves which cell. A message to a cell goes to one of its nodes, or to a node of
the next populated cell on the ring, which is the proxy of an empty cell; that node delivers it and
broadcasts it in the cell (`deliveries`). There is no forwarding: a node that receives a message
delivers it or drops it.
Clauses: D4, D6–D10, I1, I3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final
from zlib import crc32

import msgspec

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.protocol.messages.cells import CellBeacon, CellBroadcastAck
from thyme.protocol.messages.common import CellBroadcast, CellPacket, Message
from thyme.protocol.messages.requests import FetchObject
from thyme.protocol.node import Timer
from thyme.protocol.outbox import Outbox
from thyme.routing.cells.cell_broadcast import CellBroadcastTimer
from thyme.routing.cells.config import CellRoutingConfig
from thyme.routing.cells.deliveries import CellDeliveries
from thyme.routing.cells.interface import (
    BeaconReceived,
    BeaconTimer,
    CellRoutingUser,
    Destination,
)
from thyme.routing.cells.logical_cells import LogicalCells

_NEIGHBOUR_TIMEOUT_US: Final = 4 * SECOND_US + SECOND_US // 2
"""A neighbour without a beacon for this time is removed; longer than the time between two
beacons ever is."""
_FAILURES_MAX: Final = 3
"""A neighbour that failed to acknowledge this number of messages in a row is removed until its
next beacon."""


class _Neighbour:
    __slots__ = (
        "beacon",
        "cell",
        "failures",
        "last_seen_us",
        "may_become_new",
        "payload",
        "serving",
    )

    def __init__(self, cell: CellId, serving: bool, last_seen_us: int, payload: bytes) -> None:
        self.beacon: CellBeacon | None = None
        """The latest beacon, if it changed nothing; the next one may be the same object."""
        self.may_become_new = False
        """Whether the payload of `beacon` has to be compared each time."""
        self.cell = cell
        self.last_seen_us = last_seen_us
        self.failures = 0
        self.serving = serving
        self.payload = payload
        """That of the latest beacon."""


class LogicalRouting(CellDeliveries):
    """Logical routing on one node; a `CellRouting`."""

    timer_types = (BeaconTimer, CellBroadcastTimer)

    def __init__(
        self,
        node_id: NodeId,
        cells: LogicalCells,
        outbox: Outbox,
        rng: Random,
        user: CellRoutingUser,
        config: CellRoutingConfig | None = None,
    ) -> None:
        super().__init__(node_id, outbox, rng, user, config or CellRoutingConfig())
        self.cells = cells
        self._neighbours: dict[NodeId, _Neighbour] = {}
        self._strangers: dict[NodeId, None] = {}
        """Nodes of other venues in earshot, by their latest beacons."""
        self._accepts: Callable[[bytes], bool] | None = None
        self._nodes_by_cell: dict[CellId, list[NodeId]] | None = None
        """The serving neighbours by cell; None after a change."""
        self._listening_since_us: int | None = None
        self._silent_since_us = 0
        """No neighbour's latest beacon was received before this instant."""
        self._looked_us = 0
        """When this node last looked for silent neighbours; later than now if its clock was set
        back."""

    def start(self, cell: CellId, now_us: int, *, serving: bool) -> None:
        """Starts in a cell, and schedules the first beacon."""
        self._listening_since_us = now_us
        super().start(cell, now_us, serving=serving)

    # Cells

    def is_cell(self, cell: CellId) -> bool:
        return cell in self.cells

    def cell_of_key(self, key: str) -> CellId:
        """The key cell of a key (D3)."""
        return self.cells.cell_of_key(key)

    def distance(self, one: CellId, other: CellId) -> float:
        return self.cells.distance(one, other)

    def nodes_in(self, cell: CellId) -> list[NodeId]:
        """The serving neighbours in a cell."""
        return list(self._populated().get(cell, ()))

    def populated_cells(self) -> tuple[CellId, ...]:
        """The other cells with serving nodes, in order."""
        return tuple(sorted(cell for cell in self._populated() if cell != self._cell))

    def proxy_of(self, cell: CellId, *, exclude_own: bool = False) -> CellId | None:
        """The cell itself if it is populated, else the next populated cell on the ring (D6)."""
        cells = self.populated_cells()
        if self._serving and not exclude_own:
            cells = (self._cell, *cells)
        return min(cells, key=lambda other: self.cells.proxy_order(other, cell), default=None)

    def is_certain_proxy_of(self, cell: CellId) -> bool:
        """Whether the own cell is the proxy of a cell: a node hears every populated cell."""
        return self.proxy_of(cell) == self._cell

    @property
    def neighbour_count(self) -> int:
        """The number of nodes that this node hears."""
        return len(self._neighbours)

    def _populated(self) -> dict[CellId, list[NodeId]]:
        if self._nodes_by_cell is None:
            self._nodes_by_cell = {}
            for node_id, neighbour in self._neighbours.items():
                if neighbour.serving and neighbour.cell in self.cells:
                    self._nodes_by_cell.setdefault(neighbour.cell, []).append(node_id)
            for nodes in self._nodes_by_cell.values():
                nodes.sort(key=self._preference)
        return self._nodes_by_cell

    # Sending

    def send(self, targets: Sequence[Destination], message: Message, now_us: int) -> int:
        """Sends one message to several destinations; returns its number (D7, D9).

        Cells that no longer exist, because their number was lowered, are left out (I3).
        """
        number = self._new_number()
        existing = [to for to in targets if to.cell in self.cells]
        self.traffic.dropped["no such cell"] += len(targets) - len(existing)
        unique = dict.fromkeys(CellTarget(to.cell, to.node) for to in existing)
        if unique:
            packet = CellPacket(
                self._node_id, self._cell, number, 0, tuple(unique), message, self._world
            )
            self._route(packet, now_us)
        return number

    def _route(self, packet: CellPacket, now_us: int) -> None:
        """Sends one copy to each next hop, and delivers the message here."""
        copies: dict[NodeId, list[CellTarget]] = {}
        for target in packet.targets:
            if target.node is None:
                self._route_to_cell(packet, target, copies, now_us)
            elif target.node == self._node_id:
                self._deliver_here(packet, target, packet.hops, now_us)
            elif target.node in self._neighbours or self._is_new(now_us):
                copies.setdefault(target.node, []).append(target)
            else:  # a node out of earshot is not in its cell (D8)
                self._report_undelivered(packet, target, now_us)
        for node_id, node_targets in copies.items():
            self._count_copy(packet.hops)
            copy = msgspec.structs.replace(packet, targets=tuple(node_targets))
            self._outbox.send(node_id, copy)

    def _route_to_cell(
        self,
        packet: CellPacket,
        target: CellTarget,
        copies: dict[NodeId, list[CellTarget]],
        now_us: int,
    ) -> None:
        served = {*self._populated(), *((self._cell,) if self._serving else ())}
        order = self.cells.proxy_order
        cell = min(served, key=lambda other: order(other, target.cell), default=None)
        if cell is None:
            self.traffic.dropped["nobody known"] += 1
        elif cell == self._cell and self._serving:
            self._deliver_here(packet, target, packet.hops, now_us)
        else:
            candidates = self._populated()[cell]
            shared = [node_id for node_id in candidates if node_id in copies]
            chosen = shared[0] if shared else self._choose(candidates, packet.message)
            copies.setdefault(chosen, []).append(target)

    def _choose(self, candidates: list[NodeId], message: Message) -> NodeId:
        """The node to which a message for a cell goes first. It is the same one each time, another
        for each sender: the others get the message by broadcast a little later, and a node finds
        what it has stored just now. An object is fetched from any: one may have missed it."""
        if isinstance(message, FetchObject):
            return self._rng.choice(candidates)
        return candidates[0]

    def _preference(self, node_id: NodeId) -> int:
        """The order in which this node prefers the nodes of a cell (rendezvous hashing)."""
        return crc32(node_id, crc32(self._node_id))

    def _is_new(self, now_us: int) -> bool:
        """Whether this node started so recently that it may not know all others yet."""
        since_us = self._listening_since_us
        return since_us is None or now_us - since_us < _NEIGHBOUR_TIMEOUT_US

    # Inputs

    def receive_quickly(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a beacon that is the same object as the sender's last one, as in a simulation all
        are until something changes; equal ones have the same effect in `on_received`. Drops
        broadcasts inside other cells, which all nodes of a venue receive."""
        if isinstance(message, CellBroadcast):
            return (
                message.receiving_cell != self._cell
                and message.world == self._world
                and sender not in self._strangers
            )
        neighbour = self._neighbours.get(sender)
        if neighbour is None or neighbour.beacon is not message or neighbour.cell == self._cell:
            return False
        if neighbour.may_become_new and self._user.is_new_payload(neighbour.payload):
            return False
        neighbour.last_seen_us = now_us
        neighbour.failures = 0
        return True

    def on_received(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a received message; returns False if it is not a routing message."""
        if isinstance(message, CellBeacon) and message.world == self._world:
            self._on_beacon(sender, message, now_us)  # the most frequent message
            return True
        match message:
            case CellBeacon() | CellPacket() | CellBroadcast() if message.world != self._world:
                self.traffic.dropped["another world"] += 1
            case CellPacket() | CellBroadcast() if sender in self._strangers:
                self.traffic.dropped["another venue"] += 1
            case CellPacket():
                self._on_packet(message, now_us)
            case CellBroadcast():
                self._on_broadcast(sender, message, now_us)
            case CellBroadcastAck():
                self.broadcaster.on_ack(sender, message, now_us)
            case _:
                return False
        return True

    def _on_packet(self, packet: CellPacket, now_us: int) -> None:
        """Delivers a message to this node or to a cell it serves or is proxy of."""
        if packet.origin_cell not in self.cells:
            self.traffic.dropped["no such cell"] += len(packet.targets)
            return
        for target in packet.targets:
            if target.cell not in self.cells:
                self.traffic.dropped["no such cell"] += 1
            elif target.node is None and not self._serving:
                self.traffic.dropped["not serving"] += 1
            elif target.node is None and target.cell != self._cell and self._knows_better(target):
                self.traffic.dropped["not for this cell"] += 1  # the origin retries
            else:
                self._deliver_here(packet, target, packet.hops + 1, now_us)

    def _knows_better(self, target: CellTarget) -> bool:
        """Whether this node knows nodes that serve a cell, so that it must not act as proxy."""
        return bool(self._populated().get(target.cell))

    def _on_beacon(self, sender: NodeId, beacon: CellBeacon, now_us: int) -> None:
        neighbour = self._neighbours.get(sender)
        payload = beacon.payload
        if neighbour is None or neighbour.payload != payload:
            if self._accepts is not None and not self._accepts(payload):
                self._on_stranger(sender)
                return
            self._strangers.pop(sender, None)
        # Of all that a node receives, most are beacons that tell nothing new.
        if (
            neighbour is not None
            and neighbour.cell == beacon.cell
            and neighbour.serving == beacon.serving
        ):
            neighbour.last_seen_us = now_us
            neighbour.failures = 0
            neighbour.payload = payload
            self._user.on_payload(sender, beacon.cell, payload)
            if beacon.cell != self._cell and not self._user.is_new_payload(payload):
                neighbour.beacon = beacon
                neighbour.may_become_new = self._user.may_become_new(payload)
                return
            neighbour.beacon = None
        else:
            full = neighbour is None and len(self._neighbours) >= self._config.neighbours_max
            if sender == self._node_id or full or beacon.cell not in self.cells:
                self.traffic.dropped["strange beacon"] += 1
                return
            self._neighbours[sender] = _Neighbour(beacon.cell, beacon.serving, now_us, payload)
            self._nodes_by_cell = None
        received = BeaconReceived(
            node=sender, cell=beacon.cell, serving=beacon.serving, payload=payload
        )
        self._user.on_beacon(received, now_us)

    def _on_stranger(self, sender: NodeId) -> None:
        self._remove(sender)
        if len(self._strangers) < self._config.neighbours_max:
            self._strangers[sender] = None
        self.traffic.dropped["another venue"] += 1

    def accept_beacons(self, accepts: Callable[[bytes], bool]) -> None:
        """Ignores nodes whose beacons have a payload that is not accepted: those of other venues
        (I1). To be called again when another venue becomes the own one."""
        self._accepts = accepts
        for neighbour in self._neighbours.values():
            neighbour.payload = b""
            neighbour.beacon = None

    def on_timer(self, timer: Timer, now_us: int) -> bool:
        """Handles a timer; returns False if it is not a timer of routing."""
        if isinstance(timer, CellBroadcastTimer):
            for node_id in self.broadcaster.on_timer(timer, now_us, self._is_peer):
                self._record_failure(node_id)
            return True
        if not isinstance(timer, BeaconTimer):
            return False
        self._remove_silent(now_us)
        self._delivered.expire(now_us)
        self._send_beacon(now_us)
        return True

    def _remove_silent(self, now_us: int) -> None:
        """Removes neighbours without a recent beacon. None can be silent for too long before the
        one that was silent for longest at the last look."""
        limit_us = now_us - _NEIGHBOUR_TIMEOUT_US
        looked_us, self._looked_us = self._looked_us, now_us
        if limit_us <= self._silent_since_us and looked_us <= now_us:
            return
        silent = [n for n, known in self._neighbours.items() if known.last_seen_us < limit_us]
        for node_id in silent:
            self._remove(node_id)
        seen_us = [known.last_seen_us for known in self._neighbours.values()]
        self._silent_since_us = min(seen_us, default=now_us)

    def _send_beacon(self, now_us: int) -> None:
        self._broadcast_beacon(b"", now_us)

    def on_send_failed(self, to: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message that a node did not acknowledge: tries another node of a cell, or
        reports an absent node (D8, D10). Returns False if it is not a routing message."""
        if isinstance(message, CellBroadcast):
            self._record_failure(to)
            self.broadcaster.on_send_failed(to, message, now_us)
        if not isinstance(message, CellPacket):
            return isinstance(message, CellBroadcast | CellBroadcastAck)
        for target in message.targets:
            if target.node == to:
                self._report_undelivered(message, target, now_us)
        remaining = tuple(target for target in message.targets if target.node != to)
        self._remove(to)
        if remaining and self._config.reroute:
            self.traffic.rerouted += len(remaining)
            self._route(msgspec.structs.replace(message, targets=remaining), now_us)
        elif remaining:
            self.traffic.dropped["not acknowledged"] += len(remaining)
        return True

    def _is_peer(self, node_id: NodeId) -> bool:
        """Whether a node serves the own cell and its beacons are received."""
        neighbour = self._neighbours.get(node_id)
        return neighbour is not None and neighbour.serving and neighbour.cell == self._cell

    def _record_failure(self, node_id: NodeId) -> None:
        neighbour = self._neighbours.get(node_id)
        if neighbour is not None:
            neighbour.failures += 1
            if neighbour.failures >= _FAILURES_MAX:
                self._remove(node_id)

    def _remove(self, node_id: NodeId) -> None:
        if self._neighbours.pop(node_id, None) is not None:
            self._nodes_by_cell = None

    # The number of cells

    def resize(self, count: int, change_cell: Callable[[CellId], None]) -> None:
        """Changes the number of cells (I3); `change_cell` moves this node to its new cell.

        Neighbours are forgotten until their next beacons: their cells are of the old number.
        """
        cell = LogicalCells(count).cell_of_node(self._node_id)
        self.cells.resize(max(count, len(self.cells)))  # both cells exist during the change
        if cell != self._cell:
            change_cell(cell)
        self.cells.resize(count)
        self._neighbours.clear()
        self._nodes_by_cell = None

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.broadcaster.check()
        assert self._cell in self.cells
        assert self._node_id not in self._neighbours
        assert len(self._neighbours) <= self._config.neighbours_max
        assert len(self._delivered) <= self._config.seen_max
