"""Schemas: the columns of the pipeline's tables, as constants.

Tables of Spark expressions have a Spark schema; the statistics of traces, which Python makes, have
an Arrow schema, as have the tables of runs (`sweep.run_schemas`). Modules that also work without
Spark import this module inside their functions. Instants are integers in microseconds: those of
posts since 1970 (UTC), those of operations and notifications since the first instant of the trace.
Clauses: P1–P4, P6, S10, S14–S16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
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
    .add("raw_bytes", BinaryType())  # the original bytes if they are not UTF-8
)

RAW = (  # one row per source row: its text, or its bytes where they are not UTF-8
    StructType()
    .add("source", StringType(), nullable=False)
    .add("raw", StringType())  # the line; bytes that are not UTF-8 are replaced
    .add("raw_bytes", BinaryType())  # the original bytes if they are not UTF-8
    .add("fields", StringType())  # the row as a JSON object; null: `raw` is one
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
    .add("raw_bytes", BinaryType())
    .add("reason", StringType())
    .add("zone_assumed", BooleanType())  # whether the time had no zone and UTC was assumed
    .add("post_id", StringType())
    .add("user", StringType())
    .add("at_us", LongType())
    .add("text", StringType())
    .add("tags", TAGS)
)

STAGED = StructType(  # PARSED with the number and the hash of each row
    [
        *PARSED.fields,
        *StructType().add("line", LongType()).add("row", LongType()).fields,
    ]
)

HISTOGRAM = (  # one row per time span with posts; `tagged` counts the posts with a tag
    StructType()
    .add("at_us", LongType(), nullable=False)
    .add("posts", LongType(), nullable=False)
    .add("tagged", LongType(), nullable=False)
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
    .add("shape", StringType())  # a query with {} where a tag goes
    .add("ranks", ArrayType(LongType()))  # of the tags that go there
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
