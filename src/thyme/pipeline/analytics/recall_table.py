"""Recall table: keeps the counts of lost and late notifications of closed windows up to date.

Entry point: `RecallTable.update`. A window is computed in slices, each when it is closed, so that
no update has much to do; it is computed again when facts of its time arrive later. The result
depends on the committed facts only, not on when it was computed.
Clause: P9.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from thyme.pipeline.analytics.batch_log import FACTS, BatchLog
from thyme.pipeline.analytics.facts import FACTS as FACTS_SCHEMA
from thyme.pipeline.analytics.files import AnalyticsFolder
from thyme.pipeline.analytics.recall import CLOSE_US, UNSURE_US, RecallFacts, measure_recall

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE = "recall.json"
UPDATE_EVERY_S = 15.0
SLICE_US_MAX = 60_000_000
"""The longest part of a window that is computed at once."""


class RecallRow(msgspec.Struct, frozen=True, kw_only=True):
    """Notifications of the objects published in one window."""

    window_us: int
    world: str
    expected: int
    in_time: int
    late: int
    lost: int
    unsure: int


_COUNTS = tuple(name for name in RecallRow.__struct_fields__ if name not in ("window_us", "world"))


class _RecallState(msgspec.Struct, frozen=True, kw_only=True):
    batch: int = -1
    """The last batch that the rows include."""
    closed_us: int | None = None
    """End of the last slice that was computed."""
    rows: tuple[RecallRow, ...] = ()
    slices: tuple[RecallRow, ...] = ()
    """The rows of the slices of windows that are not closed yet."""


class RecallTable:
    """The rows of all closed windows."""

    def __init__(self, folder: AnalyticsFolder, window_us: int) -> None:
        self._folder = folder
        self._window_us = window_us
        self._slice_us = slice_length(window_us)
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
        """Computes the slices that were closed or changed since the last update."""
        if not complete and time.monotonic() - self._updated_s < UPDATE_EVERY_S:
            return
        commits = log.commits
        newest_us = log.newest_us
        if newest_us is None:
            return
        closed_us = newest_us - CLOSE_US
        closed_us -= closed_us % self._slice_us
        new = [commit for commit in commits if commit.last > self._state.batch]
        changed = [span.first_us for commit in new for span in commit.facts.values()]
        starts = [self._window_of(min(changed) - UNSURE_US)] if changed else []
        starts += [self._state.closed_us] if self._state.closed_us is not None else []
        if starts and min(starts) < closed_us:
            self._compute(spark, log, min(starts), closed_us)
        self._state = msgspec.structs.replace(
            self._state, batch=commits[-1].last, closed_us=closed_us if starts else None
        )
        self._folder.write(FILE, msgspec.json.encode(self._state) + b"\n")
        self._updated_s = time.monotonic()

    def _compute(self, spark: SparkSession, log: BatchLog, first_us: int, closed_us: int) -> None:
        """Replaces the slices from `first_us` to `closed_us`, and the rows of their windows that
        are closed."""
        facts = _read_facts(spark, log, first_us - UNSURE_US, closed_us + UNSURE_US)
        found = measure_recall(facts, self._slice_us, first_us, closed_us).collect()
        state = self._state
        slices = [row for row in state.slices if not first_us <= row.window_us < closed_us]
        slices += [RecallRow(**row.asDict()) for row in found]
        windows_us = self._window_of(first_us), self._window_of(closed_us)
        kept = [row for row in state.rows if not windows_us[0] <= row.window_us < windows_us[1]]
        closed = [row for row in slices if row.window_us < windows_us[1]]
        rows = [*kept, *self._add_slices(closed)]
        rows.sort(key=lambda row: (row.window_us, row.world))
        open_slices = [row for row in slices if row.window_us >= windows_us[1]]
        self._state = msgspec.structs.replace(state, rows=tuple(rows), slices=tuple(open_slices))

    def _add_slices(self, slices: list[RecallRow]) -> list[RecallRow]:
        """The rows of windows, as the sums of their slices."""
        found: dict[tuple[int, str], RecallRow] = {}
        for row in slices:
            window_us = self._window_of(row.window_us)
            known = found.get((window_us, row.world))
            counts = {
                name: getattr(row, name) + (0 if known is None else getattr(known, name))
                for name in _COUNTS
            }
            found[window_us, row.world] = RecallRow(window_us=window_us, world=row.world, **counts)
        return list(found.values())

    def _window_of(self, at_us: int) -> int:
        return at_us - at_us % self._window_us


def slice_length(window_us: int) -> int:
    """The length of the equal slices of a window: as few of them as the limit allows. A window of
    an odd number of microseconds is one slice."""
    least = -(-window_us // SLICE_US_MAX)
    fitting = (count for count in range(least, 2 * least + 1) if window_us % count == 0)
    return window_us // next(fitting, 1)


def _read_facts(spark: SparkSession, log: BatchLog, first_us: int, last_us: int) -> RecallFacts:
    """The facts that objects published from `first_us` to `last_us` depend on: inserts and
    notifications of that time, and the operations on subscriptions of all time."""

    def read(what: str, first_us: int | None = None, last_us: int | None = None) -> DataFrame:
        commits = [
            commit
            for commit in log.commits
            if (span := commit.facts.get(what)) is not None
            and (first_us is None or span.last_us >= first_us)
            and (last_us is None or span.first_us <= last_us)
        ]
        return log.read(spark, FACTS, FACTS_SCHEMA, commits, f"/what={what}")

    return RecallFacts(
        inserts=read("insert", first_us, last_us),
        notifications=read("notification", first_us, last_us),
        subscribes=read("subscribe"),
        unsubscribes=read("unsubscribe"),
        deletes=read("delete", first_us),
        subscribe_count=sum(
            commit.facts["subscribe"].count for commit in log.commits if "subscribe" in commit.facts
        ),
    )
