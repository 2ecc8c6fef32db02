"""Schemas: the columns of the pipeline's tables, as constants.

Tables that Spark writes have a Spark schema; files that are written without Spark, the results of
runs and the statistics of traces, have an Arrow schema. Modules that also work without Spark import
this module inside their functions. Instants are integers in microseconds: those of posts since 1970
(UTC), those of operations and notifications since the first instant of the trace.
Clauses: P1–P4, P6, S10, S14–S16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

from thyme.traces.row_codec import COLUMNS

TAGS = ArrayType(StringType(), containsNull=False)

POSTS = (  # one row per post; tags are normalised, sorted and distinct; may be empty
    StructType()
    .add("post_id", StringType(), nullable=False)
    .add("user", StringType(), nullable=False)
    .add("at_us", LongType(), nullable=False)
    .add("text", StringType(), nullable=False)
    .add("tags", TAGS, nullable=False)
)

QUARANTINE = (  # one row per source row that is not a valid post
    StructType()
    .add("source", StringType(), nullable=False)
    .add("reason", StringType(), nullable=False)
    .add("raw", StringType(), nullable=False)
)

RAW = (  # one row per source row, unchanged
    StructType().add("source", StringType(), nullable=False).add("raw", StringType())
)

FILES = (  # one row per imported file
    StructType()
    .add("file", StringType(), nullable=False)
    .add("bytes", LongType(), nullable=False)
    .add("modified_us", LongType(), nullable=False)
    .add("rows", LongType(), nullable=False)
    .add("reader", StringType(), nullable=False)  # format, columns and zone, as JSON
)

PARSED = (  # one row per source row: a post if `reason` is null
    StructType()
    .add("source", StringType())
    .add("raw", StringType())
    .add("reason", StringType())
    .add("post_id", StringType())
    .add("user", StringType())
    .add("at_us", LongType())
    .add("text", StringType())
    .add("tags", TAGS)
)

STAGED = StructType(  # PARSED with a number, and a hash that orders posts of the same id and time
    [*PARSED.fields, *StructType().add("row", LongType()).add("tie", LongType()).fields]
)

_TYPES: dict[type, DataType] = {int: LongType(), str: StringType(), list: TAGS}


def _operations_schema() -> StructType:
    made = StructType().add("number", LongType(), nullable=False)
    for name, kind in COLUMNS.items():
        made = made.add(name, _TYPES[kind], nullable=name not in ("at_us", "user", "op"))
    return made


OPERATIONS = _operations_schema()
"""A trace: `number` is the position of an operation, from 0; docs/traces.md has the rest."""

_LITERALS = StructType().add("positive", TAGS, nullable=False).add("negative", TAGS, nullable=False)

CONJUNCTIONS = (  # one row per conjunction of a query; `earlier`: the conjunctions before it
    StructType()
    .add("query", StringType(), nullable=False)
    .add("place", IntegerType(), nullable=False)
    .add("positive", TAGS, nullable=False)
    .add("negative", TAGS, nullable=False)
    .add("earlier", ArrayType(_LITERALS, containsNull=False), nullable=False)
)

NOTIFICATIONS = (  # one row per notification of a perfect execution
    StructType()
    .add("at_us", LongType(), nullable=False)
    .add("user", LongType(), nullable=False)
    .add("sid", StringType(), nullable=False)
    .add("oid", StringType(), nullable=False)
    .add("owner", LongType(), nullable=False)
    .add("past", BooleanType(), nullable=False)
)

DRAWN = (  # one row per operation drawn at random for a user, not taken from a post
    StructType()
    .add("at_us", LongType(), nullable=False)
    .add("user", LongType(), nullable=False)
    .add("op", StringType(), nullable=False)
    .add("drawn", IntegerType(), nullable=False)
    .add("oid", StringType())
    .add("sid", StringType())
    .add("query", StringType())
    .add("start_us", LongType())
    .add("end_us", LongType())
)

RUNS = (  # one row per finished run
    StructType()
    .add("run_id", StringType(), nullable=False)
    .add("series", StringType(), nullable=False)
    .add("substrate", StringType(), nullable=False)
    .add("profile", StringType(), nullable=False)
    .add("nodes", IntegerType(), nullable=False)
    .add("parameter", DoubleType(), nullable=False)
    .add("topology", LongType(), nullable=False)
    .add("repetition", LongType(), nullable=False)
    .add("events", LongType(), nullable=False)
)

MEASURES = (  # one row per run and measure
    StructType()
    .add("run_id", StringType(), nullable=False)
    .add("measure", StringType(), nullable=False)
    .add("value", DoubleType(), nullable=False)
)

POINTS = (  # one row per point and measure; `sd` and `ci95` are null for a single run
    StructType()
    .add("series", StringType(), nullable=False)
    .add("profile", StringType(), nullable=False)
    .add("substrate", StringType(), nullable=False)
    .add("nodes", IntegerType(), nullable=False)
    .add("parameter", DoubleType(), nullable=False)
    .add("measure", StringType(), nullable=False)
    .add("runs", LongType(), nullable=False)
    .add("mean", DoubleType(), nullable=False)
    .add("sd", DoubleType())
    .add("ci95", DoubleType())
    .add("least", DoubleType(), nullable=False)
    .add("most", DoubleType(), nullable=False)
)

CELL_WORK = (  # one row per DCS run and cell size (in nodes)
    StructType()
    .add("run_id", StringType(), nullable=False)
    .add("cell_nodes", LongType(), nullable=False)
    .add("cells", LongType(), nullable=False)
    .add("sent", LongType(), nullable=False)
)


# Arrow schemas

_OPERATIONS = pa.struct(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("user", pa.int32(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("issued_us", pa.int64(), nullable=False),
        pa.field("ended_us", pa.int64()),
        pa.field("code", pa.string(), nullable=False),
        pa.field("life_us", pa.int64()),
    ]
)
_NOTIFICATIONS = pa.struct(
    [
        pa.field("user", pa.int32(), nullable=False),
        pa.field("sid", pa.string(), nullable=False),
        pa.field("oid", pa.string(), nullable=False),
        pa.field("published_us", pa.int64(), nullable=False),
        pa.field("told_us", pa.int64(), nullable=False),
        pa.field("right", pa.bool_(), nullable=False),
    ]
)
_EXPECTED = pa.struct(
    [
        pa.field("at_us", pa.int64(), nullable=False),
        pa.field("user", pa.int32(), nullable=False),
        pa.field("sid", pa.string(), nullable=False),
        pa.field("oid", pa.string(), nullable=False),
    ]
)
_DOWNTIMES = pa.struct(
    [
        pa.field("user", pa.int32(), nullable=False),
        pa.field("since_us", pa.int64(), nullable=False),
        pa.field("until_us", pa.int64()),
    ]
)
_LOADS = pa.struct(
    [
        pa.field("node", pa.int32(), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        *(
            pa.field(name, pa.int64(), nullable=False)
            for name in (
                "sent", "sent_bytes", "heard", "heard_bytes", "forwarded", "forwarded_bytes",
            )
        ),
    ]
)  # fmt: skip
_DEVICES = pa.struct(
    [
        pa.field("node", pa.int32(), nullable=False),
        pa.field("server", pa.bool_(), nullable=False),
        pa.field("cell", pa.int32(), nullable=False),
        pa.field("frames", pa.int64(), nullable=False),
        pa.field("frame_bytes", pa.int64(), nullable=False),
        pa.field("retransmissions", pa.int64(), nullable=False),
        pa.field("joules", pa.float64(), nullable=False),
        pa.field("battery_share", pa.float64(), nullable=False),
        pa.field("objects", pa.int64(), nullable=False),
        pa.field("object_bytes", pa.int64(), nullable=False),
        pa.field("metadata", pa.int64(), nullable=False),
        pa.field("subscriptions", pa.int64(), nullable=False),
    ]
)
_DROPS = pa.struct(
    [
        pa.field("cause", pa.string(), nullable=False),
        pa.field("messages", pa.int64(), nullable=False),
    ]
)
_MODEL = pa.struct(
    [
        pa.field("part", pa.string(), nullable=False),
        pa.field("formula", pa.float64()),
        pa.field("simulated", pa.float64(), nullable=False),
    ]
)
RESULT = pa.schema(
    [
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("series", pa.string(), nullable=False),
        pa.field("substrate", pa.string(), nullable=False),
        pa.field("profile", pa.string(), nullable=False),
        pa.field("nodes", pa.int32(), nullable=False),
        pa.field("parameter", pa.float64(), nullable=False),
        pa.field("topology", pa.int64(), nullable=False),
        pa.field("repetition", pa.int64(), nullable=False),
        pa.field("origin_us", pa.int64(), nullable=False),
        pa.field("end_us", pa.int64(), nullable=False),
        pa.field("events", pa.int64(), nullable=False),
        pa.field("wall_s", pa.float64(), nullable=False),
        pa.field("cpu_s", pa.float64(), nullable=False),
        pa.field("phy_frames", pa.int64(), nullable=False),
        pa.field("phy_bytes", pa.int64(), nullable=False),
        pa.field("mac_retransmissions", pa.int64(), nullable=False),
        pa.field("forwarded_bytes", pa.int64(), nullable=False),
        pa.field("control_bytes", pa.int64(), nullable=False),
        pa.field("operations", pa.list_(_OPERATIONS), nullable=False),
        pa.field("notifications", pa.list_(_NOTIFICATIONS), nullable=False),
        pa.field("expected", pa.list_(_EXPECTED), nullable=False),
        pa.field("downtimes", pa.list_(_DOWNTIMES), nullable=False),
        pa.field("loads", pa.list_(_LOADS), nullable=False),
        pa.field("devices", pa.list_(_DEVICES), nullable=False),
        pa.field("drops", pa.list_(_DROPS), nullable=False),
        pa.field("model", pa.list_(_MODEL), nullable=False),
    ]
)
"""One row per run. Instants are simulated time; those of `expected` count from `origin_us`."""

TRACE_COUNTS = pa.schema(
    [
        pa.field("users", pa.int32(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),
    ]
)
TIMELINE = pa.schema(
    [
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("at_s", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),
    ]
)


def select_schema(frame: DataFrame, schema: StructType) -> DataFrame:
    """Selects the columns of a schema from a frame, in the schema's order and types.

    Nullability is not checked: Spark derives it for few expressions only.
    """
    types = dict(frame.dtypes)
    return frame.select(
        *(
            frame[field.name]
            if types[field.name] == field.dataType.simpleString()
            else frame[field.name].cast(field.dataType)
            for field in schema
        )
    )


def rows_to_batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Converts rows to Arrow column by column; `from_pylist` takes many times as long."""
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
