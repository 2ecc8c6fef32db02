"""Datagrams: what travels between two devices, and how it looks in bytes.

A datagram is an envelope (which world, who sent it, in which life) around one of four things: a
greeting, a short message for everybody in reach, a part of a message for one node, or word of the
parts that came; or around several of them, a sheaf: on most machines a datagram costs more than
what is done with it. `decode` is the only way in; whatever the bytes, it returns a valid datagram
or raises `DecodeError`.
Clauses: M21, M25.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from thyme.model.errors import DecodeError
from thyme.model.ids import NODE_ID_BYTES_MAX, NodeId
from thyme.model.worlds import WorldInfo

VERSION = 1
DATAGRAM_BYTES_MAX = 1_400
"""What crosses an Ethernet or a Wi-Fi in one piece, with room for a tunnel's headers."""
BODY_BYTES_MAX = 1_200
"""How much of a message one datagram carries."""
SHEAF_BYTES_MAX = BODY_BYTES_MAX + 50
SHEAF_MAX = 64
"""How much, and how many, travel as one: a whole part and word of others, or many short ones."""
PARTS_MAX = 2**20
MORE_BITS = 64
"""How far beyond the first missing part a `Got` can see."""
LIFE_BYTES = 8
WORLD_TAG_BYTES = 8
_MAGIC = b"Th" + bytes([VERSION])
SEALED_MAGIC = b"Tc" + bytes([VERSION])
"""What the datagrams of closed worlds begin with."""
NOBODY = NodeId(b"\x00")
"""Who says that there is a closed world."""
_SMALL_BYTES = 20
"""What a part, or word of one, takes beside its body."""
_FIXED_BYTES = len(_MAGIC) + WORLD_TAG_BYTES + LIFE_BYTES + 1


class Introduction(msgspec.Struct, frozen=True, array_like=True):
    """Says which key a node has, and proves it for one life (B5)."""

    public_key: bytes
    born_us: int
    """When that life began, by the node's clock: of two lives, the later counts."""
    signature: bytes


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Somebody is here."""

    world: WorldInfo
    closed: bool = False
    """Whether the world has a secret: then this is all that others are told."""
    introduction: Introduction | None = None


class Cast(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """A message for everybody in reach."""

    body: bytes


class Part(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """A part of a message for one node; wants a `Got`."""

    number: int
    """Of the message, among those of this sender in this life to this node."""
    index: int
    count: int
    body: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count <= PARTS_MAX or self.number < 0:
            raise ValueError("no such part")


class Got(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Which parts of a message have come: all below one, and those after it whose bit is set."""

    number: int
    below: int
    more: int = 0

    def __post_init__(self) -> None:
        if min(self.number, self.below, self.more) < 0:
            raise ValueError("nothing is counted below 0")


class Sheaf(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Several at once."""

    items: tuple[Cast | Part | Got, ...]

    def __post_init__(self) -> None:
        if len(self.items) > SHEAF_MAX:
            raise ValueError("too many at once")


Content = Hello | Cast | Part | Got | Sheaf


class Envelope(msgspec.Struct, frozen=True):
    """A datagram as it was read."""

    world_tag: bytes
    life: bytes
    """Drawn when the sender came up: numbers begin anew in each life."""
    sender: NodeId
    content: Content


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Content] = msgspec.msgpack.Decoder(Content)


def tag_of(world: WorldInfo) -> bytes:
    """What tells a world's datagrams from those of others."""
    return sha256(world.wid.encode()).digest()[:WORLD_TAG_BYTES]


def encode(world_tag: bytes, life: bytes, sender: NodeId, content: Content) -> bytes:
    """The bytes of a datagram."""
    head = _MAGIC + world_tag + life + bytes([len(sender)]) + sender
    return head + _encoder.encode(content)


def bound(contents: Iterable[Content]) -> Iterator[Content]:
    """The same in as few datagrams as it fits, in order."""
    sheaf: list[Cast | Part | Got] = []
    room = SHEAF_BYTES_MAX
    for content in contents:
        if isinstance(content, Hello | Sheaf):
            yield content
            continue
        size = _SMALL_BYTES if isinstance(content, Got) else _SMALL_BYTES + len(content.body)
        if sheaf and (size > room or len(sheaf) == SHEAF_MAX):
            yield _as_one(sheaf)
            sheaf, room = [], SHEAF_BYTES_MAX
        sheaf.append(content)
        room -= size
    if sheaf:
        yield _as_one(sheaf)


def _as_one(items: list[Cast | Part | Got]) -> Content:
    return items[0] if len(items) == 1 else Sheaf(tuple(items))


def decode(datagram: bytes) -> Envelope:
    """Reads a datagram; raises nothing but `DecodeError`."""
    if len(datagram) > DATAGRAM_BYTES_MAX:
        raise DecodeError("oversized", f"{len(datagram)} bytes")
    if not datagram.startswith(_MAGIC):
        raise DecodeError("version", "no datagram of ours, or of another version")
    names = len(_MAGIC) + WORLD_TAG_BYTES
    if len(datagram) < _FIXED_BYTES:
        raise DecodeError("malformed", "cut off")
    length = datagram[_FIXED_BYTES - 1]
    content_from = _FIXED_BYTES + length
    if not 1 <= length <= NODE_ID_BYTES_MAX or content_from >= len(datagram):
        raise DecodeError("malformed", "cut off")
    try:
        content = _decoder.decode(memoryview(datagram)[content_from:])
    except msgspec.ValidationError as error:
        raise DecodeError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError("malformed", str(error)) from None
    return Envelope(
        datagram[len(_MAGIC) : names],
        datagram[names : names + LIFE_BYTES],
        NodeId(datagram[_FIXED_BYTES:content_from]),
        content,
    )
