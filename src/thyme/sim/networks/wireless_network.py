"""Wireless network: simulated nodes with positions, whose messages travel by 802.11 radio.

Entry point: `WirelessNetwork`. A message longer than one frame is fragmented; a node receives it
once it has all fragments. The sender gets `SendFailed` for a unicast that the MAC gave up. Nodes
move along paths (`PathWalker`); a `FaultInjector` may inject faults; traffic is always counted
(`collect_measurements`); a `Recorder` may record the run.
Clauses: S1, S4, S6, S8, S9, S14, S17, I17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from thyme.map.recording import (
    FaultEvent,
    MessageDroppedEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    OperationLog,
    PowerEvent,
    RecordedEvent,
    Recorder,
    make_move_event,
)
from thyme.model.ids import NodeId
from thyme.model.positions import Position
from thyme.protocol.app_interface import AppEvent, AppRequest
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.description import is_perimeter, kind_of, objects_of
from thyme.protocol.node import Node, PositionChanged, Received, SendFailed
from thyme.sim.engine.bitsets import members_of
from thyme.sim.engine.driver import DrivenNode, Driver, Journal
from thyme.sim.engine.kernel import make_kernel
from thyme.sim.faults.network_faults import NetworkFaults
from thyme.sim.faults.schedule import Fault
from thyme.sim.measurement.energy import Phone
from thyme.sim.measurement.measurements import (
    Measurements,
    TrafficRecorder,
    build_measurements,
)
from thyme.sim.measurement.phones import NEXUS_6
from thyme.sim.mobility.paths import Leg
from thyme.sim.mobility.walker import PathWalker
from thyme.sim.networks.in_transit import MessageInTransit
from thyme.sim.networks.wired_links import WiredLinks
from thyme.sim.radio.radio import BROADCAST, Frame, Radio, RadioConfig
from thyme.storage.store import Store
from thyme.wire.codec import size_of


class WirelessNetwork:
    """Nodes at positions, the radio between them, and their clock.

    Instants of `paths` count from the start of the run. A node with a path starts at its first
    position.
    """

    def __init__(
        self,
        positions: Mapping[NodeId, Position],
        *,
        seed: int,
        config: RadioConfig | None = None,
        start_us: int = 0,
        journal: Journal | None = None,
        paths: Mapping[NodeId, Iterable[Leg]] | None = None,
        recorder: Recorder | None = None,
        wires: WiredLinks | None = None,
    ) -> None:
        config = config or RadioConfig()
        self._wires = wires
        self.kernel = make_kernel(start_us)
        self.start_us = start_us
        self.faults = NetworkFaults(seed)
        self.traffic = TrafficRecorder(len(positions))
        self._node_ids = list(positions)
        self._positions = list(positions.values())
        self._number_of = {name: number for number, name in enumerate(self._node_ids)}
        self._driver = Driver(self.kernel, self, journal)
        self._running: list[DrivenNode | None] = [None] * len(self._node_ids)
        """The running node of each device, None while it is off."""
        self._transmissions_max = config.mac.transmissions_max
        self._messages_sent = 0
        self._recorder = recorder
        self._operations = OperationLog()
        if recorder is not None:
            range_m = config.phy.range_m() if config.unit_disk is None else config.unit_disk.range_m
            recorder.write_header(start_us, self._node_ids, self._positions, range_m)
        self.radio = Radio(
            self.kernel,
            self._positions,
            seed=seed,
            config=config,
            on_received=self._on_received,
            on_done=self._on_done,
        )
        for number in range(len(self._node_ids)):
            self.radio.set_power(number, on=False)
        numbered = {self._number_of[name]: path for name, path in (paths or {}).items()}
        self.walker = PathWalker(
            self.kernel, self.radio.links, numbered, on_leg=self._on_leg, on_step=self._on_step
        )

    @property
    def now_us(self) -> int:
        """The current instant."""
        return self.kernel.now_us

    # Nodes

    def add(
        self, node: Node, store: Store, on_event: Callable[[AppEvent], None], *, skew_us: int = 0
    ) -> None:
        """Switches a device on and starts its node; its clock is `skew_us` ahead."""
        number = self._number_of[node.node_id]
        self._set_power(number, on=True)
        if self._recorder is not None:
            on_event = self._with_recording(number, on_event)
        self._driver.add(node, store, on_event, skew_us)
        self._running[number] = self._driver.get(node.node_id)
        position = self.position_of(node.node_id)
        if position != self._positions[number]:
            self._on_step(number, position)

    def remove(self, node_id: NodeId) -> None:
        """Switches a device off without warning its node."""
        number = self._number_of[node_id]
        self._driver.remove(node_id)
        self._running[number] = None
        self._set_power(number, on=False)

    def _set_power(self, number: int, *, on: bool) -> None:
        self.traffic.record_power(number, self.kernel.now_us, on=on)
        self._record(PowerEvent, number, on)
        self.radio.set_power(number, on=on)

    def leave(self, node_id: NodeId) -> None:
        """Gives a node the input `Leaving`: its device will be switched off soon (S7)."""
        self._driver.leave(node_id)

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets a node's clock (S8)."""
        self._driver.set_skew(node_id, skew_us)

    def send_request(self, node_id: NodeId, request: AppRequest) -> None:
        """Submits a request of the node's application, now; ignored while the device is off."""
        if node_id in self._driver:
            number = self._number_of[node_id]
            self.traffic.count_request(number, request)
            if self._recorder is not None:
                at_us = self.kernel.now_us - self.start_us
                for event in self._operations.on_request(at_us, number, request):
                    self._recorder.write_event(event)
            self._driver.send_request(node_id, request)

    def position_of(self, node_id: NodeId) -> Position:
        """The current position of a node."""
        number = self._number_of[node_id]
        return self.walker.position_of(number) or self._positions[number]

    def run(self, until_us: int) -> None:
        """Runs all events up to and including an instant."""
        self.kernel.run(until_us)

    # Messages

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Sends a message to a node one hop away, by radio or by wire."""
        receiver = self._number_of.get(to)
        if self._wires is not None and self._wires.joins(sender, to):
            self._send_by_wire(self._wires, sender, to, message)
        elif receiver is None:
            self.traffic.count_dropped(self._number_of[sender], "unknown")
        else:
            self._transmit(sender, to, receiver, message)

    def _send_by_wire(
        self, wires: WiredLinks, sender: NodeId, to: NodeId, message: Message
    ) -> None:
        now_us = self.kernel.now_us
        arrival_us = wires.arrival_us(sender, to, size_of(message), now_us)
        if arrival_us is not None and (self.faults.inactive or self.faults.delivers(sender, to)):
            event = (to, Received(sender, message))
            self.kernel.schedule(arrival_us, self._deliver_from_wire, event)

    def _deliver_from_wire(self, event: tuple[NodeId, Received]) -> None:
        self._driver.deliver(*event)

    def broadcast(self, sender: NodeId, message: Message) -> None:
        """Sends a message to every node in range."""
        self._transmit(sender, None, BROADCAST, message)

    def _transmit(self, sender: NodeId, to: NodeId | None, receiver: int, message: Message) -> None:
        size = size_of(message)
        source = self._number_of[sender]
        kind = kind_of(message)
        counts = self.traffic.count_sent(source, message, kind, size)
        self._messages_sent += 1
        if self._recorder is not None:
            target = None if to is None else receiver
            routed = (is_perimeter(message), objects_of(message))
            self._record(MessageSentEvent, self._messages_sent, source, target, kind, size, *routed)
        now_us = self.kernel.now_us
        self._send_fragment(
            MessageInTransit(
                self._messages_sent, sender, source, to, receiver, message, size, counts, now_us
            )
        )

    def _send_fragment(self, transit: MessageInTransit) -> None:
        """Gives the next fragment to the MAC; one at a time, so that no queue overflows."""
        token = (transit, transit.next_fragment())
        self.radio.send(
            transit.sender_number, transit.receiver_number, transit.fragment_bytes, token
        )

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        transit, fragment = _token_of(frame)
        if fragment <= transit.fragments_received:
            return  # a duplicate: its acknowledgement was lost
        if not self.faults.inactive:
            receivers = self._unaffected(transit, receivers)
            transit.lost_to_fault = not receivers and transit.to is not None
            if transit.lost_to_fault:
                return
        transit.fragments_received = fragment
        transit.received_all &= receivers
        if not transit.bytes_left and transit.received_all:
            self._deliver_all(transit)

    def _unaffected(self, transit: MessageInTransit, receivers: int) -> int:
        """The receivers that no fault cuts off from the sender, as a bit set."""
        delivers, sender = self.faults.delivers, transit.sender
        return sum(
            1 << number
            for number in members_of(receivers)
            if delivers(sender, self._node_ids[number])
        )

    def _deliver_all(self, transit: MessageInTransit) -> None:
        """Delivers a complete message to its receivers, at once unless faults are active."""
        nodes = transit.received_all
        if (
            transit.fragments_sent > 1
        ):  # a node that restarted meanwhile has lost the first fragments
            nodes &= self._nodes_on_since(transit.started_us)
        event = Received(transit.sender, transit.message)
        if not self.faults.inactive:
            self._deliver_with_faults(transit, members_of(nodes), event)
            return
        receivers = members_of(nodes)
        if self._recorder is not None:
            self._record(MessageReceivedEvent, transit.serial, receivers)
        transit.counts.count_received(nodes, transit.size)
        running = self._running
        self._driver.deliver_all([running[number] for number in receivers], event)

    def _nodes_on_since(self, begun_us: int) -> int:
        """The nodes that have been on since an instant, as a bit set."""
        return sum(
            1 << number
            for number, since_us in enumerate(self.traffic.on_since_us)
            if (since_us or 0) <= begun_us
        )

    def _deliver_with_faults(
        self, transit: MessageInTransit, receivers: list[int], event: Received
    ) -> None:
        for number in receivers:
            for delay_us in self.faults.delays_us(self._node_ids[number]):
                if delay_us:
                    late = (transit, number, event)
                    self.kernel.schedule(self.kernel.now_us + delay_us, self._deliver, late)
                else:
                    self._deliver((transit, number, event))

    def _deliver(self, argument: tuple[MessageInTransit, int, Received]) -> None:
        transit, number, event = argument
        if self._node_ids[number] in self._driver:
            transit.counts.count_received(1 << number, transit.size)
            self._record(MessageReceivedEvent, transit.serial, (number,))
            self._driver.deliver(self._node_ids[number], event)

    def _on_done(self, frame: Frame, outcome: str) -> None:
        transit, fragment = _token_of(frame)
        if outcome == "sent":
            if transit.lost_to_fault:
                outcome = self._retransmit(transit, fragment)
            elif transit.bytes_left:
                self._send_fragment(transit)
        if outcome == "sent":
            return
        self.traffic.count_dropped(transit.sender_number, outcome)
        self._record(MessageDroppedEvent, transit.serial, outcome)
        if transit.to is not None and outcome == "exceeded":
            # A frame dropped in the queue says nothing about the neighbour, so it is not reported.
            # As an event of its own: the node may still be handling the input that made it send.
            failed = SendFailed(transit.to, transit.message)
            self.kernel.schedule(
                self.kernel.now_us, self._report_send_failure, (transit.sender, failed)
            )

    def _retransmit(self, transit: MessageInTransit, fragment: int) -> str:
        """Sends a frame again that a fault kept from its receiver, as often as the MAC would."""
        transit.lost_to_fault = False
        transit.fault_losses += 1
        if transit.fault_losses >= self._transmissions_max:
            return "exceeded"
        self.traffic.repeated += 1
        self.radio.send(
            transit.sender_number,
            transit.receiver_number,
            transit.fragment_bytes,
            (transit, fragment),
        )
        return "sent"

    def _report_send_failure(self, argument: tuple[NodeId, SendFailed]) -> None:
        self._driver.deliver(*argument)

    # Measurements and recording

    def collect_measurements(self, phone: Phone = NEXUS_6) -> Measurements:
        """The measurements of the run so far; `phone` sets the energy model (S9, S14)."""
        span_us = self.kernel.now_us - self.start_us
        return build_measurements(
            self.traffic, self.radio, self._node_ids, phone, span_us, self.kernel.now_us
        )

    def record_fault(self, fault: Fault, begins: bool) -> None:
        """Records the begin or end of a fault; a `FaultInjector` calls this (S17)."""
        self._record(FaultEvent, msgspec.to_builtins(fault), begins)

    def _on_leg(self, number: int, leg: Leg) -> None:
        if self._recorder is not None:
            at_us = self.kernel.now_us - self.start_us
            start, end = (leg.x0, leg.y0), (leg.x1, leg.y1)
            self._recorder.write_event(make_move_event(at_us, number, leg.end_us, start, end))

    def _on_step(self, number: int, position: Position) -> None:
        """Gives a node its new position (D20)."""
        self._driver.deliver(self._node_ids[number], PositionChanged(position))

    def _with_recording(
        self, number: int, on_event: Callable[[AppEvent], None]
    ) -> Callable[[AppEvent], None]:
        """Wraps an application's callback so that its events are recorded."""

        def emit(event: AppEvent) -> None:
            assert self._recorder is not None
            at_us = self.kernel.now_us - self.start_us
            self._recorder.write_event(self._operations.on_event(at_us, number, event))
            on_event(event)

        return emit

    def _record(self, make: Callable[..., RecordedEvent], *fields: object) -> None:
        if self._recorder is not None:
            self._recorder.write_event(make(self.kernel.now_us - self.start_us, *fields))


def _token_of(frame: Frame) -> tuple[MessageInTransit, int]:
    token = frame.token
    assert isinstance(token, tuple)
    return token
