"""Batch: processes the lines of one micro-batch into measures, facts and a commit.

Entry point: `process_batch`. One Spark job decodes the lines and adds them up (`task`); the driver
adds the few results, and writes them. Everything is a function of the lines and of the earlier
commits, so a repeated batch writes the same.
Clauses: P9, P2.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from thyme.pipeline.analytics.batch_log import (
    FACTS,
    MEASURES,
    QUARANTINE,
    TABLES,
    BatchLog,
    Commit,
    merge_counts,
    range_name,
    table_folder,
)
from thyme.pipeline.analytics.facts import merge_spans
from thyme.pipeline.analytics.files import AnalyticsFolder, from_parquet, to_parquet
from thyme.pipeline.analytics.intervals import Seen, count_seen, merge_seen
from thyme.pipeline.analytics.measures import add_measures
from thyme.pipeline.analytics.task import RESULT_COLUMN, TaskResult, process_lines

_decode_result = msgspec.msgpack.Decoder(TaskResult).decode


def line_columns() -> list[Column]:
    """The columns of a text source that the tasks need."""
    return [
        F.col("value"),
        F.col("_metadata.file_path").alias("source"),
        F.unix_micros("_metadata.file_modification_time").alias("written_us"),
    ]


def process_batch(
    lines: DataFrame, number: int, log: BatchLog, folder: AnalyticsFolder, window_us: int
) -> pa.Table:
    """Processes a batch that is not committed yet; returns its measures."""
    results = _run_tasks(lines, window_us, log.seen)
    seen = merge_seen(result.seen for result in results)
    events = sum(count_seen(result.seen) for result in results)
    if count_seen(seen) < events:  # two tasks counted the same event: one task removes it
        results = _run_tasks(lines.coalesce(1), window_us, log.seen)
    measures = add_measures([from_parquet(result.measures) for result in results])
    name = range_name(number, number)
    for table in TABLES:
        folder.delete(table_folder(table, name))  # leftovers of a killed attempt
    for file, data in _files_of(name, results, measures):
        folder.write(file, data)
    log.append(_make_commit(number, results, seen))
    return measures


def _run_tasks(lines: DataFrame, window_us: int, seen: Seen) -> list[TaskResult]:
    task = partial(process_lines, window_us=window_us, seen=seen)
    rows = lines.mapInArrow(task, f"{RESULT_COLUMN} binary").toArrow()
    return [_decode_result(data) for data in rows[RESULT_COLUMN].to_pylist()]


def _files_of(
    name: str, results: list[TaskResult], measures: pa.Table
) -> Iterator[tuple[str, bytes]]:
    """The files of a batch: one of measures, and those that the tasks made."""
    yield f"{table_folder(MEASURES, name)}/part-0.parquet", to_parquet(measures)
    for task, result in enumerate(results):
        for what, part in result.facts.items():
            yield f"{table_folder(FACTS, name)}/what={what}/part-{task}.parquet", part.parquet
        if result.invalid_lines is not None:
            yield f"{table_folder(QUARANTINE, name)}/part-{task}.parquet", result.invalid_lines


def _make_commit(number: int, results: list[TaskResult], seen: Seen) -> Commit:
    newest = [result.newest_us for result in results if result.newest_us is not None]
    return Commit(
        first=number,
        last=number,
        events=count_seen(seen),
        duplicates=sum(result.repeated for result in results),
        quarantined=merge_counts(result.quarantined for result in results),
        seen=seen,
        newest_us=max(newest, default=None),
        facts=merge_spans(
            {what: part.span for what, part in result.facts.items()} for result in results
        ),
        committed_us=time.time_ns() // 1_000,
    )
