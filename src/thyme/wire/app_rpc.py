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
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    FetchNextPage,
    Finished,
    Insert,
    LookupResult,
    Search,
    SearchResult,
    Subscribe,
    SubscriptionInfo,
    SubscriptionStarted,
)

FRAME_BYTES_MAX = 512 * 2**20
COUNT_MAX = 100_000

_REQUESTS: dict[str, Any] = {kind.label: kind for kind in get_args(AppRequest)}
_EVENTS: dict[str, Any] = {kind.label: kind for kind in get_args(AppEvent) if kind is not Finished}
_VALUE_TYPES: dict[str, Any] = {
    "key": Key,
    "begun": SubscriptionStarted,
    "found": SearchResult,
    "known": LookupResult,
    "held": tuple[SubscriptionInfo, ...],
    "data": bytes,
    "count": int,
    "nothing": None,
}
_VALUE_NAMES = {
    Key: "key",
    SubscriptionStarted: "begun",
    SearchResult: "found",
    LookupResult: "known",
    tuple: "held",
} | {
    bytes: "data",
    int: "count",
    type(None): "nothing",
}


class _Frame(msgspec.Struct, frozen=True, array_like=True):
    name: str
    body: msgspec.Raw


class _FinishedBody(msgspec.Struct, frozen=True, array_like=True):
    request_id: int
    kind: str
    value: msgspec.Raw


_encode = msgspec.msgpack.Encoder().encode
_frames = msgspec.msgpack.Decoder(_Frame)
_finished_bodies = msgspec.msgpack.Decoder(_FinishedBody)
_decoders = {
    kind: msgspec.msgpack.Decoder(kind)
    for kind in [*_REQUESTS.values(), *_EVENTS.values(), *_VALUE_TYPES.values()]
}


def encode_request(request: AppRequest) -> bytes:
    """Encodes a request as a frame."""
    return _encode((request.label, request))


def decode_request(frame: bytes) -> AppRequest:
    """Decodes a frame to a request."""
    request: AppRequest = _decode_body(_REQUESTS, _decode(frame, _frames))
    try:
        _check(request)
    except InputError as error:
        raise DecodeError("invalid", str(error)) from None
    return request


def encode_event(event: AppEvent) -> bytes:
    """Encodes an event of a node as a frame."""
    if isinstance(event, Finished):
        body = (event.request_id, _VALUE_NAMES[type(event.value)], event.value)
        return _encode((event.label, body))
    return _encode((event.label, event))


def decode_event(frame: bytes) -> AppEvent:
    """Decodes a frame to an event."""
    read = _decode(frame, _frames)
    if read.name != Finished.label:
        event: AppEvent = _decode_body(_EVENTS, read)
        return event
    body: _FinishedBody = _decode(read.body, _finished_bodies)
    kind = _VALUE_TYPES.get(body.kind, _VALUE_TYPES)
    if kind is _VALUE_TYPES:
        raise DecodeError("invalid", f"unknown value type {body.kind[:20]!r}")
    return Finished(body.request_id, _decode(body.value, _decoders[kind]))


def _check(request: AppRequest) -> None:
    """Raises `InputError` for arguments that the Python API would reject."""
    match request:
        case Insert():
            check_tags(request.tags)
            if request.copies < 1 or (request.ttl_us is not None and request.ttl_us < 1):
                raise InputError("copies and ttl_us must be at least 1")
        case Subscribe():
            check_conjunctions(request.conjunctions)
            _check_count(request.batch)
        case Search():
            check_conjunctions(request.conjunctions)
            _check_count(request.count)
        case FetchNextPage():
            _check_count(request.count)


def _check_count(count: int) -> None:
    if not 0 <= count <= COUNT_MAX:
        raise InputError(f"a count is a whole number from 0 to {COUNT_MAX}, not {count}")


def _decode_body(kinds: dict[str, Any], frame: _Frame) -> Any:
    kind = kinds.get(frame.name)
    if kind is None:
        raise DecodeError("invalid", f"unknown frame type {frame.name[:20]!r}")
    return _decode(frame.body, _decoders[kind])


def _decode(data: bytes | msgspec.Raw, decoder: msgspec.msgpack.Decoder[Any]) -> Any:
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise DecodeError("invalid", str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError("malformed", str(error)) from None
