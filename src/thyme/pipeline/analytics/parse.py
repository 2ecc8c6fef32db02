"""Parsing: turns lines of event files into events, and sets invalid lines aside with a reason.

Entry point: `parse_lines`. Spark's schema is derived from `thyme.events.event.Event`.
Clauses: P2, P9.
"""

from __future__ import annotations

import types
import typing

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import ArrayType, BooleanType, DataType, LongType, StringType, StructType

from thyme.events.event import EVENT_VERSION, Event
from thyme.model.time_frames import INSTANT_MAX_US

NOT_AN_EVENT, UNKNOWN_VERSION = "not an event", "unknown version"
MISSING_FIELD, BAD_VALUE = "missing field", "bad value"
REASONS = (NOT_AN_EVENT, UNKNOWN_VERSION, MISSING_FIELD, BAD_VALUE)
_CORRUPT = "_corrupt"
_REQUIRED = ("writer", "seq", "at_us", "node", "world", "kind")
_TYPES: dict[object, DataType] = {
    int: LongType(),
    str: StringType(),
    bool: BooleanType(),
    tuple[str, ...]: ArrayType(StringType()),
}
_INSTANTS = ("at_us", "published_us", "start_us", "end_us")


def _event_schema() -> StructType:
    schema = StructType()
    for name, hint in typing.get_type_hints(Event).items():
        options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        kind = next(option for option in options if option is not types.NoneType)
        schema = schema.add(name, _TYPES[kind])
    return schema


EVENTS = _event_schema()
"""The columns of events, as declared by the record `Event`."""
INVALID_LINES = (  # one row per line that is not an event of this version
    StructType()
    .add("source", StringType(), nullable=False)
    .add("reason", StringType(), nullable=False)
    .add("raw", StringType(), nullable=False)
)


def read_lines_schema() -> list[Column]:
    """The columns of a text source that `parse_lines` needs."""
    return [
        F.col("value"),
        F.col("_metadata.file_path").alias("source"),
        F.unix_micros("_metadata.file_modification_time").alias("written_us"),
    ]


def parse_lines(lines: DataFrame) -> DataFrame:
    """Parses lines (`value`, `source`, `written_us`); adds the columns of EVENTS, and `reason`,
    which is null for a valid event."""
    schema = StructType([*EVENTS.fields]).add(_CORRUPT, StringType())
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = lines.where(F.length(F.trim("value")) > 0).withColumn(
        "event", F.from_json("value", schema, options)
    )
    rows = parsed.select("value", "source", "written_us", "event.*")
    rows = rows.withColumn("reason", _reason())
    tags = F.filter(F.coalesce("tags", F.array().cast("array<string>")), F.isnotnull)
    return rows.withColumn("tags", F.when(F.col("reason").isNull(), tags)).drop(_CORRUPT)


def valid_events(parsed: DataFrame) -> DataFrame:
    """The valid events among parsed lines."""
    return parsed.where(F.col("reason").isNull()).drop("reason", "value")


def invalid_lines(parsed: DataFrame) -> DataFrame:
    """The lines that are not events of this version: source, reason and the line itself."""
    return parsed.where(F.col("reason").isNotNull()).select(
        "source", "reason", F.col("value").alias("raw")
    )


def _reason() -> Column:
    version = F.col("v")
    missing = F.greatest(*(F.col(name).isNull() for name in _REQUIRED))
    bad = F.col("seq") < 1
    for name in _INSTANTS:
        bad = bad | F.coalesce(F.abs(F.col(name)) > INSTANT_MAX_US, F.lit(False))
    bad = bad | F.coalesce(F.col("took_us") < 0, F.lit(False))
    return (
        F.when(version.isNotNull() & (version != EVENT_VERSION), F.lit(UNKNOWN_VERSION))
        .when(F.col(_CORRUPT).isNotNull(), F.lit(NOT_AN_EVENT))
        .when(version.isNull() | missing, F.lit(MISSING_FIELD))
        .when(bad, F.lit(BAD_VALUE))
    )
