"""Codec of application requests and node events, for applications in a process of their own.

A frame is one MessagePack array: the label of its type, then its fields. A `Finished` frame also
names the type of its value. For any bytes, `decode_request` and `decode_event` return a valid value
or raise `DecodeError`. Messages between nodes are encoded by `codec`.
Clauses: M25.
"""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from thyme.model.errors import DecodeError, InputError
from thyme.model.ids import Key
from thyme.model.subscriptions import check_conjunctions
from thyme.model.tags import check_tags
from thyme.protocol.requests import (
    Begun,
    Finished,
    Found,
    Held,
    Insert,
    KnownObject,
    More,
    Request,
    Search,
    Subscribe,
    Told,
)

FRAME_BYTES_MAX = 512 * 2**20
COUNT_MAX = 100_000

_REQUESTS: dict[str, Any] = {kind.label: kind for kind in get_args(Request)}
_TOLD: dict[str, Any] = {kind.label: kind for kind in get_args(Told) if kind is not Finished}
_VALUES: dict[str, Any] = {
    "key": Key,
    "begun": Begun,
    "found": Found,
    "known": KnownObject,
    "held": tuple[Held, ...],
    "data": bytes,
    "count": int,
    "nothing": None,
}
_KINDS = {Key: "key", Begun: "begun", Found: "found", KnownObject: "known", tuple: "held"} | {
    bytes: "data",
    int: "count",
    type(None): "nothing",
}


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    name: str
    body: msgspec.Raw


class _Answer(msgspec.Struct, frozen=True, array_like=True):
    ask: int
    kind: str
    value: msgspec.Raw


_encode = msgspec.msgpack.Encoder().encode
_frames = msgspec.msgpack.Decoder(_Frame)
_answers = msgspec.msgpack.Decoder(_Answer)
_decoders = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in [*_REQUESTS.values(), *_TOLD.values(), *_VALUES.values()]
}


def encode_request(request: Request) -> bytes:
    """Encodes a request as a frame."""
    return _encode((request.label, request))


def decode_request(frame: bytes) -> Request:
    """Decodes a frame to a request."""
    request: Request = _decoded(_REQUESTS, _read(frame, _frames))
    try:
        _check(request)
    except InputError as error:
        raise DecodeError("invalid", str(error)) from None
    return request


def encode_told(told: Told) -> bytes:
    """Encodes an event of a node as a frame."""
    if isinstance(told, Finished):
        answer = (told.ask, _KINDS[type(told.value)], told.value)
        return _encode((told.label, answer))
    return _encode((told.label, told))


def decode_told(frame: bytes) -> Told:
    """Decodes a frame to an event."""
    found = _read(frame, _frames)
    if found.name != Finished.label:
        told: Told = _decoded(_TOLD, found)
        return told
    answer: _Answer = _read(found.body, _answers)
    kind = _VALUES.get(answer.kind, _VALUES)
    if kind is _VALUES:
        raise DecodeError("invalid", f"unknown value type {answer.kind[:20]!r}")
    return Finished(answer.ask, _read(answer.value, _decoders[kind]))


def _check(request: Request) -> None:
    """Raises `InputError` for arguments that the Python API would reject."""
    match request:
        case Insert():
            check_tags(request.tags)
            if request.copies < 1 or (request.life_us is not None and request.life_us < 1):
                raise InputError("copies and ttl_us must be at least 1")
        case Subscribe():
            check_conjunctions(request.conjunctions)
            _check_count(request.batch)
        case Search():
            check_conjunctions(request.conjunctions)
            _check_count(request.count)
        case More():
            _check_count(request.count)


def _check_count(count: int) -> None:
    if not 0 <= count <= COUNT_MAX:
        raise InputError(f"a count is a whole number from 0 to {COUNT_MAX}, not {count}")


def _decoded(kinds: dict[str, Any], frame: _Frame) -> Any:
    kind = kinds.get(frame.name)
    if kind is None:
        raise DecodeError("invalid", f"unknown frame type {frame.name[:20]!r}")
    return _read(frame.body, _decoders[kind])


def _read(data: bytes | msgspec.Raw, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise DecodeError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError("malformed", str(error)) from None
