"""Geographic routing: forwards messages to cells by the position of the cells.

Entry point: `GeographicRouting`, a `CellRouting`. A node of Thyme-DCS passes inputs to it and
shares its outbox with it. This module copies a message where the paths to its targets diverge.
Beacons are handled by `beacons`, next-hop decisions by `next_hop`, deliveries by `deliveries`.
Clauses: D5–D10.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId, CellTarget
from thyme.protocol.messages.cells import CellBeacon, CellBroadcastAck
from thyme.protocol.messages.common import CellBroadcast, CellPacket, Message
from thyme.protocol.node import Timer
from thyme.protocol.outbox import Outbox
from thyme.routing.cells.beacons import Beaconing
from thyme.routing.cells.cell_broadcast import CellBroadcastTimer
from thyme.routing.cells.config import CellRoutingConfig
from thyme.routing.cells.duplicate_filter import DuplicateFilter
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.interface import (
    BeaconTimer,
    CellRoutingUser,
    Destination,
)
from thyme.routing.cells.neighbours import Neighbour, RadioReach
from thyme.routing.cells.next_hop import (
    Deliver,
    Forward,
    HopDecision,
    NextHopSelector,
    NoRoute,
    without_perimeter_state,
)
from thyme.routing.cells.proxies import has_no_closer_cell


class GeographicRouting(Beaconing):
    """Geographic routing on one node; a `CellRouting`."""

    timer_types = (BeaconTimer, CellBroadcastTimer)

    def __init__(
        self,
        node_id: NodeId,
        grid: Grid,
        outbox: Outbox,
        rng: Random,
        user: CellRoutingUser,
        config: CellRoutingConfig | None = None,
    ) -> None:
        config = config or CellRoutingConfig()
        super().__init__(node_id, grid, outbox, rng, user, config)
        self._selector = NextHopSelector(
            grid,
            always_perimeter=config.always_perimeter,
            rates_links=config.beacon_gap_us_max is not None,
        )
        self._forwarded = DuplicateFilter(config)
        self.reach = RadioReach(grid, self.neighbours)

    def is_certain_proxy_of(self, cell: CellId) -> bool:
        """Whether the own cell is the proxy of a cell, and no unknown cell can be closer."""
        if self.proxy_of(cell) != self._cell:
            return False
        neighbourhood = self.neighbours.neighbourhood(self._cell)
        return cell == self._cell or has_no_closer_cell(self.grid, neighbourhood, cell)

    # Sending

    def send(self, targets: Sequence[Destination], message: Message, now_us: int) -> int:
        """Sends one message to several destinations; returns its number (D7, D9)."""
        number = self._new_number()
        packet_targets = dict.fromkeys(
            CellTarget(destination.cell, destination.node) for destination in targets
        )
        for target in packet_targets:
            if target.cell not in self.grid:
                raise ValueError(f"cell {target.cell} is outside the grid")
        if packet_targets:
            packet = CellPacket(
                self._node_id,
                self._cell,
                number,
                0,
                tuple(packet_targets),
                message,
                self._world,
            )
            self._route(packet, 0, now_us)
        return number

    # Inputs

    def on_received(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a received message; returns False if it is not a routing message."""
        if isinstance(message, CellBeacon) and message.world == self._world:
            self._on_beacon(sender, message, now_us)  # the most frequent message
            return True
        match message:
            case CellBeacon() | CellPacket() | CellBroadcast() if message.world != self._world:
                self.traffic.dropped["another world"] += 1
            case CellPacket():
                self._on_packet(sender, message, now_us)
            case CellBroadcast():
                self._on_broadcast(sender, message, now_us)
            case CellBroadcastAck():
                self.broadcaster.on_ack(sender, message, now_us)
            case _:
                return False
        return True

    def on_timer(self, timer: Timer, now_us: int) -> bool:
        """Handles a timer; returns False if it is not a timer of routing."""
        if isinstance(timer, CellBroadcastTimer):
            for node_id in self.broadcaster.on_timer(timer, now_us):
                self.neighbours.record_failure(node_id, now_us)
            return True
        if not isinstance(timer, BeaconTimer):
            return False
        self.neighbours.expire(now_us)
        self._delivered.expire(now_us)
        self._forwarded.expire(now_us)
        self.reach.update(self._cell, now_us)
        self._send_beacon(now_us)
        return True

    def on_send_failed(self, to: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message that a neighbour did not acknowledge.

        Returns False if it is not a routing message.
        """
        if isinstance(message, CellBroadcast):
            self.neighbours.record_failure(to, now_us)
            self.broadcaster.on_send_failed(to, message, now_us)
        if not isinstance(message, CellPacket):
            return isinstance(message, CellBroadcast | CellBroadcastAck)
        failed = self.neighbours.get(to)
        unicast = [target for target in message.targets if target.node == to]
        if unicast:
            self.neighbours.remove(to)
        else:
            self.neighbours.record_failure(to, now_us)
        # The last hop may have been out of range: only the node's cell decides that it is absent
        # (D8).
        may_reroute = self._config.reroute
        rerouted = [target for target in unicast if may_reroute and target.cell != self._cell]
        for target in unicast:
            if target not in rerouted:
                self._report_undelivered(message, target, now_us)
        remaining = tuple(
            target for target in message.targets if target.node != to or target in rerouted
        )
        if not remaining:
            return True
        if self._config.reroute:
            self.traffic.rerouted += len(remaining)
            copy = msgspec.structs.replace(message, targets=remaining)
            self._route(copy, message.hops, now_us, failed)
        else:
            self.traffic.dropped["not acknowledged"] += len(remaining)
        return True

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.neighbours.check()
        self.broadcaster.check()
        assert self._cell in self.grid
        assert self._node_id not in (other.node_id for other in self.neighbours.all())
        assert max(len(self._delivered), len(self._forwarded)) <= self._config.seen_max

    # Packets

    def _on_packet(self, sender: NodeId, packet: CellPacket, now_us: int) -> None:
        hops = packet.hops + 1
        if packet.origin_cell not in self.grid:
            self.traffic.dropped["no such cell"] += len(packet.targets)
            return
        if hops >= self._config.hops_max:
            self.traffic.dropped["too many hops"] += len(packet.targets)
            return
        if not self._serving:
            own_targets = tuple(target for target in packet.targets if target.node == self._node_id)
            if len(own_targets) < len(packet.targets):
                self.traffic.dropped["not serving"] += len(packet.targets) - len(own_targets)
            if not own_targets:
                return
            packet = msgspec.structs.replace(packet, targets=own_targets)
        key = (packet.origin, packet.number, hops, packet.targets)
        if not self._forwarded.add_if_new(key, now_us):
            self.traffic.dropped["came twice"] += len(packet.targets)
            return
        neighbour = self.neighbours.get(sender)
        if neighbour is not None:
            for target in packet.targets:
                if target.cell != self._cell:
                    self.neighbours.mark_out_of_range(neighbour, target.cell)
        cell_peer = neighbour is not None and neighbour.serving and neighbour.cell == self._cell
        self._route(packet, hops, now_us, from_cell_peer=cell_peer)

    def _route(
        self,
        packet: CellPacket,
        hops: int,
        now_us: int,
        failed: Neighbour | None = None,
        *,
        from_cell_peer: bool = False,
    ) -> None:
        """Decides for each target: sends one copy to each next hop, and delivers the message here.

        `from_cell_peer` says that a node of the same cell forwarded the packet.
        """
        delivered: list[CellTarget] = []
        forwards: list[Forward] = []
        for target in packet.targets:
            decision = self._decide(target, failed)
            if from_cell_peer:
                decision = self._force_out_of_cell(decision)
            match decision:
                case Deliver():
                    delivered.append(target)
                case Forward():
                    forwards.append(decision)
                case NoRoute():
                    self.traffic.dropped[decision.cause] += 1
        if self._config.share_hops and len(forwards) > 1 and self._serving:
            neighbourhood = self.neighbours.neighbourhood(self._cell)
            hops_chosen = self._selector.share_hops(neighbourhood, forwards, self._rng)
        else:
            hops_chosen = self._group_by_next_hop(forwards)
        for node_id, targets in hops_chosen.items():
            self._count_copy(hops)
            copy = CellPacket(
                packet.origin,
                packet.origin_cell,
                packet.number,
                hops,
                tuple(targets),
                packet.message,
                packet.world,
            )
            self._outbox.send(node_id, copy)
        for target in delivered:
            self._deliver_here(packet, target, hops, now_us)

    def _force_out_of_cell(self, decision: HopDecision) -> HopDecision:
        """Forwards a packet from a cell peer only to another cell, or to its target node.

        Otherwise two nodes with little routing information could bounce it between them.
        """
        if (
            not isinstance(decision, Forward)
            or decision.candidates[0].node_id == decision.target.node
        ):
            return decision
        candidates = [node for node in decision.candidates if node.cell != self._cell]
        return (
            Forward(candidates, decision.target)
            if candidates
            else NoRoute("nobody in the cell knows the way")
        )

    def _decide(self, target: CellTarget, failed: Neighbour | None) -> HopDecision:
        if target.cell not in self.grid:
            return NoRoute("no such cell")
        if target.perimeter is not None and target.perimeter.next_cell not in self.grid:
            return NoRoute("no such cell")
        if target.node is not None:
            if target.node == self._node_id:
                return Deliver()
            # A target node that is a neighbour is reached directly: it may be moving, or alone
            # (D20).
            neighbour = self.neighbours.get(target.node)
            if neighbour is not None and neighbour.cell == target.cell:
                return self._decide_for_neighbour(neighbour, target)
        neighbourhood = self.neighbours.neighbourhood(self._cell)
        if not self._serving:
            return self._selector.decide_from_outside(neighbourhood, target, failed)
        return self._selector.decide(neighbourhood, target, failed)

    def _decide_for_neighbour(self, neighbour: Neighbour, target: CellTarget) -> Forward:
        """Sends to a neighbour directly; over a weak link only if no strong one leads closer."""
        if not neighbour.is_strong and self._serving and target.cell != self._cell:
            limit = self.grid.distance_key(self._cell, target.cell)
            neighbourhood = self.neighbours.neighbourhood(self._cell)
            detour = self._selector.decide_by_strong_links(neighbourhood, target, limit)
            if detour is not None:
                return detour
        return Forward([neighbour], without_perimeter_state(target))

    def _group_by_next_hop(self, forwards: list[Forward]) -> dict[NodeId, list[CellTarget]]:
        """Groups targets by next hop. The hop is drawn at random from the candidates, unless one of
        them already is the hop of another target."""
        hops: dict[NodeId, list[CellTarget]] = {}
        for forward in sorted(forwards, key=lambda forward: len(forward.candidates)):
            node_ids = [node.node_id for node in forward.candidates]
            shared = [node_id for node_id in node_ids if node_id in hops]
            chosen = shared[0] if shared else self._rng.choice(node_ids)
            hops.setdefault(chosen, []).append(forward.target)
        return hops
