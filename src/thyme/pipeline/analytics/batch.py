"""Batch: processes the lines of one micro-batch into measures, facts and a commit.

Entry point: `process_batch`. Repeated events are removed: those of the same batch, and those that
the commits of earlier batches contain. Everything is a function of the lines and of the earlier
commits, so a repeated batch writes the same.
Clauses: P9, P2.
"""

from __future__ import annotations

import time
from io import BytesIO
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.analytics.batch_log import (
    FACTS,
    MEASURES,
    QUARANTINE,
    BatchLog,
    Commit,
    table_folder,
)
from thyme.pipeline.analytics.files import AnalyticsFolder
from thyme.pipeline.analytics.intervals import Interval, Seen, count_numbers, merge_seen
from thyme.pipeline.analytics.measures import MEASURES as MEASURES_SCHEMA
from thyme.pipeline.analytics.measures import measure_events
from thyme.pipeline.analytics.parse import invalid_lines, parse_lines, valid_events
from thyme.pipeline.analytics.recall import select_facts
from thyme.pipeline.schemas import select_schema

_SEEN = pa.schema([("seen_writer", pa.string()), ("first", pa.int64()), ("last", pa.int64())])
_SUMMARY = ("segment", "line", "span")
"""Rows about the batch itself, computed together with its measures."""
ARROW_MEASURES = pa.schema(
    [
        pa.field(
            field.name, pa.string() if field.dataType.simpleString() == "string" else pa.int64()
        )
        for field in MEASURES_SCHEMA
    ]
)


def process_batch(
    lines: DataFrame, number: int, log: BatchLog, folder: AnalyticsFolder, window_us: int
) -> pa.Table:
    """Processes a batch that is not committed yet; returns its measures."""
    name = f"{number:010d}-{number:010d}"
    parsed = parse_lines(lines).persist()
    fresh = remove_repeated(valid_events(parsed), log.seen).persist()
    try:
        rows = _collect_rows(parsed, fresh, window_us)
        summary = [row for row in rows.to_pylist() if row["measure"] in _SUMMARY]
        measures = rows.filter(pa.compute.invert(_is_summary(rows)))
        commit = _make_commit(number, summary, fresh)
        folder.write(f"{table_folder(MEASURES, name)}/part-0.parquet", to_parquet(measures))
        for table in (FACTS, QUARANTINE):
            folder.delete(table_folder(table, name))  # leftovers of a killed attempt
        if commit.facts_from_us is not None:
            write_facts(select_facts(fresh), folder.path(table_folder(FACTS, name)))
        if commit.quarantined:
            invalid_lines(parsed).write.parquet(folder.path(table_folder(QUARANTINE, name)))
        log.append(commit)
    finally:
        fresh.unpersist()
        parsed.unpersist()
    return measures


def remove_repeated(events: DataFrame, seen: Seen) -> DataFrame:
    """Each event once, without those whose numbers were seen before."""
    fresh = events.dropDuplicates(["writer", "seq"])
    rows = [(writer, *each) for writer, intervals in seen.items() for each in intervals]
    if not rows:
        return fresh
    columns = [pa.array(column) for column in zip(*rows, strict=True)]
    known = events.sparkSession.createDataFrame(pa.table(columns, schema=_SEEN))
    repeated = (F.col("writer") == F.col("seen_writer")) & F.col("seq").between(
        F.col("first"), F.col("last")
    )
    return fresh.join(F.broadcast(known), repeated, "left_anti")


def write_facts(facts: DataFrame, path: str) -> None:
    """Writes facts, in a folder for each kind, in few files."""
    facts.coalesce(1).write.mode("overwrite").partitionBy("what").parquet(path)


def to_parquet(table: pa.Table) -> bytes:
    """A table as the bytes of a Parquet file."""
    buffer = BytesIO()
    parquet.write_table(table, buffer, compression="zstd")
    return buffer.getvalue()


def _collect_rows(parsed: DataFrame, fresh: DataFrame, window_us: int) -> pa.Table:
    """The measures of a batch and the rows about the batch, in one job."""
    segments = fresh.groupBy(F.col("writer").alias("name"), F.col("source").alias("detail")).agg(
        F.count("*").alias("count"), F.min("seq").alias("least"), F.max("seq").alias("most")
    )
    lines = parsed.groupBy(F.coalesce("reason", F.lit("")).alias("name")).agg(
        F.count("*").alias("count")
    )
    facts = select_facts(fresh).agg(
        F.count("*").alias("count"), F.min("fact_us").alias("least"), F.max("fact_us").alias("most")
    )
    events = fresh.agg(
        F.count("*").alias("count"),
        F.min("at_us").alias("least"),
        F.max(F.least("at_us", "written_us")).alias("most"),
    )
    found = measure_events(fresh, window_us)
    for measure, name, rows in (
        ("segment", None, segments),
        ("line", None, lines),
        ("span", "facts", facts),
        ("span", "events", events),
    ):
        given = rows if name is None else rows.withColumn("name", F.lit(name))
        more = given.withColumn("measure", F.lit(measure))
        for field in MEASURES_SCHEMA:
            if field.name not in more.columns:
                empty: Any = None if field.nullable else "" if field.name != "window_us" else 0
                empty = 0 if field.name == "total" else empty
                more = more.withColumn(field.name, F.lit(empty).cast(field.dataType))
        found = found.unionByName(select_schema(more, MEASURES_SCHEMA))
    return select_schema(found, MEASURES_SCHEMA).toArrow().cast(ARROW_MEASURES)


def _is_summary(rows: pa.Table) -> Any:
    return pa.compute.is_in(rows["measure"], value_set=pa.array(_SUMMARY))


def _make_commit(number: int, summary: list[dict[str, Any]], fresh: DataFrame) -> Commit:
    spans = {row["name"]: row for row in summary if row["measure"] == "span"}
    lines = {row["name"]: row["count"] for row in summary if row["measure"] == "line"}
    valid = lines.pop("", 0)
    segments = [row for row in summary if row["measure"] == "segment"]
    seen = _seen_in(segments, fresh)
    events = sum(map(count_numbers, seen.values()))
    return Commit(
        first=number,
        last=number,
        events=events,
        duplicates=valid - events,
        quarantined=dict(sorted(lines.items())),
        seen=seen,
        newest_us=spans["events"]["most"],
        facts_from_us=spans["facts"]["least"],
        committed_us=time.time_ns() // 1_000,
    )


def _seen_in(segments: list[dict[str, Any]], fresh: DataFrame) -> Seen:
    """The numbers of the events of a batch. Those of a segment are one interval, unless some are
    missing; then Spark finds the intervals."""
    parts: list[dict[str, list[Interval]]] = []
    gapped = set()
    for row in segments:
        if row["count"] == row["most"] - row["least"] + 1:
            parts.append({row["name"]: [(row["least"], row["most"])]})
        else:
            gapped.add(row["name"])
    if gapped:
        order = Window.partitionBy("writer").orderBy("seq")
        intervals = (
            fresh.where(F.col("writer").isin(sorted(gapped)))
            .select("writer", "seq", (F.col("seq") - F.row_number().over(order)).alias("run"))
            .groupBy("writer", "run")
            .agg(F.min("seq").alias("first"), F.max("seq").alias("last"))
        )
        for found in intervals.collect():
            parts.append({found["writer"]: [(found["first"], found["last"])]})
    return merge_seen(parts)
