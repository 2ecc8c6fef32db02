"""Codec of messages between nodes: a versioned MessagePack schema (docs/wire.md).

A packet is one version byte and one MessagePack array: the message's number, then its fields.
Entry points: `encode` and `decode`. For any bytes, `decode` returns a valid message or raises
`DecodeError`. Requests of applications are encoded by `app_rpc`.
Clauses: M25, I24.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import DecodeError
from thyme.protocol.messages.common import Message

VERSION_MIN, VERSION = 1, 1
"""The oldest and the newest version that this code reads and writes. A new version keeps the old
one readable for as long as worlds are upgraded node by node."""
PACKET_BYTES_MAX = 512 * 2**20

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


_PREFIXES = [bytes([version]) for version in range(256)]


def encode(message: Message, version: int = VERSION) -> bytes:
    """Encodes a message as a packet of a version."""
    return _PREFIXES[version] + _encoder.encode(message)


def decode(packet: bytes, version_max: int = VERSION) -> Message:
    """Decodes a packet of a version up to `version_max`; raises only `DecodeError`."""
    if not packet:
        raise DecodeError("empty", "a packet needs at least a version byte")
    if len(packet) > PACKET_BYTES_MAX:
        raise DecodeError("oversized", f"{len(packet)} bytes")
    if not VERSION_MIN <= packet[0] <= version_max:
        known = " to ".join(map(str, sorted({VERSION_MIN, version_max})))
        raise DecodeError("version", f"expected version {known}, got {packet[0]}")
    try:
        return _decoder.decode(memoryview(packet)[1:])
    except msgspec.ValidationError as error:
        raise DecodeError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError("malformed", str(error)) from None


def size_of(message: Message) -> int:
    """Returns the size of a message's packet in bytes."""
    return 1 + len(_encoder.encode(message))
