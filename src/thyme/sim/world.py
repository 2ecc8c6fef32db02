"""Wireless network: simulated nodes with positions, whose messages travel by 802.11 radio.

Entry point: `WirelessNetwork`. A message longer than one frame is fragmented; a node receives it
once it has all fragments. The sender gets `SendFailed` for a unicast that the MAC gave up. Nodes
move along paths (`PathWalker`); a `FaultInjector` may inject faults; traffic is always counted
(`collect_measurements`); a `Recorder` may record the run.
Clauses: S1, S4, S6, S8, S9, S14, S17.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message
from thyme.protocol.node import Moved, Node, Received, SendFailed
from thyme.protocol.requests import Request, Told
from thyme.sim.driver import Driver, Journal
from thyme.sim.energy import Phone
from thyme.sim.faults import Fault
from thyme.sim.kernel import Kernel
from thyme.sim.measure import Ledger, Measurements, kind_of, measured
from thyme.sim.motion import Motion
from thyme.sim.parcels import Parcel
from thyme.sim.paths import Leg, Point
from thyme.sim.phones import NEXUS_6
from thyme.sim.radio import BROADCAST, Frame, Radio, RadioConfig
from thyme.sim.recorder import (
    AskedFor,
    Befell,
    Event,
    GaveUp,
    HeardMessage,
    Recorder,
    SentMessage,
    Switched,
    WasTold,
    goes_around,
    walks,
)
from thyme.sim.sets import numbers
from thyme.sim.trouble import Trouble
from thyme.storage.store import Store
from thyme.wire import size_of


class WirelessWorld:
    """Nodes at positions, the radio between them, and their clock.

    Instants of `paths` count from the start of the run. A node with a path starts at its first
    position.
    """

    def __init__(
        self,
        positions: Mapping[NodeId, Point],
        *,
        seed: int,
        config: RadioConfig | None = None,
        start_us: int = 0,
        journal: Journal | None = None,
        paths: Mapping[NodeId, Iterable[Leg]] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        config = config or RadioConfig()
        self.kernel = Kernel(start_us)
        self.start_us = start_us
        self.trouble = Trouble(seed)
        self.ledger = Ledger(len(positions))
        self._names = list(positions)
        self._places = list(positions.values())
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._driver = Driver(self.kernel, self, journal)
        self._tries_max = config.mac.transmissions_max
        self._parcels = 0
        self._recorder = recorder
        if recorder is not None:
            range_m = config.phy.range_m() if config.disk is None else config.disk.range_m
            recorder.begin(start_us, self._names, self._places, range_m)
        self.radio = Radio(
            self.kernel,
            self._places,
            seed=seed,
            config=config,
            on_received=self._on_received,
            on_done=self._on_done,
        )
        for number in range(len(self._names)):
            self.radio.switch(number, on=False)
        numbered = {self._numbers[name]: path for name, path in (paths or {}).items()}
        self.motion = Motion(
            self.kernel, self.radio.links, numbered, on_leg=self._on_leg, on_step=self._on_step
        )

    @property
    def now_us(self) -> int:
        """The current instant."""
        return self.kernel.now_us

    # Nodes

    def add(
        self, node: Node, store: Store, on_told: Callable[[Told], None], *, skew_us: int = 0
    ) -> None:
        """Switches a device on and starts its node; its clock is `skew_us` ahead."""
        number = self._numbers[node.node_id]
        self._switch(number, on=True)
        if self._recorder is not None:
            on_told = self._recorded(number, on_told)
        self._driver.add(node, store, on_told, skew_us)
        place = self.place(node.node_id)
        if place != self._places[number]:
            self._on_step(number, place)

    def remove(self, node_id: NodeId) -> None:
        """Switches a device off without warning its node."""
        self._driver.remove(node_id)
        self._switch(self._numbers[node_id], on=False)

    def _switch(self, number: int, *, on: bool) -> None:
        self.ledger.switch(number, self.kernel.now_us, on=on)
        self._record(Switched, number, on)
        self.radio.switch(number, on=on)

    def leave(self, node_id: NodeId) -> None:
        """Gives a node the input `Leaving`: its device will be switched off soon (S7)."""
        self._driver.leave(node_id)

    def set_skew(self, node_id: NodeId, skew_us: int) -> None:
        """Sets a node's clock (S8)."""
        self._driver.set_skew(node_id, skew_us)

    def ask(self, node_id: NodeId, request: Request) -> None:
        """Submits a request of the node's application, now; ignored while the device is off."""
        if node_id in self._driver:
            number = self._numbers[node_id]
            self.ledger.ask(number, request)
            self._record(AskedFor, number, request.label)
            self._driver.ask(node_id, request)

    def place(self, node_id: NodeId) -> Point:
        """The current position of a node."""
        number = self._numbers[node_id]
        return self.motion.place(number) or self._places[number]

    def run(self, until_us: int) -> None:
        """Runs all events up to and including an instant."""
        self.kernel.run(until_us)

    # Messages

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Sends a message to a node one hop away."""
        number = self._numbers.get(to)
        if number is None:
            self.ledger.drop(self._numbers[sender], "unknown")
        else:
            self._transmit(sender, to, number, message)

    def broadcast(self, sender: NodeId, message: Message) -> None:
        """Sends a message to every node in range."""
        self._transmit(sender, None, BROADCAST, message)

    def _transmit(self, sender: NodeId, to: NodeId | None, number: int, message: Message) -> None:
        size = size_of(message)
        source = self._numbers[sender]
        kind = kind_of(message)
        counts = self.ledger.send(source, message, kind, size)
        self._parcels += 1
        if self._recorder is not None:
            target = None if to is None else number
            around = goes_around(message)
            self._record(SentMessage, self._parcels, source, target, kind, size, around)
        now_us = self.kernel.now_us
        self._send_part(
            Parcel(self._parcels, sender, source, to, number, message, size, counts, now_us)
        )

    def _send_part(self, parcel: Parcel) -> None:
        """Gives the next fragment to the MAC; one at a time, so that no queue overflows."""
        token = (parcel, parcel.cut())
        self.radio.send(parcel.source, parcel.number, parcel.length, token)

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        parcel, part = _token(frame)
        if part <= parcel.arrived:
            return  # a duplicate: its acknowledgement was lost
        if not self.trouble.calm:
            receivers = self._spared(parcel, receivers)
            parcel.taken = not receivers and parcel.to is not None
            if parcel.taken:
                return
        parcel.arrived = part
        parcel.everywhere &= receivers
        if not parcel.bytes_left and parcel.everywhere:
            self._arrive(parcel)

    def _spared(self, parcel: Parcel, receivers: int) -> int:
        """The receivers that no fault cuts off from the sender, as a bit set."""
        reaches, sender = self.trouble.reaches, parcel.sender
        return sum(
            1 << number for number in numbers(receivers) if reaches(sender, self._names[number])
        )

    def _arrive(self, parcel: Parcel) -> None:
        """Delivers a complete message to its receivers, at once unless faults are active."""
        nodes = parcel.everywhere
        if parcel.sent > 1:  # a node that restarted meanwhile has lost the first fragments
            nodes &= self._on_since(parcel.begun_us)
        event = Received(parcel.sender, parcel.message)
        if not self.trouble.calm:
            self._arrive_in_trouble(parcel, numbers(nodes), event)
            return
        receivers = numbers(nodes)
        if self._recorder is not None:
            self._record(HeardMessage, parcel.serial, receivers)
        parcel.counts.hear(nodes, parcel.size)
        names = self._names
        self._driver.feed_all([names[number] for number in receivers], event)

    def _on_since(self, begun_us: int) -> int:
        """The nodes that have been on since an instant, as a bit set."""
        return sum(
            1 << number
            for number, since_us in enumerate(self.ledger.on_since_us)
            if (since_us or 0) <= begun_us
        )

    def _arrive_in_trouble(self, parcel: Parcel, receivers: list[int], event: Received) -> None:
        for number in receivers:
            for delay_us in self.trouble.delays_us(self._names[number]):
                if delay_us:
                    late = (parcel, number, event)
                    self.kernel.at(self.kernel.now_us + delay_us, self._bring, late)
                else:
                    self._bring((parcel, number, event))

    def _bring(self, argument: tuple[Parcel, int, Received]) -> None:
        parcel, number, event = argument
        if self._names[number] in self._driver:
            parcel.counts.hear(1 << number, parcel.size)
            self._record(HeardMessage, parcel.serial, (number,))
            self._driver.feed(self._names[number], event)

    def _on_done(self, frame: Frame, how: str) -> None:
        parcel, part = _token(frame)
        if how == "sent":
            if parcel.taken:
                how = self._repeat(parcel, part)
            elif parcel.bytes_left:
                self._send_part(parcel)
        if how == "sent":
            return
        self.ledger.drop(parcel.source, how)
        self._record(GaveUp, parcel.serial, how)
        if parcel.to is not None and how == "exceeded":
            # A frame dropped in the queue says nothing about the neighbour, so it is not reported.
            # As an event of its own: the node may still be handling the input that made it send.
            failed = SendFailed(parcel.to, parcel.message)
            self.kernel.at(self.kernel.now_us, self._fail, (parcel.sender, failed))

    def _repeat(self, parcel: Parcel, part: int) -> str:
        """Sends a frame again that a fault kept from its receiver, as often as the MAC would."""
        parcel.taken = False
        parcel.tries += 1
        if parcel.tries >= self._tries_max:
            return "exceeded"
        self.ledger.repeated += 1
        self.radio.send(parcel.source, parcel.number, parcel.length, (parcel, part))
        return "sent"

    def _fail(self, argument: tuple[NodeId, SendFailed]) -> None:
        self._driver.feed(*argument)

    # Measurements and recording

    def measured(self, phone: Phone = NEXUS_6) -> Measurements:
        """The measurements of the run so far; `phone` sets the energy model (S9, S14)."""
        span_us = self.kernel.now_us - self.start_us
        return measured(self.ledger, self.radio, self._names, phone, span_us, self.kernel.now_us)

    def note(self, fault: Fault, begins: bool) -> None:
        """Records the begin or end of a fault; a `FaultInjector` calls this (S17)."""
        self._record(Befell, fault, begins)

    def _on_leg(self, number: int, leg: Leg) -> None:
        if self._recorder is not None:
            self._recorder.write(walks(self.kernel.now_us - self.start_us, number, leg))

    def _on_step(self, number: int, place: Point) -> None:
        """Gives a node its new position (D20)."""
        self._driver.feed(self._names[number], Moved(place))

    def _recorded(self, number: int, on_told: Callable[[Told], None]) -> Callable[[Told], None]:
        """Wraps an application's callback so that its events are recorded."""

        def emit(event: Told) -> None:
            self._record(WasTold, number, event.label)
            on_told(event)

        return emit

    def _record(self, make: Callable[..., Event], *fields: object) -> None:
        if self._recorder is not None:
            self._recorder.write(make(self.kernel.now_us - self.start_us, *fields))


def _token(frame: Frame) -> tuple[Parcel, int]:
    token = frame.token
    assert isinstance(token, tuple)
    return token
