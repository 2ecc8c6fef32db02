"""Follow: the stream from event files to tables.

Entry points: `Follower.run_once`, `Follower.start`. Spark's file source finds new segments, its
checkpoint remembers them, `foreachBatch` processes each batch (`batch`) and commits it
(`batch_log`). The tables are derived beside the stream, from what is committed.
Clauses: P9, P10.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from thyme.events.event import EVENT_VERSION
from thyme.model.errors import ThymeError
from thyme.pipeline.analytics.batch import ARROW_MEASURES, process_batch, to_parquet, write_facts
from thyme.pipeline.analytics.batch_log import (
    FACTS,
    MEASURES,
    QUARANTINE,
    BatchLog,
    Commit,
    merge_commits,
    merged_ranges,
    table_folder,
)
from thyme.pipeline.analytics.files import AnalyticsFolder
from thyme.pipeline.analytics.measures import KEYS, add_measures
from thyme.pipeline.analytics.measures import MEASURES as MEASURES_SCHEMA
from thyme.pipeline.analytics.parse import INVALID_LINES, read_lines_schema
from thyme.pipeline.analytics.recall import FACTS as FACTS_SCHEMA
from thyme.pipeline.analytics.recall_table import RecallTable
from thyme.pipeline.analytics.tables import AnalyticsTables, derive_tables, tables_as_arrow
from thyme.pipeline.storage import WarehouseError, reader_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

LAYOUT_VERSION = 1
STATE, CHECKPOINT, POPULAR_TAGS = "follow.json", "checkpoint", "popular_tags.json"
BATCH_BYTES_MAX = 64 * 2**20
"""Bytes of segments in one batch: bounds the memory of a batch after a long pause."""
FILE_AGE_MAX = "36500d"
"""Spark ignores files that are older than the newest one by this; devices may be away for long."""
_SCHEMAS = {MEASURES: MEASURES_SCHEMA, FACTS: FACTS_SCHEMA, QUARANTINE: INVALID_LINES}
KEEP_US = 6 * 3_600_000_000
"""Span of event time that the derived tables cover; measures on disk cover all of it."""


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
        cores = str(max(2, spark.sparkContext.defaultParallelism))
        self._spark.conf.set("spark.sql.shuffle.partitions", cores)
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
            .select(*read_lines_schema())
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
        self._recent = self._add_recent([self._recent, *new])
        commits = self.log.commits
        self._recall.update(self._spark, self.log, complete=complete)
        tables = derive_tables(
            self._recent,
            self._recall.rows,
            commits,
            window_us=self._config.window_us,
            half_life_us=self._config.half_life_us,
        )
        for name, table in tables_as_arrow(tables).items():
            self._folder.write(f"tables/{name}.parquet", to_parquet(table))
        self._folder.write(POPULAR_TAGS, msgspec.json.encode(tables.popular_tags) + b"\n")
        return tables

    def merge_batches(self) -> bool:
        """Merges small batches into a range, if there are enough; returns whether it did."""
        parts = merged_ranges(self.log.commits)
        if parts is None:
            return False
        merged = merge_commits(parts)
        for table, schema in _SCHEMAS.items():
            frame = self.log.read(self._spark, table, schema, parts)
            target = self._folder.path(table_folder(table, merged.name))
            if table == FACTS:
                write_facts(frame, target)
            else:
                frame = add_measures(frame) if table == MEASURES else frame
                frame.coalesce(1).write.mode("overwrite").parquet(target)
        self.log.replace(parts, merged)
        return True

    def measures(self) -> DataFrame:
        """The measures of everything committed."""
        return add_measures(self.log.read(self._spark, MEASURES, MEASURES_SCHEMA))

    def _read_recent(self) -> pa.Table:
        """The recent measures, at the start."""
        newest_us = self.log.newest_us
        if newest_us is None:
            return ARROW_MEASURES.empty_table()
        stored = self.log.read(self._spark, MEASURES, MEASURES_SCHEMA)
        stored = stored.where(F.col("window_us") >= newest_us - KEEP_US)
        return add_measures(stored).toArrow().cast(ARROW_MEASURES)

    def _add_recent(self, parts: list[pa.Table]) -> pa.Table:
        newest_us = self.log.newest_us or 0
        table = pa.concat_tables(parts)
        table = table.filter(pa.compute.greater_equal(table["window_us"], newest_us - KEEP_US))
        sums = [("count", "sum"), ("total", "sum"), ("least", "min"), ("most", "max")]
        summed = table.group_by(list(KEYS)).aggregate(sums)
        named = {f"{column}_{how}": column for column, how in sums}
        columns = [named.get(name, name) for name in summed.column_names]
        return summed.rename_columns(columns).select(ARROW_MEASURES.names).cast(ARROW_MEASURES)

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
