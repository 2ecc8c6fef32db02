"""Merging: turns the files of many small batches into few files, in steps of bounded cost.

Entry points: `select_batches`, `merge_batches`. A range of enough events is finished and never
written again, so a step handles a bounded number of events however long the stream runs, and an
event is written again once if batches are large, a few times if they are tiny. No Spark job is
needed, and the stream does not wait for it.
Clauses: P9, P10.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from thyme.pipeline.analytics.batch_log import (
    FACTS,
    MEASURES,
    QUARANTINE,
    BatchLog,
    Commit,
    merge_commits,
    table_folder,
)
from thyme.pipeline.analytics.files import AnalyticsFolder, from_parquet, to_parquet
from thyme.pipeline.analytics.measures import add_measures

MERGED_BATCHES = 32
"""So many batches, or ranges of equal length, become one range."""
FINISHED_EVENTS = 200_000
"""A batch or range of so many events is not merged again."""


def select_batches(commits: list[Commit]) -> list[Commit] | None:
    """The batches or ranges to merge next: consecutive, equally long, and enough of them, or of
    their events."""
    growing = {commit.batches for commit in commits if commit.events < FINISHED_EVENTS}
    for length in sorted(growing):
        run: list[Commit] = []
        events = 0
        for commit in commits:
            if commit.events >= FINISHED_EVENTS or commit.batches != length:
                run, events = [], 0
                continue
            run.append(commit)
            events += commit.events
            if len(run) == MERGED_BATCHES or (len(run) > 1 and events >= FINISHED_EVENTS):
                return run
    return None


def merge_batches(log: BatchLog, folder: AnalyticsFolder) -> bool:
    """Merges one run of small batches, if there are enough; returns whether it did."""
    parts = select_batches(log.commits)
    if parts is None:
        return False
    merged = merge_commits(parts)
    tables: list[tuple[str, str, Callable[[list[pa.Table]], pa.Table]]] = [
        (MEASURES, "", add_measures)
    ]
    tables += [(FACTS, f"/what={what}", pa.concat_tables) for what in merged.facts]
    tables += [(QUARANTINE, "", pa.concat_tables)] if merged.quarantined else []
    for table, part, join in tables:
        found = [
            from_parquet(data)
            for commit in parts
            for data in _read_files(folder, f"{table_folder(table, commit.name)}{part}")
        ]
        name = f"{table_folder(table, merged.name)}{part}/part-0.parquet"
        folder.write(name, to_parquet(join(found)))
    log.replace(parts, merged)
    return True


def _read_files(folder: AnalyticsFolder, place: str) -> list[bytes]:
    found = (folder.read(f"{place}/{name}") for name in folder.names(place))
    return [data for data in found if data is not None]
