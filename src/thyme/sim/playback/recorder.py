"""Recorder: writes the events of a run to a recording, and reads recordings.

Entry points: `Recorder`, `Recording`. A recording is a file of JSON lines. The first line is the
header: node ids and start positions. Each further line is one event, as an array of a type tag, the
instant in microseconds since the start, and the fields of the records below. Nodes and messages are
numbers. Movement is recorded as legs rather than positions, so a recording of a thousand moving
nodes stays small. The same run gives the same bytes. `thyme.sim.playback.page` makes a page from a
recording.
Clause: S17.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

import msgspec

from thyme.model.errors import InputError
from thyme.model.positions import Position
from thyme.protocol.messages.common import CellPacket, Message
from thyme.sim.faults.schedule import Fault
from thyme.sim.mobility.paths import Leg

VERSION = 1

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
    """Approximate radio range."""


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


class MessageSentEvent(msgspec.Struct, frozen=True, array_like=True, tag="tx", gc=False):
    """A node handed a message to its radio, for one node or as a broadcast (None)."""

    at_us: int
    message_id: int
    node: int
    to: int | None
    kind: str
    bytes: int
    perimeter: bool = False
    """Whether the message, or a part of it, is routed around a void (D5)."""


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


class AppRequestEvent(msgspec.Struct, frozen=True, array_like=True, tag="ask", gc=False):
    """The application of a node made a request."""

    at_us: int
    node: int
    request: str


class AppEventRecord(msgspec.Struct, frozen=True, array_like=True, tag="told", gc=False):
    """The application of a node received an event."""

    at_us: int
    node: int
    event: str


class ReplicaEvent(msgspec.Struct, frozen=True, array_like=True, tag="has", gc=False):
    """A sample found a new, changed or removed replica of an object at a node.

    The role is `own`, `active` or `passive`; it is empty if the replica was removed.
    """

    at_us: int
    node: int
    oid: str
    role: str


class FaultEvent(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """A fault began, or a timed fault ended."""

    at_us: int
    fault: Fault
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
)

_encode = msgspec.json.Encoder().encode
_header_decoder = msgspec.json.Decoder(RecordingHeader)
_event_decoder: msgspec.json.Decoder[RecordedEvent] = msgspec.json.Decoder(RecordedEvent)


def make_move_event(at_us: int, node: int, leg: Leg) -> MoveEvent:
    """Makes the event of a leg, with positions rounded to centimetres."""
    return MoveEvent(at_us, node, leg.end_us, _round_position(leg.start), _round_position(leg.end))


def is_perimeter(message: Message) -> bool:
    """Whether a message, or a part of it, is routed around a void, in perimeter mode (D5)."""
    return isinstance(message, CellPacket) and any(
        target.perimeter is not None for target in message.targets
    )


def _round_position(position: Position) -> Position:
    return round(position[0], 2), round(position[1], 2)


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
        self._write(_encode(header) + b"\n")

    def write_event(self, event: RecordedEvent) -> None:
        """Writes an event."""
        self._write(_encode(event) + b"\n")


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
        return Leg(move.at_us, move.end_us, *move.start, *move.end).position_at(at_us)


def _decode_line(decoder: msgspec.json.Decoder[T], number: int, line: bytes) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"line {number} of the recording cannot be read: {error}") from None
