"""Messages ↔ bytes: one schema, versioned, readable from any language with MessagePack.

A packet is one byte of version and one MessagePack array: the message's number, then its fields
(docs/wire.md). `decode` is the only way in; whatever the bytes, it returns a valid message or
raises `DecodeError`.
Clauses: M25, I24.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import DecodeError
from thyme.protocol.messages import Message

VERSION = 1
PACKET_BYTES_MAX = 512 * 2**20

_PREFIX = bytes([VERSION])
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The packet of a message."""
    return _PREFIX + _encoder.encode(message)


def decode(packet: bytes) -> Message:
    """The message of a packet; raises nothing but `DecodeError`."""
    if not packet:
        raise DecodeError("empty", "a packet has at least a version")
    if len(packet) > PACKET_BYTES_MAX:
        raise DecodeError("oversized", f"{len(packet)} bytes")
    if packet[0] != VERSION:
        raise DecodeError("version", f"we speak {VERSION}, this is {packet[0]}")
    try:
        return _decoder.decode(memoryview(packet)[1:])
    except msgspec.ValidationError as error:
        raise DecodeError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError("malformed", str(error)) from None


def size_of(message: Message) -> int:
    """How many bytes a message takes on the wire."""
    return 1 + len(_encoder.encode(message))
