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
    at_us, kind, code = F.col("at_us"), F.col("kind"), F.coalesce("code", F.lit("-"))
    window = at_us - F.pmod(at_us, F.lit(window_us))
    hour = at_us - F.pmod(at_us, F.lit(HOUR_US))

    def row(
        measure: str, name: Column, detail: Column, value: Column | None = None, at: Column = window
    ) -> Column:
        number = F.lit(None).cast("long") if value is None else value.cast("long")
        return F.struct(
            F.lit(measure).alias("measure"),
            at.alias("window_us"),
            F.col("world").alias("world"),
            F.coalesce(name, F.lit("-")).alias("name"),
            F.coalesce(detail, F.lit("-")).alias("detail"),
            F.lit(1).cast("long").alias("count"),
            F.coalesce(number, F.lit(0)).cast("long").alias("total"),
            number.alias("least"),
            number.alias("most"),
        )

    def rows_if(condition: Column, *rows: Column) -> Column:
        return F.when(condition, F.array(*rows)).otherwise(F.array().cast(_NONE))

    operation, notification = kind == OPERATION, kind == NOTIFICATION
    succeeded = operation & (code == "ok")
    latency_us = at_us - F.col("published_us")
    name = F.when(F.col("past"), F.lit("past notification")).otherwise(F.lit("notification"))
    activity = F.when(notification, F.lit("notification")).otherwise(F.col("op"))
    tagged = notification | (succeeded & F.col("op").isin("insert", "retrieve"))
    cell = F.coalesce(F.col("cell").cast("string"), F.lit("-"))
    messages = F.coalesce("sent", F.lit(0)) + F.coalesce("received", F.lit(0))
    message_bytes = F.coalesce("sent_bytes", F.lit(0)) + F.coalesce("received_bytes", F.lit(0))
    publisher = F.element_at(F.split("key", "@"), -1)
    ahead_us = at_us - F.col("written_us")
    return [
        F.array(row("event", F.col("node"), kind)),
        F.when(tagged, F.transform("tags", lambda tag: row("tag", tag, activity))).otherwise(
            F.array().cast(_NONE)
        ),
        rows_if(operation, row("operation", F.col("op"), code, F.col("took_us"))),
        rows_if(
            succeeded & F.col("took_us").isNotNull(),
            row("latency", F.col("op"), latency_bucket(F.col("took_us")), F.col("took_us")),
        ),
        rows_if(
            notification & latency_us.isNotNull(),
            row("latency", name, latency_bucket(latency_us), latency_us),
        ),
        rows_if(
            notification & latency_us.isNotNull() & ~F.coalesce("past", F.lit(False)),
            row("clock", publisher, F.col("node"), latency_us, hour),
        ),
        rows_if(kind == CACHE, row("cache", F.col("cache"), code)),
        rows_if(
            kind == LOAD,
            row("load", cell, F.lit("messages"), messages),
            row("load", cell, F.lit("bytes"), message_bytes),
        ),
        rows_if(
            (kind == LOAD) & F.col("neighbours").isNotNull(),
            row("load", cell, F.lit("neighbours"), F.col("neighbours")),
        ),
        rows_if(kind == NEIGHBOUR, row("neighbour", F.col("node"), code)),
        rows_if(ahead_us >= AHEAD_US_MIN, row("ahead", F.col("node"), F.lit("-"), ahead_us)),
    ]
