"""Arguments: checks the arguments of API calls and converts them to fields of requests.

Both APIs and the HTTP routes use these functions, so invalid arguments raise the same errors
everywhere, before any request reaches the node.
Clauses: M1, M2, M4, M10, M25.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from thyme.model.errors import InputError, MetadataError, OptionError
from thyme.model.frames import TimeFrame, as_frame
from thyme.model.ids import Key, as_object_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.tags import as_tags
from thyme.protocol.requests import Insert

Instant = int | datetime | timedelta
BATCH_MAX = 100_000


def insert_request(
    data: bytes,
    tags: Iterable[str],
    summary: bytes | str,
    oid: str | None,
    life: timedelta | None,
    copies: int,
    durable: bool,
) -> Callable[[int], Insert]:
    """Checks the arguments of an insert; returns a function from request id to `Insert`."""
    values = {
        "data": _as_bytes(data, "an object"),
        "tags": as_tags(tags),
        "summary": summary.encode()
        if isinstance(summary, str)
        else _as_bytes(summary, "a summary"),
        "oid": None if oid is None else as_object_id(oid),
        "life_us": _life_us(life),
        "copies": as_count(copies, "copies", least=1),
        "durable": durable,
    }
    return lambda request_id: Insert(ask=request_id, **values)  # type: ignore[arg-type]


def as_count(value: object, what: str, least: int = 0) -> int:
    """Checks a whole number between `least` and `BATCH_MAX`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= BATCH_MAX:
        raise OptionError(
            f"{what} must be a whole number from {least} to {BATCH_MAX}, not {value!r}"
        )
    return value


def search_frame(start: Instant | None, end: Instant | None, now_us: int) -> TimeFrame:
    """The time frame of a search; an open end means now (M20)."""
    return as_frame(start, now_us if end is None else end, now_us)


def as_key(thing: Key | Metadata | Notification | str) -> Key:
    """The key of an object, given by key, metadata, notification or text."""
    match thing:
        case Key():
            return thing
        case Metadata() | Notification():
            return thing.key
        case str():
            return Key.parse(thing)
        case _:
            raise InputError(
                f"an object is given by its key, metadata or notification, not {thing!r}"
            )


def _life_us(life: object) -> int | None:
    if life is None:
        return None
    if not isinstance(life, timedelta) or life <= timedelta(0):
        raise OptionError(f"a time to live must be a timedelta longer than 0, not {life!r}")
    return life // timedelta(microseconds=1)


def _as_bytes(value: object, what: str) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    hint = "; encode text first: text.encode()" if isinstance(value, str) else ""
    raise MetadataError(f"{what} must be bytes, not {type(value).__name__}{hint}")
