"""Recorder: a run written down for playback, and read back.

A recording is lines of JSON. The first says who there was and where; each other is one thing that
happened, as an array: a letter, the instant in microseconds since the start, and the rest as the
records below list it. Nodes are numbers, messages too. Where a node is between two of its legs, the
legs say, so a recording of a thousand nodes that walk stays small. Same run, same bytes.
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
    """Who there is, and where at the start."""

    recording: int = VERSION
    start_us: int
    """What the world's clock showed at the start."""
    nodes: tuple[str, ...]
    """Their identifiers, in hexadecimal."""
    places: tuple[Point, ...]
    range_m: float
    """How far a message carries, more or less."""


class Switched(msgspec.Struct, frozen=True, array_like=True, tag="on", gc=False):
    """A node came up or went."""

    at_us: int
    node: int
    on: bool


class Walks(msgspec.Struct, frozen=True, array_like=True, tag="go"):
    """A node begins a leg of its path, or a pause if it ends where it begins."""

    at_us: int
    node: int
    end_us: int
    start: Point
    end: Point


class SentMessage(msgspec.Struct, frozen=True, array_like=True, tag="tx", gc=False):
    """A node handed a message to its radio, for one node or for whoever hears it (None)."""

    at_us: int
    message: int
    node: int
    to: int | None
    kind: str
    bytes: int
    around: bool = False
    """Whether it goes around a void, or a part of it does (D5)."""


class HeardMessage(msgspec.Struct, frozen=True, array_like=True, tag="rx"):
    """A message reached nodes."""

    at_us: int
    message: int
    nodes: tuple[int, ...]


class GaveUp(msgspec.Struct, frozen=True, array_like=True, tag="no", gc=False):
    """A node's radio gave a message up."""

    at_us: int
    message: int
    cause: str


class AskedFor(msgspec.Struct, frozen=True, array_like=True, tag="ask", gc=False):
    """A node's application asked for something."""

    at_us: int
    node: int
    what: str


class WasTold(msgspec.Struct, frozen=True, array_like=True, tag="told", gc=False):
    """A node's application was told something."""

    at_us: int
    node: int
    what: str


class Keeps(msgspec.Struct, frozen=True, array_like=True, tag="has", gc=False):
    """A node was seen to have an object, as its own, an active or a passive replica; or, without
    a role, to have it no more."""

    at_us: int
    node: int
    object: str
    role: str


class Befell(msgspec.Struct, frozen=True, array_like=True, tag="fault"):
    """A fault began, or one that lasts for a while ended."""

    at_us: int
    fault: Fault
    begins: bool


Event = Switched | Walks | SentMessage | HeardMessage | GaveUp | AskedFor | WasTold | Keeps | Befell

_encode = msgspec.json.Encoder().encode
_header_decoder = msgspec.json.Decoder(Header)
_event_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(Event)


def walks(at_us: int, node: int, leg: Leg) -> Walks:
    """A leg as recorded, to the centimetre."""
    return Walks(at_us, node, leg.end_us, _rounded(leg.start), _rounded(leg.end))


def goes_around(message: Message) -> bool:
    """Whether a message, or a part of it, is on its way around a void (D5)."""
    return isinstance(message, CellPacket) and any(
        target.detour is not None for target in message.targets
    )


def _rounded(place: Point) -> Point:
    return round(place[0], 2), round(place[1], 2)


class Writable(Protocol):
    """A file of bytes, compressed or not."""

    def write(self, data: bytes, /) -> int:
        """Adds bytes."""
        ...


class Recorder:
    """Writes what happens to a file of bytes, which stays the caller's to close."""

    def __init__(self, file: Writable) -> None:
        self._write = file.write

    def begin(
        self, start_us: int, names: Iterable[bytes], places: Iterable[Point], range_m: float
    ) -> None:
        """The world is there."""
        header = Header(
            start_us=start_us,
            nodes=tuple(name.hex() for name in names),
            places=tuple(map(_rounded, places)),
            range_m=round(range_m, 2),
        )
        self._write(_encode(header) + b"\n")

    def write(self, event: Event) -> None:
        """Something happened."""
        self._write(_encode(event) + b"\n")


class Recording:
    """A recording being read: its header, then its events as they are iterated."""

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = enumerate(lines, start=1)
        self._walks: dict[int, Walks] = {}
        self.up: set[int] = set()
        """The nodes that are up, as of the last event."""
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
        """Where a node is, around the last event."""
        walk = self._walks.get(node)
        if walk is None:
            return self.header.places[node]
        return Leg(walk.at_us, walk.end_us, *walk.start, *walk.end).at(at_us)


def _decoded(decoder: msgspec.json.Decoder[T], number: int, line: bytes) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"line {number} of the recording cannot be read: {error}") from None
