"""Datagrams: the units of transmission between two devices, and their encoding as bytes.

A datagram is an envelope (world, sender, incarnation of the sender) with one content: a hello, a
short broadcast message, a fragment of a unicast message, or an ack of fragments; or a bundle of
several such contents, since sending a datagram costs more than processing its content.
Entry points: `encode`, `decode`, `bundle`. For any input bytes, `decode` returns a valid envelope
or raises `DecodeError`. Encryption is up to `encryption`, retransmission to `send_window`.
Clauses: M21, M25.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import sha256

import msgspec

from thyme.model.errors import DecodeError
from thyme.model.ids import NODE_ID_BYTES_MAX, NodeId
from thyme.model.worlds import WorldInfo
from thyme.transport.versions import VersionRange

VERSION = 1
DATAGRAM_BYTES_MAX = 1_400
"""Fits an Ethernet or Wi-Fi frame without IP fragmentation, with spare bytes for tunnel headers."""
FRAGMENT_BYTES_MAX = 1_200
"""Maximum number of message bytes in one fragment or broadcast."""
BUNDLE_BYTES_MAX = FRAGMENT_BYTES_MAX + 50
BUNDLE_ITEMS_MAX = 64
"""Limits of a bundle: one full fragment and some acks, or many short contents."""
FRAGMENTS_MAX = 2**20
SELECTIVE_ACK_BITS = 64
"""Number of fragments after the first missing one that a `FragmentAck` can acknowledge."""
INCARNATION_BYTES = 8
WORLD_DIGEST_BYTES = 8
_MAGIC = b"Th" + bytes([VERSION])
ENCRYPTED_MAGIC = b"Tc" + bytes([VERSION])
"""First bytes of the encrypted datagrams of closed worlds; as long as those of others."""
ANONYMOUS = NodeId(b"\x00")
"""Sender of the unencrypted hello that announces a closed world."""
_ITEM_OVERHEAD_BYTES = 20
"""Upper bound of the encoded size of a fragment or ack without its body."""
_FIXED_HEADER_BYTES = len(_MAGIC) + WORLD_DIGEST_BYTES + INCARNATION_BYTES + 1


class IdentityProof(msgspec.Struct, frozen=True, array_like=True):
    """Public key of a node, and a signature that binds it to one incarnation (B5)."""

    public_key: bytes
    started_us: int
    """Start of the incarnation on the node's own clock; the latest incarnation is the valid one."""
    signature: bytes


class HelloChallenge(msgspec.Struct, frozen=True, array_like=True):
    """A challenge to the receiver of a hello, the response to its challenge, or both (B5)."""

    challenge: bytes = b""
    """What the receiver must sign to be believed that it is there; empty if nothing."""
    response: bytes = b""
    """The signature for a challenge of the receiver; empty if there was none."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Announces a node and its world to the devices in range."""

    world: WorldInfo
    closed: bool = False
    """Whether the world has a secret; such a hello carries only the world's name and id."""
    identity_proof: IdentityProof | None = None
    versions: VersionRange = VersionRange()
    """Packet versions of the node; nodes that do not say so have version 1 only."""
    challenge: HelloChallenge | None = None
    """In hellos to one node of an open world only."""


class BroadcastBody(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """A short message for all devices in range."""

    body: bytes


class Fragment(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """A fragment of a message for one node; the receiver answers with a `FragmentAck`."""

    message_number: int
    """Sequence number of the message, per receiver and incarnation of the sender."""
    index: int
    count: int
    body: bytes

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count <= FRAGMENTS_MAX or self.message_number < 0:
            raise ValueError("fragment number, index or count is out of range")


class FragmentAck(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    """Selective ack: all fragments below an index were received, and those whose bit is set."""

    message_number: int
    received_below: int
    received_bits: int = 0

    def __post_init__(self) -> None:
        if min(self.message_number, self.received_below, self.received_bits) < 0:
            raise ValueError("an ack has no negative numbers")


class Bundle(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=5):
    """Several contents in one datagram."""

    items: tuple[BroadcastBody | Fragment | FragmentAck, ...]

    def __post_init__(self) -> None:
        if len(self.items) > BUNDLE_ITEMS_MAX:
            raise ValueError("too many contents in one bundle")


class ClockReading(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """The time of the sender, from which neighbours learn how far its clock is ahead (M36). Sent
    with each hello, in a datagram of its own."""

    now_us: int


Content = Hello | BroadcastBody | Fragment | FragmentAck | Bundle | ClockReading


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A decoded datagram."""

    world_digest: bytes
    incarnation: bytes
    """Random id that the sender draws at start; message numbers restart with each incarnation."""
    sender: NodeId
    content: Content


HELLO_TAG, BROADCAST_TAG = 1, 2
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Content] = msgspec.msgpack.Decoder(Content)


def digest_world(world: WorldInfo) -> bytes:
    """Short digest of the world's id, which marks the datagrams of this world."""
    return sha256(world.world_id.encode()).digest()[:WORLD_DIGEST_BYTES]


def read_world_digest(datagram: bytes) -> bytes:
    """The world digest of a datagram, encrypted or not, without decoding the rest."""
    return datagram[len(_MAGIC) : len(_MAGIC) + WORLD_DIGEST_BYTES]


def read_newer_sender(datagram: bytes) -> tuple[bytes, NodeId] | None:
    """World digest and sender of a datagram of a newer version: the header is the same in all
    versions. None if the datagram is not of a newer version."""
    if not datagram.startswith(_MAGIC[:2]) or len(datagram) <= _FIXED_HEADER_BYTES:
        return None
    sender_length = datagram[_FIXED_HEADER_BYTES - 1]
    sender = datagram[_FIXED_HEADER_BYTES : _FIXED_HEADER_BYTES + sender_length]
    is_whole = 1 <= sender_length == len(sender) <= NODE_ID_BYTES_MAX
    if datagram[2] <= VERSION or not is_whole:
        return None
    return read_world_digest(datagram), NodeId(sender)


def read_header(datagram: bytes) -> tuple[bytes, bytes, NodeId, int]:
    """World digest, incarnation, sender, and the tag of the content; without decoding the content,
    which costs more. Raises `DecodeError` if there is no content."""
    start = len(_MAGIC) + WORLD_DIGEST_BYTES
    size = len(datagram)
    if size > DATAGRAM_BYTES_MAX:
        raise DecodeError("oversized", f"{size} bytes")
    if not datagram.startswith(_MAGIC):
        raise DecodeError("version", "not a Thyme datagram, or of another version")
    if size < _FIXED_HEADER_BYTES:
        raise DecodeError("malformed", "truncated")
    sender_length = datagram[_FIXED_HEADER_BYTES - 1]
    content = _FIXED_HEADER_BYTES + sender_length
    if not 1 <= sender_length <= NODE_ID_BYTES_MAX or size < content + 2:
        raise DecodeError("malformed", "truncated")
    return (
        datagram[len(_MAGIC) : start],
        datagram[start : start + INCARNATION_BYTES],
        NodeId(datagram[_FIXED_HEADER_BYTES:content]),
        datagram[content + 1],
    )


def encode(world_digest: bytes, incarnation: bytes, sender: NodeId, content: Content) -> bytes:
    """Encodes a datagram."""
    header = _MAGIC + world_digest + incarnation + bytes([len(sender)]) + sender
    return header + _encoder.encode(content)


def bundle(contents: Iterable[Content]) -> Iterator[Content]:
    """Packs contents into as few datagrams as possible and keeps their order."""
    items: list[BroadcastBody | Fragment | FragmentAck] = []
    bytes_left = BUNDLE_BYTES_MAX
    for content in contents:
        if isinstance(content, Hello | Bundle | ClockReading):
            yield content
            continue
        size = (
            _ITEM_OVERHEAD_BYTES
            if isinstance(content, FragmentAck)
            else _ITEM_OVERHEAD_BYTES + len(content.body)
        )
        if items and (size > bytes_left or len(items) == BUNDLE_ITEMS_MAX):
            yield _make_bundle(items)
            items, bytes_left = [], BUNDLE_BYTES_MAX
        items.append(content)
        bytes_left -= size
    if items:
        yield _make_bundle(items)


def _make_bundle(items: list[BroadcastBody | Fragment | FragmentAck]) -> Content:
    return items[0] if len(items) == 1 else Bundle(tuple(items))


def decode(datagram: bytes) -> Envelope:
    """Decodes a datagram; raises only `DecodeError`."""
    world_digest, incarnation, sender, _ = read_header(datagram)
    return Envelope(world_digest, incarnation, sender, decode_content(datagram, sender))


def decode_content(datagram: bytes, sender: NodeId) -> Content:
    """Decodes the content of a datagram whose header was read; raises only `DecodeError`."""
    try:
        return _decoder.decode(memoryview(datagram)[_FIXED_HEADER_BYTES + len(sender) :])
    except msgspec.ValidationError as error:
        raise DecodeError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError("malformed", str(error)) from None
