"""Batch log: the batches of a stream that were processed, each exactly once.

Entry point: `BatchLog`. Spark's checkpoint gives every batch a number and, after a crash, the same
batch again. The results of a batch are written under its number, and a commit file last: a batch
with a commit is skipped, one without is written again over its leftovers. A commit also has the
event numbers of the batch, so the commits together are the memory that recognises repeated events.
Small batches are merged into ranges (`merging`), so that there are few files.
Clauses: P9, P10.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from thyme.pipeline.analytics.facts import FactSpan, merge_spans
from thyme.pipeline.analytics.files import AnalyticsFolder
from thyme.pipeline.analytics.intervals import Interval, Seen, add_seen, merge_seen
from thyme.pipeline.storage import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMMITS, MEASURES, FACTS, QUARANTINE = "commits", "measures", "facts", "quarantine"
TABLES = (MEASURES, FACTS, QUARANTINE)
_NAME = re.compile(r"(\d{10})-(\d{10})\.json")


def range_name(first: int, last: int) -> str:
    """The name of a batch or range in file names."""
    return f"{first:010d}-{last:010d}"


def table_folder(table: str, name: str) -> str:
    """The folder of a batch or range in a table: a partition, for readers of Parquet."""
    return f"{table}/batches={name}"


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """A batch, or a range of batches, that was processed."""

    first: int
    last: int
    events: int
    duplicates: int
    quarantined: dict[str, int]
    """Lines set aside, by reason."""
    seen: dict[str, list[Interval]]
    """Numbers of the events, by writer."""
    newest_us: int | None
    """Greatest instant of an event, at most the instant at which its file was written: a clock that
    is ahead does not move it."""
    facts: dict[str, FactSpan]
    """Number and time of the facts, by kind."""
    committed_us: int

    @property
    def name(self) -> str:
        """The name of the range in file names."""
        return range_name(self.first, self.last)

    @property
    def batches(self) -> int:
        """The number of batches in the range."""
        return self.last - self.first + 1


def merge_commits(commits: list[Commit]) -> Commit:
    """The commit of consecutive ranges as one."""
    return Commit(
        first=commits[0].first,
        last=commits[-1].last,
        events=sum(commit.events for commit in commits),
        duplicates=sum(commit.duplicates for commit in commits),
        quarantined=merge_counts(commit.quarantined for commit in commits),
        seen=merge_seen(commit.seen for commit in commits),
        newest_us=_max(commit.newest_us for commit in commits),
        facts=merge_spans(commit.facts for commit in commits),
        committed_us=commits[-1].committed_us,
    )


def merge_counts(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of counts by name."""
    found: dict[str, int] = {}
    for part in parts:
        for name, count in part.items():
            found[name] = found.get(name, 0) + count
    return dict(sorted(found.items()))


class BatchLog:
    """The commits of a folder, in order."""

    def __init__(self, folder: AnalyticsFolder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        found = [self._read(name) for name in folder.names(COMMITS) if _NAME.fullmatch(name)]
        self.commits = _without_parts(found)
        kept = {commit.name for commit in self.commits}
        for commit in found:
            if commit.name not in kept:
                self._remove(commit)
        self._remove_leftovers(kept)
        expected = 0
        for commit in self.commits:
            if commit.first != expected:
                raise WarehouseError(
                    f"{folder.path(COMMITS)} has no commit of batch {expected}: "
                    "some files were removed; start again with another --out"
                )
            expected = commit.last + 1
        self.seen: Seen = merge_seen(commit.seen for commit in self.commits)

    @property
    def last(self) -> int:
        """Number of the last committed batch; -1 if there is none."""
        return self.commits[-1].last if self.commits else -1

    @property
    def newest_us(self) -> int | None:
        """Greatest instant of an event so far."""
        return _max(commit.newest_us for commit in self.commits)

    def read(
        self,
        spark: SparkSession,
        table: str,
        schema: pa.Schema,
        among: list[Commit] | None = None,
        part: str = "",
    ) -> DataFrame:
        """A table of all commits or of some; `part` is a folder in each, which they all have."""
        commits = self.commits if among is None else among
        if table == QUARANTINE:
            commits = [commit for commit in commits if commit.quarantined]
        folders = [f"{table_folder(table, commit.name)}{part}" for commit in commits]
        columns = from_arrow_schema(schema)
        if not folders:
            return spark.createDataFrame([], columns)
        return spark.read.schema(columns).parquet(*map(self._folder.path, folders))

    def append(self, commit: Commit) -> None:
        """Commits the next batch."""
        self._write(commit)
        with self._lock:
            self.seen = add_seen(self.seen, commit.seen)
            self.commits = [*self.commits, commit]

    def replace(self, parts: list[Commit], merged: Commit) -> None:
        """Commits a range whose tables were written; removes its parts."""
        self._write(merged)
        names = {part.name for part in parts}
        with self._lock:
            kept = [commit for commit in self.commits if commit.name not in names]
            self.commits = sorted([*kept, merged], key=lambda commit: commit.first)
        for part in parts:
            self._remove(part)

    def _write(self, commit: Commit) -> None:
        self._folder.write(f"{COMMITS}/{commit.name}.json", msgspec.json.encode(commit) + b"\n")

    def _read(self, name: str) -> Commit:
        try:
            return msgspec.json.decode(self._folder.read(f"{COMMITS}/{name}") or b"", type=Commit)
        except msgspec.DecodeError as error:
            raise WarehouseError(
                f"{self._folder.path(COMMITS)}/{name} is not a commit of this version: {error}; "
                "start again with another --out"
            ) from error

    def _remove_leftovers(self, kept: set[str]) -> None:
        """Removes what a killed process wrote and did not commit: readers of all files of a table
        would count it."""
        for table in TABLES:
            for folder in self._folder.names(table):
                if folder.partition("=")[2] not in kept:
                    self._folder.delete(f"{table}/{folder}")

    def _remove(self, commit: Commit) -> None:
        self._folder.delete(f"{COMMITS}/{commit.name}.json")
        for table in TABLES:
            self._folder.delete(table_folder(table, commit.name))


def _without_parts(commits: list[Commit]) -> list[Commit]:
    """The commits that are not part of a longer range, in order."""
    kept: list[Commit] = []
    for commit in sorted(commits, key=lambda each: (each.first, -each.last)):
        if not kept or commit.last > kept[-1].last:
            kept.append(commit)
    return kept


def _max(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
