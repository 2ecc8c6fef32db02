"""Arguments: checks the arguments of API calls and converts them to fields of requests.

Both APIs and the HTTP routes use these functions, so invalid arguments raise the same errors
everywhere, before any request reaches the node.
Clauses: M1, M2, M4, M10, M25, M37, D14.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

from msgspec import UNSET

from thyme.model.errors import InputError, MetadataError, OptionError, safe_repr
from thyme.model.ids import Key, as_object_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame, as_frame
from thyme.model.worlds import WorldSettings
from thyme.protocol.app_interface import ALL_NODES, Insert, InsertUploaded

Instant = int | datetime | timedelta
BATCH_MAX = 100_000


def make_insert(
    request_id: int,
    data: bytes,
    tags: Iterable[str],
    summary: bytes | str,
    oid: str | None,
    ttl: timedelta | None,
    copies: int,
    durable: bool,
    replicas: int | str | None,
    *,
    upload: str | None = None,
) -> Insert:
    """Checks the arguments of an insert; returns the request. `upload` names the chunks of an
    object that were uploaded before."""
    copies, active = as_count(copies, "copies", least=1), _as_replicas(replicas)
    if active not in (None, ALL_NODES) and copies > active:
        raise OptionError(f"copies={copies} needs at least as many replicas, not {replicas}")
    text = summary.encode() if isinstance(summary, str) else summary
    make = Insert if upload is None else partial(InsertUploaded, upload=upload)
    return make(
        request_id=request_id,
        data=_as_bytes(data, "an object"),
        tags=as_tags(tags),
        summary=_as_bytes(text, "a summary"),
        oid=None if oid is None else as_object_id(oid),
        ttl_us=_ttl_us(ttl),
        copies=copies,
        durable=durable,
        replicas=UNSET if active is None else active,
    )


def as_count(value: object, name: str, least: int = 0) -> int:
    """Checks a whole number between `least` and `BATCH_MAX`."""
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= BATCH_MAX:
        raise OptionError(
            f"{name} must be a whole number from {least} to {BATCH_MAX}, not {value!r}"
        )
    return value


def search_frame(start: Instant | None, end: Instant | None, now_us: int) -> TimeFrame:
    """The time frame of a search; an open end means now (M20)."""
    return as_frame(start, now_us if end is None else end, now_us)


def as_key(object_ref: Key | Metadata | Notification | str) -> Key:
    """The key of an object, given by key, metadata, notification or text."""
    match object_ref:
        case Key():
            return object_ref
        case Metadata() | Notification():
            return object_ref.key
        case str():
            return Key.parse(object_ref)
        case _:
            raise InputError(
                f"an object is given by its key, metadata or notification, not {object_ref!r}"
            )


def make_settings(
    profile: str | None, key_choice: str | None, replicas: int | str | None
) -> WorldSettings | None:
    """The settings of a new world; None if all are the usual ones."""
    usual = WorldSettings()
    made = WorldSettings(
        profile=usual.profile if profile is None else profile,
        key_choice=key_choice,
        replicas=_as_replicas(replicas),
    )
    return None if made == usual else made


def _as_replicas(value: object) -> int | None:
    """Checks a number of active replicas: "all", or at least 1; None for the world's choice."""
    if value is None or value == "all":
        return None if value is None else ALL_NODES
    if isinstance(value, str):
        raise OptionError(f'replicas must be "all" or a whole number, not {safe_repr(value)}')
    return as_count(value, "replicas", least=1)


def _ttl_us(ttl: object) -> int | None:
    if ttl is None:
        return None
    if not isinstance(ttl, timedelta) or ttl <= timedelta(0):
        shown = f"{ttl.total_seconds():g} s" if isinstance(ttl, timedelta) else safe_repr(ttl)
        raise OptionError(f"a time to live is a timedelta longer than 0, not {shown}")
    return ttl // timedelta(microseconds=1)


def _as_bytes(value: object, name: str) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    hint = "; encode text first: text.encode()" if isinstance(value, str) else ""
    raise MetadataError(f"{name} must be bytes, not {type(value).__name__}{hint}")
