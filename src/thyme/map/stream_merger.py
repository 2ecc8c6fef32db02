"""Stream merger: joins the maps of several live nodes to one map of the network.

Each node tells what it sent and what it received. A receipt is matched with the sender's own event,
so that one message is one flight from sender to receiver. Streams arrive with small delays; events
are held back for a moment and put in order.
Entry points: `StreamMerger.add_line`, `StreamMerger.flush`.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import assert_never

from msgspec.structs import replace

from thyme.map.hub import MapHub
from thyme.map.recording import (
    AppEventRecord,
    AppRequestEvent,
    FaultEvent,
    GapEvent,
    MessageDroppedEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    MoveEvent,
    NeighbourEvent,
    NodeEvent,
    PowerEvent,
    RecordedEvent,
    RecordingHeader,
    ReplicaEvent,
    decode_event,
    decode_header,
    shift_event,
)
from thyme.model.errors import InputError
from thyme.model.positions import Position

HOLD_US = 250_000
"""Events are held back for so long, until those of all streams are here."""
MOVE_US = 500_000
"""A node that was moved is drawn at its new place after so long."""
MATCH_US = 5_000_000
"""A receipt belongs to a message that is at most so old."""


class _Flight:
    """A message on its way, and who received it."""

    __slots__ = ("at_us", "bytes", "receivers", "serial", "to")

    def __init__(self, serial: int, event: MessageSentEvent) -> None:
        self.serial = serial
        self.at_us = event.at_us
        self.to = event.to
        self.bytes = event.bytes
        self.receivers: set[int] = set()


class _Stream:
    """The events of one node: its numbers of nodes and messages, and ours."""

    def __init__(self, device: int) -> None:
        self.device = device
        """Our number of the node that tells them."""
        self.start_us = 0
        self.nodes: dict[int, int] = {}
        self.serials: dict[int, int] = {}
        self.foreign: dict[int, MessageSentEvent] = {}
        """Messages of others whose receipt follows."""


class StreamMerger:
    """One map made of the streams of several nodes."""

    def __init__(self, hub: MapHub) -> None:
        self._hub = hub
        self._streams: dict[int, _Stream] = {}
        self._waiting: list[tuple[int, int, int, RecordedEvent]] = []
        self._arrivals = 0
        self._serial = 0
        self._flights: dict[tuple[int, str], deque[_Flight]] = {}
        self._devices: dict[int, int] = {}
        self._unnamed: dict[int, tuple[Position, str]] = {}

    def add_device(self, device: int, place: Position, role: str = "") -> None:
        """Announces a node whose place is known; its id follows in the header of its stream."""
        self._unnamed[device] = place, role

    def add_node(self, name: str, place: Position, role: str, now_us: int) -> None:
        """Shows a node that tells nothing itself."""
        self._find_node(name, place, role, now_us)

    def move_device(self, device: int, place: Position, now_us: int) -> None:
        """Tells where a node is now."""
        if device not in self._devices:
            if device in self._unnamed:
                self._unnamed[device] = place, self._unnamed[device][1]
            return
        number = self._devices[device]
        before = self._hub.state.nodes[number].place
        if before != place:
            self._hub.publish(MoveEvent(now_us, number, now_us + MOVE_US, before, place))

    def add_line(self, device: int, line: bytes) -> None:
        """Adds a line of the stream of a node; raises `InputError` if it cannot be read."""
        if line.startswith(b"{"):
            self._on_header(device, decode_header(line))
            return
        stream = self._streams.get(device)
        if stream is None:
            raise InputError("a stream begins with a header")
        event = shift_event(decode_event(line), stream.start_us)
        self._arrivals += 1
        heappush(self._waiting, (event.at_us, self._arrivals, device, event))

    def end_stream(self, device: int, now_us: int) -> None:
        """The connection to a node has ended: it is off, as far as we know."""
        self._streams.pop(device, None)
        if (number := self._devices.get(device)) is not None:
            self._hub.publish(PowerEvent(now_us, number, False))

    def flush(self, now_us: int) -> None:
        """Publishes the events that have been held back for long enough."""
        while self._waiting and self._waiting[0][0] <= now_us - HOLD_US:
            _, _, device, event = heappop(self._waiting)
            stream = self._streams.get(device)
            if stream is not None:
                self._publish(stream, event)
        self._forget(now_us)

    def _on_header(self, device: int, header: RecordingHeader) -> None:
        stream = _Stream(self._find_device(device, header))
        stream.start_us = header.start_us
        self._streams[device] = stream
        places = zip(header.nodes, header.places, strict=True)
        roles = [*header.roles, *[""] * (len(header.nodes) - len(header.roles))]
        for local, ((name, place), role) in enumerate(zip(places, roles, strict=True)):
            stream.nodes[local] = self._find_node(name, place, role, header.start_us)
        self._hub.publish(PowerEvent(header.start_us, stream.device, True))

    def _find_device(self, device: int, header: RecordingHeader) -> int:
        """Our number of a device: that of its id, with the place that was announced."""
        if not header.nodes:
            raise InputError("a stream names at least the node that tells it")
        place, role = self._unnamed.pop(device, (header.places[0], ""))
        number = self._find_node(header.nodes[0], place, role, header.start_us)
        self._devices[device] = number
        self.move_device(device, place, header.start_us)
        return number

    def _find_node(self, name: str, place: Position, role: str, at_us: int) -> int:
        number = self._hub.find_node(name)
        if number is None:
            number = len(self._hub.state.nodes)
            self._hub.publish(NodeEvent(at_us, number, name, place, role))
            self._hub.publish(PowerEvent(at_us, number, True))
        return number

    def _publish(self, stream: _Stream, event: RecordedEvent) -> None:
        nodes, hub = stream.nodes, self._hub
        match event:
            case MessageSentEvent():
                self._on_sent(stream, event)
            case MessageReceivedEvent():
                self._on_received(stream, event)
            case MessageDroppedEvent():
                if (serial := stream.serials.pop(event.message_id, None)) is not None:
                    hub.publish(replace(event, message_id=serial))
            case NodeEvent():
                nodes[event.node] = self._find_node(
                    event.name, event.place, event.role, event.at_us
                )
            case NeighbourEvent():
                hub.publish(replace(event, node=nodes[event.node], peer=nodes[event.peer]))
            case PowerEvent() | MoveEvent() if nodes[event.node] in self._devices.values():
                pass  # a device tells this itself, or its place was announced
            case PowerEvent() | MoveEvent() | AppRequestEvent() | AppEventRecord() | ReplicaEvent():
                hub.publish(replace(event, node=nodes[event.node]))
            case GapEvent() | FaultEvent():
                hub.publish(event)
            case _:
                assert_never(event)

    def _on_sent(self, stream: _Stream, event: MessageSentEvent) -> None:
        to = None if event.to is None else stream.nodes[event.to]
        ours = replace(event, node=stream.nodes[event.node], to=to)
        if ours.node == stream.device:
            stream.serials[event.message_id] = self._depart(ours)
        else:
            stream.foreign[event.message_id] = ours

    def _depart(self, event: MessageSentEvent) -> int:
        self._serial += 1
        flights = self._flights.setdefault((event.node, event.kind), deque())
        flights.append(_Flight(self._serial, event))
        self._hub.publish(replace(event, message_id=self._serial))
        return self._serial

    def _on_received(self, stream: _Stream, event: MessageReceivedEvent) -> None:
        """Matches a receipt with the latest message that may be it."""
        sent = stream.foreign.pop(event.message_id, None)
        if sent is None:
            return
        receiver = stream.device
        for flight in reversed(self._flights.get((sent.node, sent.kind), ())):
            if (
                flight.bytes == sent.bytes
                and flight.to in (None, receiver)
                and receiver not in flight.receivers
            ):
                flight.receivers.add(receiver)
                self._hub.publish(MessageReceivedEvent(event.at_us, flight.serial, (receiver,)))
                return
        if sent.node not in self._devices.values():  # a node that tells nothing itself
            serial = self._depart(sent)
            self._hub.publish(MessageReceivedEvent(event.at_us, serial, (receiver,)))

    def _forget(self, now_us: int) -> None:
        for key, flights in list(self._flights.items()):
            while flights and flights[0].at_us < now_us - MATCH_US:
                flights.popleft()
            if not flights:
                del self._flights[key]
        for stream in self._streams.values():
            if len(stream.serials) > 2_000:
                for message_id in list(stream.serials)[:1_000]:
                    del stream.serials[message_id]
