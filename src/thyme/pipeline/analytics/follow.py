"""Follow: the stream from event files to tables.

Entry points: `Follower.run_once`, `Follower.start`. Spark's file source finds new segments, its
checkpoint remembers them, `foreachBatch` processes each batch (`batch`) and commits it
(`batch_log`). The tables are derived beside the stream, from what is committed.
Clauses: P9, P10.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from thyme.events.event import EVENT_VERSION
from thyme.model.errors import ThymeError
from thyme.pipeline.analytics.batch import line_columns, process_batch
from thyme.pipeline.analytics.batch_log import MEASURES, BatchLog, Commit
from thyme.pipeline.analytics.files import AnalyticsFolder, to_parquet
from thyme.pipeline.analytics.measures import KEYS
from thyme.pipeline.analytics.measures import MEASURES as MEASURES_SCHEMA
from thyme.pipeline.analytics.merging import merge_batches
from thyme.pipeline.analytics.recall_table import RecallTable
from thyme.pipeline.analytics.tables import (
    AnalyticsTables,
    RecentMeasures,
    derive_tables,
    tables_as_arrow,
)
from thyme.pipeline.storage import WarehouseError, reader_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LAYOUT_VERSION = 2
STATE, CHECKPOINT, POPULAR_TAGS = "follow.json", "checkpoint", "popular_tags.json"
BATCH_BYTES_MAX = 64 * 2**20
"""Bytes of segments in one batch: bounds the memory of a batch after a long pause."""
FILE_AGE_MAX = "36500d"
"""Spark ignores files that are older than the newest one by this; devices may be away for long."""
KEPT_US_MIN = 3_600_000_000
KEPT_SPANS = 6
"""The derived tables cover the last hour of event time, or so many windows or half-lives if these
are longer; measures on disk cover all of it."""


SESSION_SETTINGS = {
    # Tasks of the stream and of the tables take turns; otherwise the stream waits for a whole job.
    "spark.scheduler.mode": "FAIR",
}
SMALL_TASKS_PER_CORE = 4
SMALL_TASKS = {
    "spark.sql.adaptive.coalescePartitions.enabled": "false",
    "spark.sql.files.maxPartitionBytes": "1m",
}
"""The tables are computed in small tasks, so that a batch of the stream does not wait long for a
core."""
_POOL = "spark.scheduler.pool"
PRIORITY_STEP = 10


def lower_priority() -> None:
    """Lets the calling thread wait for the other threads of this process, where the system has
    priorities of threads (Linux)."""
    if sys.platform == "linux":
        with suppress(OSError):
            now = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), now + PRIORITY_STEP)


class FollowConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the analytics."""

    window_us: int = 60_000_000
    half_life_us: int = 600_000_000
    """Time after which the popularity of a tag counts half."""
    trigger_s: float = 0.5
    """Least time between the starts of two batches."""


class _State(msgspec.Struct, frozen=True, kw_only=True):
    """What a folder of analytics was made with; another version or setting does not continue it."""

    layout: int
    event_version: int
    window_us: int
    events: str


class Follower:
    """The analytics of one folder of events, in one folder of tables."""

    def __init__(
        self,
        spark: SparkSession,
        events: str,
        out: str,
        config: FollowConfig | None = None,
        on_commit: Callable[[Commit], None] = lambda commit: None,
    ) -> None:
        self._spark = spark.newSession()
        self._tables_session = spark.newSession()
        partitions = SMALL_TASKS_PER_CORE * max(2, spark.sparkContext.defaultParallelism)
        self._tables_session.conf.set("spark.sql.shuffle.partitions", str(partitions))
        for name, value in SMALL_TASKS.items():
            self._tables_session.conf.set(name, value)
        self._events = events
        self._config = config or FollowConfig()
        self._folder = AnalyticsFolder(out)
        self._check_state(out)
        self.log = BatchLog(self._folder)
        self._check_checkpoint(out)
        self._on_commit = on_commit
        self.failure: ThymeError | None = None
        """The error of ours that ended the stream."""
        self._lock = threading.Lock()
        self._new: list[pa.Table] = []
        self._recent = self._read_recent()
        self._recall = RecallTable(self._folder, self._config.window_us)

    # The stream

    def start(self) -> StreamingQuery:
        """Starts the stream; it runs until it is stopped."""
        self._spark.sparkContext.setLocalProperty(_POOL, "stream")
        return self._query(processingTime=f"{self._config.trigger_s} seconds")

    def run_once(self) -> AnalyticsTables:
        """Processes all segments that exist now, and returns the tables."""
        query = self._query(availableNow=True)
        try:
            query.awaitTermination()
        except PySparkException:
            if self.failure is not None:
                raise self.failure from None
            raise
        return self.refresh(complete=True)

    def _query(self, **trigger: Any) -> StreamingQuery:
        lines = (
            self._spark.readStream.format("text")
            .option("pathGlobFilter", "*.jsonl")
            .option("recursiveFileLookup", "true")
            .option("maxBytesPerTrigger", str(BATCH_BYTES_MAX))
            .option("maxFileAge", FILE_AGE_MAX)
            .option("ignoreMissingFiles", "true")
            .load(reader_path(self._events))
            .select(*line_columns())
        )
        return (
            lines.writeStream.foreachBatch(self._process)
            .option("checkpointLocation", self._folder.path(CHECKPOINT))
            .trigger(**trigger)
            .start()
        )

    def _process(self, lines: DataFrame, number: int) -> None:
        try:
            self._process_once(lines, number)
        except ThymeError as error:  # Spark only passes its text on
            self.failure = error
            raise

    def _process_once(self, lines: DataFrame, number: int) -> None:
        if number <= self.log.last:
            return  # committed before a crash, unknown to Spark's checkpoint
        if number > self.log.last + 1:
            raise WarehouseError(
                f"the checkpoint continues with batch {number}, but the commits end with "
                f"{self.log.last}: some files were removed; start again with another --out"
            )
        measures = process_batch(lines, number, self.log, self._folder, self._config.window_us)
        with self._lock:
            self._new.append(measures)
        self._on_commit(self.log.commits[-1])

    # The tables

    def refresh(self, *, complete: bool = False) -> AnalyticsTables:
        """Derives the tables from everything committed and writes them. Lost notifications are
        computed from time to time, with `complete` at once."""
        with self._lock:
            new, self._new = self._new, []
        self._spark.sparkContext.setLocalProperty(_POOL, "tables")
        commits, seen = self.log.commits, self.log.seen
        self._recent.add(new, self.log.newest_us or 0)
        self._recall.update(self._tables_session, self.log, complete=complete)
        tables = derive_tables(
            self._recent.derive_rows(),
            self._recall.rows,
            commits,
            seen,
            window_us=self._config.window_us,
            half_life_us=self._config.half_life_us,
        )
        for name, table in tables_as_arrow(tables).items():
            self._folder.write(f"tables/{name}.parquet", to_parquet(table))
        self._folder.write(POPULAR_TAGS, msgspec.json.encode(tables.popular_tags) + b"\n")
        return tables

    def merge_batches(self) -> bool:
        """Merges some small batches, if there are enough; returns whether it did. Not while tables
        are derived."""
        return merge_batches(self.log, self._folder)

    def measures(self) -> DataFrame:
        """The measures of everything committed."""
        stored = self.log.read(self._spark, MEASURES, MEASURES_SCHEMA)
        return _add_stored(stored)

    def _read_recent(self) -> RecentMeasures:
        """The recent measures, at the start."""
        spans = (self._config.window_us, self._config.half_life_us)
        keep_us = max(KEPT_US_MIN, KEPT_SPANS * max(spans))
        recent = RecentMeasures(keep_us)
        newest_us = self.log.newest_us
        if newest_us is not None:
            stored = self.log.read(self._spark, MEASURES, MEASURES_SCHEMA)
            stored = stored.where(F.col("window_us") >= newest_us - keep_us)
            recent.add([_add_stored(stored).toArrow()], newest_us)
        return recent

    # The state of the folder

    def _check_state(self, out: str) -> None:
        wanted = _State(
            layout=LAYOUT_VERSION,
            event_version=EVENT_VERSION,
            window_us=self._config.window_us,
            events=self._events,
        )
        data = self._folder.read(STATE)
        if data is None:
            if self._folder.names(CHECKPOINT) or self._folder.names("commits"):
                raise WarehouseError(
                    f"{out} has a checkpoint but no {STATE}: it is not ours, or of another "
                    "version; use another --out"
                )
            self._folder.write(STATE, msgspec.json.encode(wanted) + b"\n")
            return
        try:
            found = msgspec.json.decode(data, type=_State)
        except msgspec.DecodeError as error:
            raise WarehouseError(f"{out}/{STATE} cannot be read: {error}") from error
        for field in _State.__struct_fields__:
            if getattr(found, field) != getattr(wanted, field):
                raise WarehouseError(
                    f"{out} was made with {field} {getattr(found, field)}, not "
                    f"{getattr(wanted, field)}: its checkpoint cannot be continued; "
                    "use another --out, the events are read again"
                )

    def _check_checkpoint(self, out: str) -> None:
        if self.log.commits and not self._folder.names(CHECKPOINT):
            raise WarehouseError(
                f"{out} has results but no checkpoint: it was removed; use another --out, the "
                "events are read again"
            )


def _add_stored(measures: DataFrame) -> DataFrame:
    """Adds the measures of all batches (`measures.add_measures`, for any amount of them)."""
    return measures.groupBy(*KEYS).agg(
        F.sum("count").alias("count"),
        F.sum("total").alias("total"),
        F.min("least").alias("least"),
        F.max("most").alias("most"),
    )
