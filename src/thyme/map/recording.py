"""Recordings: what the nodes of a network did, as JSON lines, from a simulation or from live nodes.

Entry points: `Recorder`, `Recording`. The first line is the header: node ids and start positions.
Each further line is one event, as an array of a type tag, the instant in microseconds since the
start, and the fields of the records below. Nodes and messages are numbers. Movement is recorded as
legs rather than positions, so a recording of a thousand moving nodes stays small. The same
simulated run gives the same bytes. `thyme.sim.playback.page` makes a page from a recording; a page
of live nodes reads the same lines as they happen.
Clause: S17.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from thyme.model.bounded import BoundedDict
from thyme.model.errors import InputError
from thyme.model.ids import Key
from thyme.model.positions import Position
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    Failed,
    Finished,
    InsertBatch,
    MarkConsumed,
    NotificationEvent,
    Pause,
)

VERSION = 1
REQUESTS_MAX = 10_000
"""Number of requests without a reply that are remembered."""

T = TypeVar("T")


class RecordingHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a recording: the nodes and their start positions."""

    recording: int = VERSION
    start_us: int
    """The simulated instant at which the recording starts."""
    nodes: tuple[str, ...]
    """Node ids in hexadecimal."""
    places: tuple[Position, ...]
    range_m: float
    """Approximate radio range; 0 if it is not known."""
    roles: tuple[str, ...] = ()
    """The roles of the nodes: empty for a plain node, `station` or `server`."""
    title: str = ""
    area: tuple[float, float] | None = None
    """Width and height in metres."""
    grid: tuple[int, int, float] | None = None
    """Columns, rows and the width of a cell."""
    control: tuple[str, ...] = ()
    """The labels of routing control messages; a page of live nodes needs them."""


class NodeEvent(msgspec.Struct, frozen=True, array_like=True, tag="node"):
    """A node that the header does not list was seen; it gets the next number."""

    at_us: int
    node: int
    name: str
    """The node id in hexadecimal."""
    place: Position
    role: str = ""


class NeighbourEvent(msgspec.Struct, frozen=True, array_like=True, tag="near", gc=False):
    """A neighbour of a node came or left; only live nodes record it."""

    at_us: int
    node: int
    peer: int
    on: bool


class GapEvent(msgspec.Struct, frozen=True, array_like=True, tag="gap", gc=False):
    """So many events are missing here, because the reader was too slow."""

    at_us: int
    count: int


class PowerEvent(msgspec.Struct, frozen=True, array_like=True, tag="on", gc=False):
    """A node started or stopped."""

    at_us: int
    node: int
    on: bool


class MoveEvent(msgspec.Struct, frozen=True, array_like=True, tag="go"):
    """A node began a leg of its path; a leg that ends where it begins is a pause."""

    at_us: int
    node: int
    end_us: int
    start: Position
    end: Position


class MessageSentEvent(msgspec.Struct, frozen=True, array_like=True, tag="tx"):
    """A node handed a message to its radio, for one node or as a broadcast (None)."""

    at_us: int
    message_id: int
    node: int
    to: int | None
    kind: str
    bytes: int
    perimeter: bool = False
    """Whether the message, or a part of it, is routed around a void (D5)."""
    objects: tuple[str, ...] = ()
    """The ids of the objects that the message is about."""


class MessageReceivedEvent(msgspec.Struct, frozen=True, array_like=True, tag="rx"):
    """One or more nodes received a message."""

    at_us: int
    message_id: int
    nodes: tuple[int, ...]


class MessageDroppedEvent(msgspec.Struct, frozen=True, array_like=True, tag="no", gc=False):
    """The radio of a node dropped a message."""

    at_us: int
    message_id: int
    cause: str


class AppRequestEvent(msgspec.Struct, frozen=True, array_like=True, tag="ask"):
    """The application of a node made a request."""

    at_us: int
    node: int
    request: str
    objects: tuple[str, ...] = ()


class AppEventRecord(msgspec.Struct, frozen=True, array_like=True, tag="told"):
    """The application of a node received an event."""

    at_us: int
    node: int
    event: str
    objects: tuple[str, ...] = ()
    request: str = ""
    """The request that it answers."""
    took_us: int = 0
    """Time since that request."""


class ReplicaEvent(msgspec.Struct, frozen=True, array_like=True, tag="has", gc=False):
    """A sample found a new, changed or removed replica of an object at a node.

    The role is `own`, `active` or `passive`; it is empty if the replica was removed.
    """

    at_us: int
    node: int
    oid: str
    role: str


class FaultEvent(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """A fault of a simulation began, or a timed fault ended."""

    at_us: int
    fault: dict[str, Any]
    """A record of `thyme.sim.faults.schedule`."""
    begins: bool


RecordedEvent = (
    PowerEvent
    | MoveEvent
    | MessageSentEvent
    | MessageReceivedEvent
    | MessageDroppedEvent
    | AppRequestEvent
    | AppEventRecord
    | ReplicaEvent
    | FaultEvent
    | NodeEvent
    | NeighbourEvent
    | GapEvent
)

encode_line = msgspec.json.Encoder().encode
"""Encodes a header or an event as one line, without the line feed."""
_header_decoder = msgspec.json.Decoder(RecordingHeader)
_event_decoder: msgspec.json.Decoder[RecordedEvent] = msgspec.json.Decoder(RecordedEvent)


def decode_header(line: bytes) -> RecordingHeader:
    """Reads the first line of a recording; raises `InputError` if it cannot be read."""
    return _decode_line(_header_decoder, 1, line)


def decode_event(line: bytes) -> RecordedEvent:
    """Reads another line of a recording; raises `InputError` if it cannot be read."""
    return _decode_line(_event_decoder, 0, line)


def shift_event(event: RecordedEvent, by_us: int) -> RecordedEvent:
    """The event on another time line."""
    if isinstance(event, MoveEvent):
        return replace(event, at_us=event.at_us + by_us, end_us=event.end_us + by_us)
    return replace(event, at_us=event.at_us + by_us)


def make_move_event(
    at_us: int, node: int, end_us: int, start: Position, end: Position
) -> MoveEvent:
    """Makes the event of a leg, with positions rounded to centimetres."""
    return MoveEvent(at_us, node, end_us, _round_position(start), _round_position(end))


def _round_position(position: Position) -> Position:
    return round(position[0], 2), round(position[1], 2)


class OperationLog:
    """Finds the objects that requests and events of applications are about (S17).

    The reply to a request does not name its object, so the log remembers requests until then.
    """

    def __init__(self) -> None:
        self._open: BoundedDict[tuple[int, int], tuple[str, int, tuple[str, ...]]] = BoundedDict(
            REQUESTS_MAX
        )

    def on_request(
        self, at_us: int, node: int, request: AppRequest | InsertBatch
    ) -> list[AppRequestEvent]:
        """The events of a request; a batch of inserts has one for each."""
        if isinstance(request, InsertBatch):
            return [event for one in request.inserts for event in self.on_request(at_us, node, one)]
        objects = _objects_of_request(request)
        if not isinstance(request, MarkConsumed | Pause):
            self._open.refresh((node, request.request_id), (request.label, at_us, objects))
        return [AppRequestEvent(at_us, node, request.label, objects)]

    def on_event(self, at_us: int, node: int, event: AppEvent) -> AppEventRecord:
        """The event of a reply or a notification."""
        if isinstance(event, NotificationEvent):
            return AppEventRecord(at_us, node, event.label, (event.notification.metadata.oid,))
        if not isinstance(event, Finished | Failed):
            return AppEventRecord(at_us, node, event.label)
        label, asked_us, objects = self._open.pop((node, event.request_id), ("", at_us, ()))
        if not objects and isinstance(event, Finished) and isinstance(event.value, Key):
            objects = (event.value.oid,)
        return AppEventRecord(at_us, node, event.label, objects, label, at_us - asked_us)


def _objects_of_request(request: AppRequest) -> tuple[str, ...]:
    if (metadata := getattr(request, "metadata", None)) is not None:
        return (metadata.oid,)
    if (key := getattr(request, "key", None)) is not None:
        return (key.oid,)
    oid = getattr(request, "oid", None)
    return () if oid is None else (oid,)


class Writable(Protocol):
    """A binary file open for writing, compressed or not."""

    def write(self, data: bytes, /) -> int:
        """Appends bytes to the file."""
        ...


class Recorder:
    """Writes the events of a run to a binary file; the caller closes the file."""

    def __init__(self, file: Writable) -> None:
        self._write = file.write

    def write_header(
        self,
        start_us: int,
        node_ids: Iterable[bytes],
        positions: Iterable[Position],
        range_m: float,
    ) -> None:
        """Writes the header."""
        header = RecordingHeader(
            start_us=start_us,
            nodes=tuple(name.hex() for name in node_ids),
            places=tuple(map(_round_position, positions)),
            range_m=round(range_m, 2),
        )
        self._write(encode_line(header) + b"\n")

    def write_event(self, event: RecordedEvent) -> None:
        """Writes an event."""
        self._write(encode_line(event) + b"\n")


class Recording:
    """Reads a recording: the header at once, the events during iteration."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = enumerate(lines, start=1)
        self._moves: dict[int, MoveEvent] = {}
        self.up: set[int] = set()
        """The nodes that are up after the last event that was read."""
        number, first = next(self._lines, (1, b""))
        self.header = _decode_line(_header_decoder, number, first)
        if self.header.recording != VERSION:
            raise InputError(
                f"a recording of version {VERSION} can be read, not of {self.header.recording}"
            )

    def __iter__(self) -> Iterator[RecordedEvent]:
        for number, line in self._lines:
            event = _decode_line(_event_decoder, number, line)
            match event:
                case MoveEvent():
                    self._moves[event.node] = event
                case PowerEvent(on=True):
                    self.up.add(event.node)
                case PowerEvent():
                    self.up.discard(event.node)
            yield event

    def position_of(self, node: int, at_us: int) -> Position:
        """Returns the position of a node at an instant near the last event that was read."""
        move = self._moves.get(node)
        if move is None:
            return self.header.places[node]
        if at_us >= move.end_us or move.start == move.end:
            return move.end
        share = max(0, at_us - move.at_us) / (move.end_us - move.at_us)
        (x0, y0), (x1, y1) = move.start, move.end
        return x0 + (x1 - x0) * share, y0 + (y1 - y0) * share


def _decode_line(decoder: msgspec.json.Decoder[T], number: int, line: bytes) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        where = f"line {number}" if number else "a line"
        raise InputError(f"{where} of the recording cannot be read: {error}") from None
