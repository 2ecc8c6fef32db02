"""Measures: additive counts of events by time window, from which all tables are derived.

Entry point: `measure_events`. A measure is a row of MEASURES: how often something happened in a
window, with the sum, least and greatest of a value. Rows with the same key add up, so the measures
of a whole stream are the sum of those of its parts, in any order: `add_measures`. All numbers are
integers, so sums are exact. Windows are by the clock of the node.
Clauses: P9, S14.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructType

from thyme.events.event import CACHE, LOAD, NEIGHBOUR, NOTIFICATION, OPERATION

KEYS = ("measure", "window_us", "world", "name", "detail")
MEASURES = (  # one row per measure, window, world, name and detail
    StructType()
    .add("measure", StringType(), nullable=False)
    .add("window_us", LongType(), nullable=False)
    .add("world", StringType(), nullable=False)
    .add("name", StringType(), nullable=False)
    .add("detail", StringType(), nullable=False)
    .add("count", LongType(), nullable=False)
    .add("total", LongType(), nullable=False)
    .add("least", LongType())
    .add("most", LongType())
)
HOUR_US = 3_600_000_000
NEGATIVE = "negative"
"""The bucket of latencies below zero, which only different clocks can cause."""
AHEAD_US_MIN = 1_000_000
"""A clock is ahead if an event is this much later than the modification of its file."""
SUB_BUCKETS = 16
"""Buckets per power of two: the width of a bucket is at most a sixteenth of its values."""
_ROW = "struct<" + ",".join(f"{field.name}:{field.dataType.simpleString()}" for field in MEASURES)
_NONE = f"array<{_ROW}>>"


def measure_events(events: DataFrame, window_us: int) -> DataFrame:
    """Measures events, each once: the caller has removed repeated ones."""
    rows = events.select(F.explode(F.concat(*_rows_of_event(window_us))).alias("row"))
    return _sum(rows.select("row.*"))


def add_measures(measures: DataFrame) -> DataFrame:
    """Adds the measures of several parts of a stream."""
    return _sum(measures)


def latency_bucket(value: Column) -> Column:
    """The logarithmic bucket of a latency, by integer arithmetic: exact on every machine."""
    shift = F.greatest(F.length(F.bin(value)) - 5, F.lit(0))
    shifted = F.call_function("shiftright", value, shift)
    return F.when(value < 0, F.lit(NEGATIVE)).otherwise(
        (shift * SUB_BUCKETS + shifted).cast("string")
    )


def bucket_bounds(bucket: int) -> tuple[int, int]:
    """The least value of a bucket, and that of the next one."""
    shift = max(bucket // SUB_BUCKETS - 1, 0)
    mantissa = bucket - shift * SUB_BUCKETS
    return mantissa << shift, (mantissa + 1) << shift


def _sum(rows: DataFrame) -> DataFrame:
    return rows.groupBy(*KEYS).agg(
        F.sum("count").alias("count"),
        F.sum("total").alias("total"),
        F.min("least").alias("least"),
        F.max("most").alias("most"),
    )


def _rows_of_event(window_us: int) -> list[Column]:
    """The measures of one event, as arrays of rows."""
    window = _window(window_us)
    ahead_us = F.col("at_us") - F.col("written_us")
    is_ahead = ahead_us >= AHEAD_US_MIN
    return [
        F.array(_row(window, "event", F.col("node"), F.col("kind"))),
        *_rows_of_operation(window),
        *_rows_of_notification(window),
        *_rows_of_node(window),
        _rows_if(is_ahead, _row(window, "ahead", F.col("node"), F.lit("-"), ahead_us)),
    ]


def _rows_of_operation(window: Column) -> list[Column]:
    op, code, took_us = F.col("op"), F.col("code"), F.col("took_us")
    operation = F.col("kind") == OPERATION
    succeeded = operation & (code == "ok")
    return [
        _rows_if(operation, _row(window, "operation", op, code, took_us)),
        _rows_if(
            succeeded & took_us.isNotNull(),
            _row(window, "latency", op, latency_bucket(took_us), took_us),
        ),
        _tag_rows_if(succeeded & op.isin("insert", "retrieve"), window, op),
        _rows_if(F.col("kind") == CACHE, _row(window, "cache", F.col("cache"), code)),
    ]


def _rows_of_notification(window: Column) -> list[Column]:
    notification = F.col("kind") == NOTIFICATION
    latency_us = F.col("at_us") - F.col("published_us")
    # The age of a past match is not a latency.
    is_new = notification & latency_us.isNotNull() & ~F.coalesce("past", F.lit(False))
    publisher = F.element_at(F.split("key", "@"), -1)
    return [
        _rows_if(
            is_new,
            _row(window, "latency", F.lit(NOTIFICATION), latency_bucket(latency_us), latency_us),
            _row(_window(HOUR_US), "clock", publisher, F.col("node"), latency_us),
        ),
        _tag_rows_if(notification, window, F.lit(NOTIFICATION)),
    ]


def _rows_of_node(window: Column) -> list[Column]:
    load = F.col("kind") == LOAD
    cell = F.col("cell").cast("string")

    def total(*names: str) -> Column:
        one, other = (F.coalesce(name, F.lit(0)) for name in names)
        return one + other

    return [
        _rows_if(
            load,
            _row(window, "load", cell, F.lit("messages"), total("sent", "received")),
            _row(window, "load", cell, F.lit("bytes"), total("sent_bytes", "received_bytes")),
        ),
        _rows_if(
            load & F.col("neighbours").isNotNull(),
            _row(window, "load", cell, F.lit("neighbours"), F.col("neighbours")),
        ),
        _rows_if(
            F.col("kind") == NEIGHBOUR, _row(window, "neighbour", F.col("node"), F.col("code"))
        ),
    ]


def _window(window_us: int) -> Column:
    """The start of the window in which an event is."""
    return F.col("at_us") - F.pmod(F.col("at_us"), F.lit(window_us))


def _row(
    window: Column, measure: str, name: Column, detail: Column, value: Column | None = None
) -> Column:
    """One row of MEASURES; a name or detail that is not known is `-`."""
    number = F.lit(None).cast("long") if value is None else value.cast("long")
    return F.struct(
        F.lit(measure).alias("measure"),
        window.alias("window_us"),
        F.col("world").alias("world"),
        F.coalesce(name, F.lit("-")).alias("name"),
        F.coalesce(detail, F.lit("-")).alias("detail"),
        F.lit(1).cast("long").alias("count"),
        F.coalesce(number, F.lit(0)).cast("long").alias("total"),
        number.alias("least"),
        number.alias("most"),
    )


def _rows_if(condition: Column, *rows: Column) -> Column:
    return F.when(condition, F.array(*rows)).otherwise(F.array().cast(_NONE))


def _tag_rows_if(condition: Column, window: Column, activity: Column) -> Column:
    rows = F.transform("tags", lambda tag: _row(window, "tag", tag, activity))
    return F.when(condition, rows).otherwise(F.array().cast(_NONE))
