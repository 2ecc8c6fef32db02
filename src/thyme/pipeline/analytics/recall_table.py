"""Recall table: keeps the counts of lost and late notifications of closed windows up to date.

Entry point: `RecallTable.update`. A window is computed when it is closed, and again when facts of
its time arrive later. The result depends on the committed facts only, not on when it was computed.
Clause: P9.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from thyme.pipeline.analytics.batch_log import FACTS, BatchLog
from thyme.pipeline.analytics.files import AnalyticsFolder
from thyme.pipeline.analytics.recall import CLOSE_US, UNSURE_US, measure_recall
from thyme.pipeline.analytics.recall import FACTS as FACTS_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FILE = "recall.json"
UPDATE_EVERY_S = 15.0


class RecallRow(msgspec.Struct, frozen=True, kw_only=True):
    """Notifications of the objects published in one window."""

    window_us: int
    world: str
    expected: int
    in_time: int
    late: int
    lost: int
    unsure: int


class _RecallState(msgspec.Struct, frozen=True, kw_only=True):
    batch: int = -1
    """The last batch that the rows include."""
    closed_us: int | None = None
    """End of the last window that was computed."""
    rows: tuple[RecallRow, ...] = ()


class RecallTable:
    """The rows of all closed windows."""

    def __init__(self, folder: AnalyticsFolder, window_us: int) -> None:
        self._folder = folder
        self._window_us = window_us
        self._updated_s = 0.0
        data = folder.read(FILE)
        self._state = (
            _RecallState() if data is None else msgspec.json.decode(data, type=_RecallState)
        )

    @property
    def rows(self) -> tuple[RecallRow, ...]:
        """The rows, by window and world."""
        return self._state.rows

    def update(self, spark: SparkSession, log: BatchLog, *, complete: bool) -> None:
        """Computes the windows that were closed or changed since the last update."""
        if not complete and time.monotonic() - self._updated_s < UPDATE_EVERY_S:
            return
        commits = log.commits
        newest_us = log.newest_us
        if newest_us is None:
            return
        closed_us = self._floor(newest_us - CLOSE_US)
        new = [commit for commit in commits if commit.last > self._state.batch]
        changed = [commit.facts_from_us for commit in new if commit.facts_from_us is not None]
        starts = [self._floor(min(changed) - UNSURE_US)] if changed else []
        starts += [self._state.closed_us] if self._state.closed_us is not None else []
        if starts and min(starts) < closed_us:
            self._compute(spark, log, min(starts), closed_us)
        self._state = msgspec.structs.replace(
            self._state, batch=commits[-1].last, closed_us=closed_us if starts else None
        )
        self._folder.write(FILE, msgspec.json.encode(self._state) + b"\n")
        self._updated_s = time.monotonic()

    def _compute(self, spark: SparkSession, log: BatchLog, first_us: int, closed_us: int) -> None:
        """Replaces the rows of the windows from `first_us` to `closed_us`."""
        facts = log.read(spark, FACTS, FACTS_SCHEMA)
        found = measure_recall(facts, self._window_us, first_us, closed_us).collect()
        kept = [row for row in self._state.rows if not first_us <= row.window_us < closed_us]
        rows = [*kept, *(RecallRow(**row.asDict()) for row in found)]
        rows.sort(key=lambda row: (row.window_us, row.world))
        self._state = msgspec.structs.replace(self._state, rows=tuple(rows))

    def _floor(self, at_us: int) -> int:
        return at_us - at_us % self._window_us
