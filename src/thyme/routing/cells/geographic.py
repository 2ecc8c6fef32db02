"""Geographic routing: forwards messages to cells by the position of the cells.

Entry point: `GeographicRouting`, a `CellRouting`. A node of Thyme-DCS passes inputs to it and
shares its outbox with it. This module copies a message where the paths to its targets diverge,
delivers it to the `CellRoutingUser`, and has it broadcast inside the cell. Beacons are handled by
`beacons`, next-hop decisions by `next_hop`, broadcasts by `cell_broadcast`.
Clauses: D5–D10.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.cell_messages import CellBeacon, SpreadHeard, Undelivered
from thyme.protocol.cells import CellId, CellTarget
from thyme.protocol.messages import CellPacket, CellSpread, Message
from thyme.protocol.node import Timer
from thyme.protocol.outbox import Outbox
from thyme.routing.cells.config import CellsConfig
from thyme.routing.cells.grid import Grid
from thyme.routing.cells.memory import Memory
from thyme.routing.cells.neighbours import Neighbour
from thyme.routing.cells.presence import Presence
from thyme.routing.cells.routing import (
    Arrival,
    BeaconDue,
    Listener,
    NotThere,
    To,
)
from thyme.routing.cells.spreading import Spreading, SpreadTimer
from thyme.routing.cells.steps import Arrived, Onward, Step, Steps, Stuck, plain


class GeographicRouting(Presence):
    """Geographic routing on one node; a `CellRouting`."""

    timers = (BeaconDue, SpreadTimer)

    def __init__(
        self,
        node_id: NodeId,
        grid: Grid,
        outbox: Outbox,
        rng: Random,
        listener: Listener,
        config: CellsConfig | None = None,
    ) -> None:
        config = config or CellsConfig()
        super().__init__(node_id, grid, outbox, rng, listener, config)
        self._steps = Steps(grid, loop_always=config.loop_always)
        self._memory = Memory(config)
        self._passed = Memory(config)
        self.spreading = Spreading(outbox, config)
        # Random, so that a restarted node does not reuse numbers of its earlier incarnation.
        self._next_number = rng.getrandbits(32)

    def surely_keeps(self, cell: CellId) -> bool:
        """Whether the own cell is the proxy of a cell, and no unknown cell can be closer."""
        if self.keeper(cell) != self._cell:
            return False
        around = self.neighbours.around(self._cell)
        return cell == self._cell or self._steps.nobody_closer(around, cell)

    # Sending

    def send(self, targets: Sequence[To], message: Message, now_us: int) -> int:
        """Sends one message to several destinations; returns its number (D7, D9)."""
        number = self._number()
        wanted = dict.fromkeys(CellTarget(to.cell, to.node) for to in targets)
        for target in wanted:
            if target.cell not in self.grid:
                raise ValueError(f"cell {target.cell} is outside the grid")
        if wanted:
            packet = CellPacket(
                self._node_id,
                self._cell,
                number,
                0,
                tuple(wanted),
                message,
                self._world,
            )
            self._route(packet, 0, now_us)
        return number

    def spread(self, message: Message, now_us: int) -> int:
        """Broadcasts a message to the other nodes of the own cell; returns its number (D7)."""
        number, cell = self._number(), self._cell
        world = self._world
        spread = CellSpread(self._node_id, cell, number, 0, cell, cell, message, world)
        self.spreading.start(spread, self.nodes_in(cell), now_us)
        self.traffic.sent += 1
        return number

    def when_heard(self, arrival: Arrival, then: Callable[[int], None], now_us: int) -> None:
        """Calls a function once all nodes of the cell acknowledged a delivered message (B2)."""
        cell = arrival.cell
        self.spreading.when_heard(arrival.origin, arrival.number, cell, then, now_us)

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    # Inputs

    def on_received(self, sender: NodeId, message: Message, now_us: int) -> bool:
        """Handles a received message; returns False if it is not a routing message."""
        if isinstance(message, CellBeacon) and message.world == self._world:
            self._on_beacon(sender, message, now_us)  # the most frequent message
            return True
        match message:
            case CellBeacon() | CellPacket() | CellSpread() if message.world != self._world:
                self.traffic.dropped["another world"] += 1
            case CellPacket():
                self._on_packet(sender, message, now_us)
            case CellSpread():
                self._on_spread(sender, message, now_us)
            case SpreadHeard():
                self.spreading.on_heard(sender, message, now_us)
            case _:
                return False
        return True

    def on_timer(self, timer: Timer, now_us: int) -> bool:
        """Handles a timer; returns False if it is not a timer of routing."""
        if isinstance(timer, SpreadTimer):
            for silent in self.spreading.on_timer(timer, now_us):
                self.neighbours.fail(silent, now_us)
            return True
        if not isinstance(timer, BeaconDue):
            return False
        self.neighbours.expire(now_us)
        self._memory.expire(now_us)
        self._passed.expire(now_us)
        self._beacon(now_us)
        return True

    def on_send_failed(self, to: NodeId, message: Message, now_us: int) -> bool:
        """Handles a message that a neighbour did not acknowledge.

        Returns False if it is not a routing message.
        """
        if isinstance(message, CellSpread):
            self.neighbours.fail(to, now_us)
            self.spreading.on_send_failed(to, message, now_us)
        if not isinstance(message, CellPacket):
            return isinstance(message, CellSpread | SpreadHeard)
        failed = self.neighbours.get(to)
        personal = [target for target in message.targets if target.node == to]
        if personal:
            self.neighbours.forget(to)
        else:
            self.neighbours.fail(to, now_us)
        # The last hop may have been out of range: only the node's cell decides that it is absent
        # (D8).
        outside = self._config.reroute
        around = [target for target in personal if outside and target.cell != self._cell]
        for target in personal:
            if target not in around:
                self._undelivered(message, target, now_us)
        others = tuple(
            target for target in message.targets if target.node != to or target in around
        )
        if not others:
            return True
        if self._config.reroute:
            self.traffic.rerouted += len(others)
            onward = msgspec.structs.replace(message, targets=others)
            self._route(onward, message.hops, now_us, failed)
        else:
            self.traffic.dropped["not acknowledged"] += len(others)
        return True

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.neighbours.check()
        self.spreading.check()
        assert self._cell in self.grid
        assert self._node_id not in (other.node_id for other in self.neighbours.all())
        assert max(len(self._memory), len(self._passed)) <= self._config.memory_max

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
            mine = tuple(target for target in packet.targets if target.node == self._node_id)
            if len(mine) < len(packet.targets):
                self.traffic.dropped["not serving"] += len(packet.targets) - len(mine)
            if not mine:
                return
            packet = msgspec.structs.replace(packet, targets=mine)
        name = (packet.origin, packet.number, hops, packet.targets)
        if not self._passed.is_new(name, now_us):
            self.traffic.dropped["came twice"] += len(packet.targets)
            return
        neighbour = self.neighbours.get(sender)
        if neighbour is not None:
            for target in packet.targets:
                if target.cell != self._cell:
                    self.neighbours.does_not_hear(neighbour, target.cell)
        cell_peer = neighbour is not None and neighbour.serving and neighbour.cell == self._cell
        self._route(packet, hops, now_us, inside=cell_peer)

    def _route(
        self,
        packet: CellPacket,
        hops: int,
        now_us: int,
        failed: Neighbour | None = None,
        *,
        inside: bool = False,
    ) -> None:
        """Decides for each target: sends one copy to each next hop, and delivers the message here.

        `from_cell_peer` says that a node of the same cell forwarded the packet.
        """
        here: list[CellTarget] = []
        onward: list[Onward] = []
        for target in packet.targets:
            step = self._step(target, failed)
            if inside:
                step = self._outward(step)
            match step:
                case Arrived():
                    here.append(target)
                case Onward():
                    onward.append(step)
                case Stuck():
                    self.traffic.dropped[step.cause] += 1
        for node_id, targets in self._shared_hops(onward).items():
            self._count(hops)
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
        for target in here:
            self._arrive(packet, target, hops, now_us)

    def _outward(self, step: Step) -> Step:
        """Forwards a packet from a cell peer only to another cell, or to its target node.

        Otherwise two nodes with little routing information could bounce it between them.
        """
        if not isinstance(step, Onward) or step.nodes[0].node_id == step.target.node:
            return step
        nodes = [node for node in step.nodes if node.cell != self._cell]
        return Onward(nodes, step.target) if nodes else Stuck("nobody in the cell knows the way")

    def _count(self, hops: int) -> None:
        if hops:
            self.traffic.forwarded += 1
        else:
            self.traffic.sent += 1

    def _step(self, target: CellTarget, failed: Neighbour | None) -> Step:
        if target.cell not in self.grid:
            return Stuck("no such cell")
        if target.detour is not None and target.detour.ahead not in self.grid:
            return Stuck("no such cell")
        if target.node is not None:
            if target.node == self._node_id:
                return Arrived()
            # A target node that is a neighbour is reached directly: it may be moving, or alone
            # (D20).
            neighbour = self.neighbours.get(target.node)
            if neighbour is not None and neighbour.cell == target.cell:
                return Onward([neighbour], plain(target))
        around = self.neighbours.around(self._cell)
        if not self._serving:
            return self._steps.from_outside(around, target, failed)
        return self._steps.next(around, target, failed)

    def _shared_hops(self, onward: list[Onward]) -> dict[NodeId, list[CellTarget]]:
        """Groups targets by next hop. The hop is drawn at random from the candidates, unless one of
        them already is the hop of another target."""
        hops: dict[NodeId, list[CellTarget]] = {}
        for step in sorted(onward, key=lambda step: len(step.nodes)):
            names = [node.node_id for node in step.nodes]
            shared = [name for name in names if name in hops]
            chosen = shared[0] if shared else self._rng.choice(names)
            hops.setdefault(chosen, []).append(step.target)
        return hops

    # Deliveries

    def _arrive(self, packet: CellPacket, target: CellTarget, hops: int, now_us: int) -> None:
        """Delivers a message that reached its cell or the cell's proxy.

        The message is for this node, for an absent node, or for all nodes of the cell.
        """
        if target.node not in (None, self._node_id):
            self._undelivered(packet, target, now_us)
            return
        name = (packet.origin, packet.number, target.cell, target.node)
        if not self._memory.is_new(name, now_us):
            return
        if target.node is not None:
            self._tell(packet, target.cell, hops, personal=True, first=True, now_us=now_us)
            return
        others = self.nodes_in(self._cell)
        if others and self._is_for_all(packet):
            self._count(hops)
            self.spreading.start(self._copy(packet, target.cell, hops), others, now_us)
        self._tell(packet, target.cell, hops, personal=False, first=True, now_us=now_us)

    def _is_for_all(self, packet: CellPacket) -> bool:
        """Whether a message is broadcast to the other nodes of the cell."""
        if not self.spreading.concerns_all(packet.message):
            return False
        spread_known = self.spreading.config.spread_known
        return spread_known or not self._listener.knows(
            packet.origin, packet.origin_cell, packet.message
        )

    def _copy(self, packet: CellPacket, cell: CellId, hops: int) -> CellSpread:
        return CellSpread(
            packet.origin,
            packet.origin_cell,
            packet.number,
            hops,
            self._cell,
            cell,
            packet.message,
            packet.world,
        )

    def _on_spread(self, sender: NodeId, spread: CellSpread, now_us: int) -> None:
        """Delivers a broadcast of the own cell; it is not forwarded (D7)."""
        if not self._serving or spread.within != self._cell:
            return
        if spread.origin_cell not in self.grid or spread.cell not in self.grid:
            self.traffic.dropped["no such cell"] += 1
            return
        self.spreading.on_spread(sender, spread)
        name = (spread.origin, spread.number, spread.cell, None)
        if self._memory.is_new(name, now_us):
            hops = spread.hops + 1
            self._tell(spread, spread.cell, hops, personal=False, first=False, now_us=now_us)

    def _tell(
        self,
        carried: CellPacket | CellSpread,
        cell: CellId,
        hops: int,
        *,
        personal: bool,
        first: bool,
        now_us: int,
    ) -> None:
        if isinstance(carried.message, Undelivered):
            lost = carried.message
            failure = NotThere(number=lost.number, node=lost.node, cell=lost.cell)
            self._listener.not_there(failure, now_us)
            return
        arrival = Arrival(
            origin=carried.origin,
            origin_cell=carried.origin_cell,
            number=carried.number,
            cell=cell,
            personal=personal,
            first=first,
            hops=hops,
            message=carried.message,
        )
        self._listener.arrived(arrival, now_us)

    def _undelivered(self, packet: CellPacket, target: CellTarget, now_us: int) -> None:
        """Notifies the sender that its target node is not in its cell; a lost NACK is only counted
        (D8)."""
        assert target.node is not None
        if isinstance(packet.message, Undelivered):
            self.traffic.dropped["sender gone"] += 1
            return
        self.traffic.dropped["not there"] += 1
        if packet.origin == self._node_id:
            failure = NotThere(number=packet.number, node=target.node, cell=target.cell)
            self._listener.not_there(failure, now_us)
        else:
            nack = Undelivered(packet.number, target.node, target.cell)
            self.send([To(packet.origin_cell, packet.origin)], nack, now_us)
