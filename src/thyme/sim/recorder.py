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
from thyme.protocol.messages import CellPacket, Message
from thyme.sim.faults import Fault
from thyme.sim.paths import Leg, Point

VERSION = 1

T = TypeVar("T")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a recording: the nodes and their start positions."""

    recording: int = VERSION
    start_us: int
    """The simulated instant at which the recording starts."""
    nodes: tuple[str, ...]
    """Node ids in hexadecimal."""
    places: tuple[Point, ...]
    range_m: float
    """Approximate radio range."""


class Switched(msgspec.Struct, frozen=True, array_like=True, tag="on", gc=False):
    """A node started or stopped."""

    at_us: int
    node: int
    on: bool


class Walks(msgspec.Struct, frozen=True, array_like=True, tag="go"):
    """A node began a leg of its path; a leg that ends where it begins is a pause."""

    at_us: int
    node: int
    end_us: int
    start: Point
    end: Point


class SentMessage(msgspec.Struct, frozen=True, array_like=True, tag="tx", gc=False):
    """A node handed a message to its radio, for one node or as a broadcast (None)."""

    at_us: int
    message: int
    node: int
    to: int | None
    kind: str
    bytes: int
    around: bool = False
    """Whether the message, or a part of it, is routed around a void (D5)."""


class HeardMessage(msgspec.Struct, frozen=True, array_like=True, tag="rx"):
    """One or more nodes received a message."""

    at_us: int
    message: int
    nodes: tuple[int, ...]


class GaveUp(msgspec.Struct, frozen=True, array_like=True, tag="no", gc=False):
    """The radio of a node dropped a message."""

    at_us: int
    message: int
    cause: str


class AskedFor(msgspec.Struct, frozen=True, array_like=True, tag="ask", gc=False):
    """The application of a node made a request."""

    at_us: int
    node: int
    what: str


class WasTold(msgspec.Struct, frozen=True, array_like=True, tag="told", gc=False):
    """The application of a node received an event."""

    at_us: int
    node: int
    what: str


class Keeps(msgspec.Struct, frozen=True, array_like=True, tag="has", gc=False):
    """A sample found a new, changed or removed replica of an object at a node.

    The role is `own`, `active` or `passive`; it is empty if the replica was removed.
    """

    at_us: int
    node: int
    object: str
    role: str


class Befell(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """A fault began, or a timed fault ended."""

    at_us: int
    fault: Fault
    begins: bool


Event = Switched | Walks | SentMessage | HeardMessage | GaveUp | AskedFor | WasTold | Keeps | Befell

_encode = msgspec.json.Encoder().encode
_header_decoder = msgspec.json.Decoder(Header)
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def walks(at_us: int, node: int, leg: Leg) -> Walks:
    """Makes the event of a leg, with positions rounded to centimetres."""
    return Walks(at_us, node, leg.end_us, _rounded(leg.start), _rounded(leg.end))


def goes_around(message: Message) -> bool:
    """Whether a message, or a part of it, is routed around a void, in perimeter mode (D5)."""
    return isinstance(message, CellPacket) and any(
        target.detour is not None for target in message.targets
    )


def _rounded(place: Point) -> Point:
    return round(place[0], 2), round(place[1], 2)


class Writable(Protocol):
    """A binary file open for writing, compressed or not."""

    def write(self, data: bytes, /) -> int:
        """Appends bytes to the file."""
        ...


class Recorder:
    """Writes the events of a run to a binary file; the caller closes the file."""

    def __init__(self, file: Writable) -> None:
        self._write = file.write

    def begin(
        self, start_us: int, names: Iterable[bytes], places: Iterable[Point], range_m: float
    ) -> None:
        """Writes the header."""
        header = Header(
            start_us=start_us,
            nodes=tuple(name.hex() for name in names),
            places=tuple(map(_rounded, places)),
            range_m=round(range_m, 2),
        )
        self._write(_encode(header) + b"\n")

    def write(self, event: Event) -> None:
        """Writes an event."""
        self._write(_encode(event) + b"\n")


class Recording:
    """Reads a recording: the header at once, the events during iteration."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = enumerate(lines, start=1)
        self._walks: dict[int, Walks] = {}
        self.up: set[int] = set()
        """The nodes that are up after the last event that was read."""
        number, first = next(self._lines, (1, b""))
        self.header = _decoded(_header_decoder, number, first)
        if self.header.recording != VERSION:
            raise InputError(
                f"a recording of version {VERSION} can be read, not of {self.header.recording}"
            )

    def __iter__(self) -> Iterator[Event]:
        for number, line in self._lines:
            event = _decoded(_event_decoder, number, line)
            match event:
                case Walks():
                    self._walks[event.node] = event
                case Switched(on=True):
                    self.up.add(event.node)
                case Switched():
                    self.up.discard(event.node)
            yield event

    def place(self, node: int, at_us: int) -> Point:
        """Returns the position of a node at an instant near the last event that was read."""
        walk = self._walks.get(node)
        if walk is None:
            return self.header.places[node]
        return Leg(walk.at_us, walk.end_us, *walk.start, *walk.end).at(at_us)


def _decoded(decoder: msgspec.json.Decoder[T], number: int, line: bytes) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"line {number} of the recording cannot be read: {error}") from None
