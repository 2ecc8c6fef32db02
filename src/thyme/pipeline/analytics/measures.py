"""Measures: additive counts of events by time window, from which all tables are derived.

Entry point: `MeasureSums.add_event`. A measure is a row of MEASURES: how often something happened
in a window, with the sum, least and greatest of a value. Rows with the same key add up, so the
measures of a whole stream are the sum of those of its parts, in any order: `add_measures`. All
numbers are integers of 64 bits, so sums are exact. Windows are by the clock of the node.
Clauses: P9, S14.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa

from thyme.events.event import CACHE, LOAD, NEIGHBOUR, NOTIFICATION, OPERATION, Event

KEYS = ("measure", "window_us", "world", "name", "detail")
_TEXT_KEYS = ("measure", "world", "name", "detail")
MEASURES = pa.schema(  # one row per measure, window, world, name and detail
    [
        *(
            pa.field(name, pa.string() if name in _TEXT_KEYS else pa.int64(), nullable=False)
            for name in KEYS
        ),
        pa.field("count", pa.int64(), nullable=False),
        pa.field("total", pa.int64(), nullable=False),
        pa.field("least", pa.int64()),
        pa.field("most", pa.int64()),
    ]
)
HOUR_US = 3_600_000_000
NEGATIVE = "negative"
"""The bucket of latencies below zero, which only different clocks can cause."""
AHEAD_US_MIN = 1_000_000
"""A clock is ahead if an event is this much later than the modification of its file."""
SUB_BUCKETS = 16
"""Buckets per power of two: the width of a bucket is at most a sixteenth of its values."""
UNKNOWN = "-"
"""The name or detail that an event does not have."""
_Key = tuple[str, int, str, str, str]


class MeasureSums:
    """The measures of events, each added once: the caller has removed repeated ones."""

    def __init__(self, window_us: int) -> None:
        self._window_us = window_us
        self._counts: dict[_Key, int] = defaultdict(int)
        self._sums: dict[_Key, list[int]] = {}
        """Count, total, least and greatest value."""

    def add_event(self, event: Event, written_us: int) -> None:
        """Adds an event of a file that was written at `written_us`."""
        at_us, kind, world, node = event.at_us, event.kind, event.world, event.node
        window_us = at_us - at_us % self._window_us
        self._counts["event", window_us, world, node, kind] += 1
        if kind == OPERATION:
            self._add_operation(event, window_us)
        elif kind == NOTIFICATION:
            self._add_notification(event, window_us)
        elif kind == CACHE:
            cache, code = event.cache or UNKNOWN, event.code or UNKNOWN
            self._counts["cache", window_us, world, cache, code] += 1
        elif kind == LOAD:
            self._add_load(event, window_us)
        elif kind == NEIGHBOUR:
            self._counts["neighbour", window_us, world, node, event.code or UNKNOWN] += 1
        if at_us - written_us >= AHEAD_US_MIN:
            self._add(("ahead", window_us, world, node, UNKNOWN), at_us - written_us)

    def to_table(self) -> pa.Table:
        """The measures as a table in the columns of MEASURES, each key once."""
        rows: list[tuple[object, ...]] = [
            (*key, count, 0, None, None) for key, count in self._counts.items()
        ]
        for key, (count, total, least, most) in self._sums.items():
            rows.append((*key, count, _wrap(total), least, most))
        columns: Any = zip(*rows, strict=True) if rows else [()] * len(MEASURES)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, MEASURES, strict=True)
        ]
        return add_measures([pa.table(arrays, schema=MEASURES)])

    def _add_operation(self, event: Event, window_us: int) -> None:
        op, code, took_us = event.op or UNKNOWN, event.code or UNKNOWN, event.took_us
        world = event.world
        if took_us is None:
            self._counts["operation", window_us, world, op, code] += 1
        else:
            self._add(("operation", window_us, world, op, code), took_us)
        if code == "ok":
            if took_us is not None:
                self._add(("latency", window_us, world, op, latency_bucket(took_us)), took_us)
            if op in ("insert", "retrieve"):
                self._count_tags(event, window_us, op)

    def _add_notification(self, event: Event, window_us: int) -> None:
        self._count_tags(event, window_us, NOTIFICATION)
        # The age of a past match is not a latency.
        if event.published_us is not None and not event.past:
            world, took_us = event.world, event.at_us - event.published_us
            bucket = latency_bucket(took_us)
            self._add(("latency", window_us, world, NOTIFICATION, bucket), took_us)
            publisher = (event.key or UNKNOWN).rpartition("@")[2]
            hour_us = event.at_us - event.at_us % HOUR_US
            self._add(("clock", hour_us, world, publisher, event.node), took_us)

    def _add_load(self, event: Event, window_us: int) -> None:
        cell = UNKNOWN if event.cell is None else str(event.cell)
        messages = (event.sent or 0) + (event.received or 0)
        size = (event.sent_bytes or 0) + (event.received_bytes or 0)
        self._add(("load", window_us, event.world, cell, "messages"), messages)
        self._add(("load", window_us, event.world, cell, "bytes"), size)
        if event.neighbours is not None:
            self._add(("load", window_us, event.world, cell, "neighbours"), event.neighbours)

    def _count_tags(self, event: Event, window_us: int, activity: str) -> None:
        for tag in event.tags or ():
            self._counts["tag", window_us, event.world, tag, activity] += 1

    def _add(self, key: _Key, value: int) -> None:
        sums = self._sums.get(key)
        if sums is None:
            self._sums[key] = [1, value, value, value]
            return
        sums[0] += 1
        sums[1] += value
        if value < sums[2]:
            sums[2] = value
        elif value > sums[3]:
            sums[3] = value


def add_measures(parts: list[pa.Table]) -> pa.Table:
    """Adds the measures of several parts of a stream."""
    table = pa.concat_tables([part.cast(MEASURES) for part in parts])
    sums = [("count", "sum"), ("total", "sum"), ("least", "min"), ("most", "max")]
    summed = table.group_by(list(KEYS), use_threads=False).aggregate(sums)
    named = {f"{column}_{how}": column for column, how in sums}
    columns = [named.get(name, name) for name in summed.column_names]
    return summed.rename_columns(columns).select(MEASURES.names).cast(MEASURES)


def latency_bucket(value: int) -> str:
    """The logarithmic bucket of a latency, by integer arithmetic."""
    if value < 0:
        return NEGATIVE
    shift = max(value.bit_length() - 5, 0)
    return str(shift * SUB_BUCKETS + (value >> shift))


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """The least value of a bucket, and that of the next one."""
    shift = max(bucket // SUB_BUCKETS - 1, 0)
    mantissa = bucket - shift * SUB_BUCKETS
    return mantissa << shift, (mantissa + 1) << shift


def _wrap(total: int) -> int:
    """A total modulo 2⁶⁴, as additions of 64 bits give it."""
    return (total + 2**63) % 2**64 - 2**63
