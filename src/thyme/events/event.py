"""Event: one exported fact about a node, declared once for writers and readers.

An event is one line of JSON. A field that does not apply is left out. The pair of `writer` and
`seq` identifies an event: a writer numbers its events from 1 without gaps, so a reader recognises
repeated events and counts missing ones. Clause: P9.
"""

from __future__ import annotations

import msgspec

EVENT_VERSION = 1
"""Version of the record; readers set events of other versions aside."""

OPERATION, NOTIFICATION, CACHE = "operation", "notification", "cache"
NEIGHBOUR, LOAD, NODE = "neighbour", "load", "node"
EVENT_KINDS = (OPERATION, NOTIFICATION, CACHE, NEIGHBOUR, LOAD, NODE)


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One event."""

    v: int
    """`EVENT_VERSION` of the writer."""
    writer: str
    """Identifier of the writer, new for each start of a process."""
    seq: int
    """Number of the event, from 1 for each writer."""
    at_us: int
    """Instant by the clock of the node: microseconds since 1970, in simulations since the start."""
    node: str
    """Node id in hexadecimal."""
    world: str
    """Identifier of the world."""
    kind: str
    """One of `EVENT_KINDS`."""
    op: str | None = None
    """operation: insert, delete, subscribe, unsubscribe, retrieve or search. `at_us` is the instant
    of the request."""
    code: str | None = None
    """operation: `ok`, or the code of the failure; neighbour: `came` or `gone`; node: `started` or
    `stopped`; cache: `hit` or `miss`."""
    took_us: int | None = None
    """operation: time from request to reply."""
    key: str | None = None
    """operation, notification, cache: the key of the object, `oid@owner`."""
    tags: tuple[str, ...] | None = None
    """insert, retrieve, notification: the tags of the object."""
    size: int | None = None
    """insert, retrieve, notification: bytes of the object."""
    life_us: int | None = None
    """insert: time to live of the object."""
    sid: str | None = None
    """subscribe, unsubscribe, notification: identifier of the subscription."""
    query: str | None = None
    """subscribe, search: the query, as conjunctions joined by `|`."""
    start_us: int | None = None
    """subscribe: start of the time frame."""
    end_us: int | None = None
    """subscribe: end of the time frame."""
    published_us: int | None = None
    """notification: publication time, by the clock of the publisher."""
    past: bool | None = None
    """notification: whether the object was stored before the subscription was made."""
    cache: str | None = None
    """cache: name of the cache; `node` for the objects stored on the node itself."""
    peer: str | None = None
    """neighbour: node id of the neighbour."""
    cell: int | None = None
    """load: the cell in which the node is."""
    neighbours: int | None = None
    """load: number of neighbours."""
    sent: int | None = None
    """load: messages sent since the previous load event of the node."""
    received: int | None = None
    sent_bytes: int | None = None
    received_bytes: int | None = None


encode_event = msgspec.json.Encoder().encode
"""Encodes an event as one line of JSON, without the line break."""
decode_event = msgspec.json.Decoder(Event).decode
"""Decodes one line; raises one of `DECODE_ERRORS` if it is not an event."""
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
