"""The wireless world: nodes with places, whose messages travel by radio.

The carrier that the simulation is about. A message longer than a frame may be is cut into parts
and arrives where all of them do. What the MAC could not deliver is told to the sender.
Clauses: S1, S4, S14.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from thyme.model.ids import NodeId
from thyme.protocol.messages import Message
from thyme.protocol.node import Node, Received, SendFailed
from thyme.protocol.requests import Request, Told
from thyme.sim.driver import Driver, Journal
from thyme.sim.kernel import Kernel
from thyme.sim.radio import BROADCAST, Frame, Radio, RadioConfig, numbers
from thyme.storage.store import Store
from thyme.wire import size_of

PAYLOAD_BYTES_MAX = 2_268
"""What fits into one frame: the network's unit of 2,296 bytes less its own headers."""


class _Parcel:
    """A message on its way, in one part or several."""

    __slots__ = ("arrived", "bytes_left", "everywhere", "message", "number", "sender", "sent", "to")

    def __init__(
        self, sender: NodeId, to: NodeId | None, number: int, message: Message, size: int
    ) -> None:
        self.sender = sender
        self.to = to
        self.number = number
        """The radio's number of the receiver, or `BROADCAST`."""
        self.message = message
        self.bytes_left = size
        self.sent = 0
        self.arrived = 0
        self.everywhere = -1
        """The nodes that have every part so far."""


class WirelessWorld:
    """Nodes at places, a radio between them, and their clock."""

    def __init__(
        self,
        positions: Mapping[NodeId, tuple[float, float]],
        *,
        seed: int,
        config: RadioConfig | None = None,
        start_us: int = 0,
        journal: Journal | None = None,
    ) -> None:
        self.kernel = Kernel(start_us)
        self._names = list(positions)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._driver = Driver(self.kernel, self, journal)
        self.radio = Radio(
            self.kernel,
            list(positions.values()),
            seed=seed,
            config=config or RadioConfig(),
            on_received=self._on_received,
            on_done=self._on_done,
        )
        for number in range(len(self._names)):
            self.radio.switch(number, on=False)
        self.messages: Counter[str] = Counter()
        """Messages handed to the radio, by type."""
        self.bytes: Counter[str] = Counter()
        """Their bytes."""
        self.dropped: Counter[str] = Counter()
        """What the senders' MACs gave up, by cause."""

    @property
    def now_us(self) -> int:
        """What time it is."""
        return self.kernel.now_us

    def add(
        self, node: Node, store: Store, on_told: Callable[[Told], None], *, skew_us: int = 0
    ) -> None:
        """Switches a device on at its place; its clock is `skew_us` ahead."""
        self.radio.switch(self._numbers[node.node_id], on=True)
        self._driver.add(node, store, on_told, skew_us)

    def remove(self, node_id: NodeId) -> None:
        """Switches a device off without warning."""
        self._driver.remove(node_id)
        self.radio.switch(self._numbers[node_id], on=False)

    def ask(self, node_id: NodeId, request: Request) -> None:
        """The application of a node asks for something, now."""
        self._driver.ask(node_id, request)

    def run(self, until_us: int) -> None:
        """Lets everything up to an instant happen."""
        self.kernel.run(until_us)

    def send(self, sender: NodeId, to: NodeId, message: Message) -> None:
        """Sends a message to a node one hop away."""
        number = self._numbers.get(to)
        if number is None:
            self.dropped["unknown"] += 1
        else:
            self._transmit(sender, to, number, message)

    def broadcast(self, sender: NodeId, message: Message) -> None:
        """Sends a message to whoever hears it."""
        self._transmit(sender, None, BROADCAST, message)

    def _transmit(self, sender: NodeId, to: NodeId | None, number: int, message: Message) -> None:
        size = size_of(message)
        kind = type(message).__name__
        self.messages[kind] += 1
        self.bytes[kind] += size
        self._send_part(_Parcel(sender, to, number, message, size))

    def _send_part(self, parcel: _Parcel) -> None:
        """Hands the next part to the MAC; one at a time, so that no queue overflows."""
        length = min(PAYLOAD_BYTES_MAX, parcel.bytes_left)
        parcel.bytes_left -= length
        parcel.sent += 1
        token = (parcel, parcel.sent)
        self.radio.send(self._numbers[parcel.sender], parcel.number, length, token)

    def _on_received(self, frame: Frame, receivers: int, now_us: int) -> None:
        parcel, part = _token(frame)
        if part <= parcel.arrived:
            return  # it came twice, since its acknowledgement was lost
        parcel.arrived = part
        parcel.everywhere &= receivers
        if parcel.bytes_left:
            return
        event = Received(parcel.sender, parcel.message)
        for number in numbers(parcel.everywhere):
            self._driver.feed(self._names[number], event)

    def _on_done(self, frame: Frame, how: str) -> None:
        parcel, _ = _token(frame)
        if how == "sent":
            if parcel.bytes_left:
                self._send_part(parcel)
            return
        self.dropped[how] += 1
        if parcel.to is not None:
            self._driver.feed(parcel.sender, SendFailed(parcel.to, parcel.message))


def _token(frame: Frame) -> tuple[_Parcel, int]:
    token = frame.token
    assert isinstance(token, tuple)
    return token
