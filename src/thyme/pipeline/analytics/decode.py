"""Decoding: turns a line of an event file into an event, or into the reason why it is none.

Entry point: `decode_line`. A line that is not an event of this version is set aside with one of
`REASONS`. Numbers are checked against limits, so that sums of them fit into 64 bits. Pure.
Clauses: P2, P9.
"""

from __future__ import annotations

import msgspec

from thyme.events.event import DECODE_ERRORS, EVENT_VERSION, Event, decode_event
from thyme.model.time_frames import INSTANT_MAX_US

NOT_AN_EVENT, UNKNOWN_VERSION = "not an event", "unknown version"
MISSING_FIELD, BAD_VALUE = "missing field", "bad value"
REASONS = (NOT_AN_EVENT, UNKNOWN_VERSION, MISSING_FIELD, BAD_VALUE)
COUNT_MAX = 2**44
"""Greatest count or size in an event."""
_REQUIRED = ("v", "writer", "seq", "at_us", "node", "world", "kind")


def decode_line(line: bytes) -> Event | str:
    """The event in a line, or the reason why there is none."""
    try:
        event = decode_event(line)
    except DECODE_ERRORS:
        return _find_reason(line)
    if event.v != EVENT_VERSION:
        return UNKNOWN_VERSION
    return event if _is_within_limits(event) else BAD_VALUE


def _is_within_limits(event: Event) -> bool:
    """Whether the numbers of an event are possible ones."""
    if not (0 < event.seq <= INSTANT_MAX_US and -INSTANT_MAX_US <= event.at_us <= INSTANT_MAX_US):
        return False
    took_us, published_us = event.took_us, event.published_us
    if took_us is not None and not 0 <= took_us <= INSTANT_MAX_US:
        return False
    if published_us is not None and not -INSTANT_MAX_US <= published_us <= INSTANT_MAX_US:
        return False
    for instant_us in (event.start_us, event.end_us, event.life_us):
        if instant_us is not None and not -INSTANT_MAX_US <= instant_us <= INSTANT_MAX_US:
            return False
    for number in (
        event.size,
        event.cell,
        event.neighbours,
        event.sent,
        event.received,
        event.sent_bytes,
        event.received_bytes,
    ):
        if number is not None and not -COUNT_MAX <= number <= COUNT_MAX:
            return False
    return True


def _find_reason(line: bytes) -> str:
    """Why a line is not a record of the type `Event`."""
    try:
        found = msgspec.json.decode(line)
    except DECODE_ERRORS:
        return NOT_AN_EVENT
    if not isinstance(found, dict):
        return NOT_AN_EVENT
    version = found.get("v")
    if isinstance(version, int) and version != EVENT_VERSION:
        return UNKNOWN_VERSION
    if any(found.get(name) is None for name in _REQUIRED):
        return MISSING_FIELD
    return NOT_AN_EVENT
