"""Codec of messages between nodes: a versioned MessagePack schema (docs/wire.md).

A packet is one version byte and, in version 1, one message: a MessagePack array of its number and
its fields. In version 2 it is an array of messages.
Entry points: `encode` and `decode` for one message, `join` and `decode_all` for the messages of a
link. For any bytes, the result of decoding is valid, or `DecodeError` is raised. Requests of
applications are encoded by `app_rpc`.
Clauses: M25, I24.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from thyme.model.errors import DecodeError
from thyme.protocol.messages.common import Message

VERSION_MIN, VERSION = 1, 2
"""The oldest and the newest version that this code reads and writes. A new version keeps the old
one readable for as long as worlds are upgraded node by node."""
JOINING_VERSION = 2
"""Since this version, a packet may contain several messages."""
MESSAGES_MAX = 64
"""Maximum number of messages in one packet."""
PACKET_BYTES_MAX = 512 * 2**20

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_list_decoder: msgspec.msgpack.Decoder[list[Message]] = msgspec.msgpack.Decoder(
    Annotated[list[Message], msgspec.Meta(min_length=1, max_length=MESSAGES_MAX)]
)


_PREFIXES = [bytes([version]) for version in range(256)]


def encode(message: Message, version: int = VERSION_MIN) -> bytes:
    """Encodes a message as a packet of a version."""
    return join([_encoder.encode(message)], version)


def encode_message(message: Message) -> bytes:
    """Encodes a message without the version, for `join`."""
    return _encoder.encode(message)


def join(bodies: Sequence[bytes], version: int) -> bytes:
    """Makes a packet of encoded messages; in version 1 there is only one."""
    if version < JOINING_VERSION:
        [body] = bodies
        return _PREFIXES[version] + body
    count = len(bodies)
    header = bytes([0x90 | count]) if count < 16 else b"\xdc" + count.to_bytes(2)
    return b"".join((_PREFIXES[version], header, *bodies))


def decode(packet: bytes) -> Message:
    """Decodes a packet of one message, of version 1; raises only `DecodeError`."""
    [message] = decode_all(packet, VERSION_MIN)
    return message


def decode_all(packet: bytes, version_max: int = VERSION) -> list[Message]:
    """Decodes a packet of a version up to `version_max`; raises only `DecodeError`."""
    if not packet:
        raise DecodeError("empty", "a packet needs at least a version byte")
    if len(packet) > PACKET_BYTES_MAX:
        raise DecodeError("oversized", f"{len(packet)} bytes")
    if not VERSION_MIN <= packet[0] <= version_max:
        known = " to ".join(map(str, sorted({VERSION_MIN, version_max})))
        raise DecodeError("version", f"expected version {known}, got {packet[0]}")
    try:
        content = memoryview(packet)[1:]
        if packet[0] < JOINING_VERSION:
            return [_decoder.decode(content)]
        return _list_decoder.decode(content)
    except msgspec.ValidationError as error:
        raise DecodeError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError("malformed", str(error)) from None


def size_of(message: Message) -> int:
    """Returns the size of a message's packet in bytes."""
    return 1 + len(_encoder.encode(message))
