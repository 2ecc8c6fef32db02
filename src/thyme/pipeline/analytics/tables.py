"""Tables: derives what users read from the measures of the recent windows.

Entry points: `RecentMeasures`, `derive_tables`; floats are computed from exact counts in a fixed
order, so the same events give the same tables. Clauses: P9, I9, B4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from statistics import median

import msgspec
import pyarrow as pa
from pyarrow import compute

from thyme.events.popular_tags import POPULAR_TAGS_VERSION, PopularTag, PopularTags
from thyme.pipeline.analytics.batch_log import Commit, merge_counts
from thyme.pipeline.analytics.intervals import Seen, count_missing, count_numbers
from thyme.pipeline.analytics.measures import NEGATIVE, add_measures, bucket_bounds
from thyme.pipeline.analytics.recall_table import RecallRow

POPULAR_TAGS_MAX = 200
_ACTIVITIES = {"insert": "inserts", "notification": "notifications", "retrieve": "retrieves"}


class TagRow(msgspec.Struct, frozen=True, kw_only=True):
    """Uses of a tag in a window."""

    window_us: int
    world: str
    tag: str
    inserts: int
    notifications: int
    retrieves: int


class LatencyRow(msgspec.Struct, frozen=True, kw_only=True):
    """Latency of an operation, or of notifications since publication, in a window."""

    window_us: int
    world: str
    name: str
    count: int
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    max_ms: float
    negative: int
    """Latencies below zero, which different clocks cause; not in the quantiles."""


class RatioRow(msgspec.Struct, frozen=True, kw_only=True):
    """Hits among the looks into a cache, or successes among operations, in a window."""

    window_us: int
    world: str
    name: str
    hits: int
    total: int
    ratio: float


class LoadRow(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of the nodes of a cell in a window."""

    window_us: int
    world: str
    cell: str
    samples: int
    messages: int
    bytes: int
    neighbours_mean: float | None


class ClockRow(msgspec.Struct, frozen=True, kw_only=True):
    """The clock of a node, compared with those of the nodes it exchanges notifications with."""

    world: str
    node: str
    peers: int
    """Nodes with notifications in both directions; without one there is no estimate."""
    offset_ms: float | None
    """How far the clock is ahead of the median of these nodes."""
    ahead_events: int
    """Events later than the file they are in: the clock is ahead of that of the file system."""
    ahead_ms_max: float


class WriterRow(msgspec.Struct, frozen=True, kw_only=True):
    """Events of a writer."""

    writer: str
    events: int
    missing: int
    """Numbers that never arrived: dropped by the writer, or in segments that were removed."""


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """Counts since the beginning."""

    batches: int
    events: int
    duplicates: int
    quarantined: dict[str, int]
    newest_us: int | None
    committed_us: int | None


class AnalyticsTables(msgspec.Struct, frozen=True, kw_only=True):
    """All derived tables."""

    totals: Totals
    window_us: int
    popular_tags: PopularTags
    tags: tuple[TagRow, ...]
    latency: tuple[LatencyRow, ...]
    ratios: tuple[RatioRow, ...]
    load: tuple[LoadRow, ...]
    recall: tuple[RecallRow, ...]
    clocks: tuple[ClockRow, ...]
    writers: tuple[WriterRow, ...]


class WindowRows(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of one window, and its part of the tables about nodes."""

    tags: tuple[TagRow, ...]
    latency: tuple[LatencyRow, ...]
    ratios: tuple[RatioRow, ...]
    load: tuple[LoadRow, ...]
    quickest: dict[tuple[str, str, str], int]
    """The least latency of notifications by world, publisher and subscriber."""
    ahead: dict[tuple[str, str], tuple[int, int]]
    """Events later than their file by world and node: how many, and how much at most."""


class _Sum(msgspec.Struct):
    """A measure of one name and detail."""

    count: int
    total: int
    least: int | None
    most: int | None


_Group = dict[tuple[int, str, str], dict[str, _Sum]]
"""Window, world and name; by detail."""


def derive_window(measures: pa.Table) -> WindowRows:
    """Derives the rows of a window from its measures."""
    groups = _group(measures)
    return WindowRows(
        tags=tuple(_tag_rows(groups["tag"])),
        latency=tuple(_latency_rows(groups["latency"])),
        ratios=tuple(_ratio_rows(groups["cache"], groups["operation"])),
        load=tuple(_load_rows(groups["load"])),
        quickest={
            (world, publisher, subscriber): sums.least
            for (_, world, publisher), details in groups["clock"].items()
            for subscriber, sums in details.items()
            if sums.least is not None and publisher != subscriber
        },
        ahead={
            (world, node): (sums.count, sums.most or 0)
            for (_, world, node), details in groups["ahead"].items()
            for sums in details.values()
        },
    )


def derive_tables(
    windows: Sequence[WindowRows],
    recall: Sequence[RecallRow],
    commits: Sequence[Commit],
    seen: Seen,
    *,
    window_us: int,
    half_life_us: int,
) -> AnalyticsTables:
    """Derives all tables from the rows of the recent windows, oldest first."""
    newest_us = max((c.newest_us for c in commits if c.newest_us is not None), default=None)
    tags = tuple(chain.from_iterable(window.tags for window in windows))
    return AnalyticsTables(
        totals=Totals(
            batches=commits[-1].last + 1 if commits else 0,
            events=sum(commit.events for commit in commits),
            duplicates=sum(commit.duplicates for commit in commits),
            quarantined=merge_counts(commit.quarantined for commit in commits),
            newest_us=newest_us,
            committed_us=commits[-1].committed_us if commits else None,
        ),
        window_us=window_us,
        popular_tags=rank_tags(tags, newest_us or 0, window_us, half_life_us),
        tags=tags,
        latency=tuple(chain.from_iterable(window.latency for window in windows)),
        ratios=tuple(chain.from_iterable(window.ratios for window in windows)),
        load=tuple(chain.from_iterable(window.load for window in windows)),
        recall=tuple(recall),
        clocks=tuple(_clock_rows(windows)),
        writers=tuple(
            WriterRow(writer=writer, events=count_numbers(each), missing=count_missing(each))
            for writer, each in sorted(seen.items())
        ),
    )


class RecentMeasures:
    """The measures of the last `keep_us` of event time, by window, and the rows derived from them.

    A new batch changes one or two windows; the rows of the others are kept, so the cost of a
    refresh does not grow with the span that the tables cover."""

    def __init__(self, keep_us: int) -> None:
        self._keep_us = keep_us
        self._measures: dict[int, pa.Table] = {}
        self._rows: dict[int, WindowRows] = {}

    def add(self, parts: list[pa.Table], newest_us: int) -> None:
        """Adds measures, and drops those of windows that are too old."""
        if parts:
            table = add_measures(parts)
            for window_us in compute.unique(table["window_us"]).to_pylist():
                new = table.filter(compute.equal(table["window_us"], window_us))
                known = self._measures.get(window_us)
                self._measures[window_us] = new if known is None else add_measures([known, new])
                self._rows.pop(window_us, None)
        for window_us in [each for each in self._measures if each < newest_us - self._keep_us]:
            del self._measures[window_us]
            self._rows.pop(window_us, None)

    def derive_rows(self) -> list[WindowRows]:
        """The rows of all windows, oldest first."""
        for window_us, measures in self._measures.items():
            if window_us not in self._rows:
                self._rows[window_us] = derive_window(measures)
        return [self._rows[window_us] for window_us in sorted(self._rows)]


def rank_tags(
    tags: Iterable[TagRow], as_of_us: int, window_us: int, half_life_us: int
) -> PopularTags:
    """The most popular tags: a use counts half for each half-life since the end of its window.

    The tags are in the order of their windows."""
    scores: dict[tuple[str, str], list[float]] = {}
    for row in tags:
        age_us = max(0, as_of_us - row.window_us - window_us)
        weight = 2.0 ** (-age_us / half_life_us)
        found = scores.setdefault((row.world, row.tag), [0.0, 0.0, 0.0])
        for place, uses in enumerate((row.inserts, row.notifications, row.retrieves)):
            found[place] += weight * uses
    ranked = [
        PopularTag(
            world=world,
            tag=tag,
            score=round(sum(found), 6),
            inserts=round(found[0], 6),
            notifications=round(found[1], 6),
            retrieves=round(found[2], 6),
        )
        for (world, tag), found in scores.items()
    ]
    ranked.sort(key=lambda each: (-each.score, each.world, each.tag))
    return PopularTags(
        version=POPULAR_TAGS_VERSION,
        as_of_us=as_of_us,
        half_life_us=half_life_us,
        tags=tuple(ranked[:POPULAR_TAGS_MAX]),
    )


def quantile(buckets: dict[int, int], share: float) -> float | None:
    """A quantile from counts by latency bucket: the middle of the bucket that has it."""
    total = sum(buckets.values())
    reached = 0
    for bucket, count in sorted(buckets.items()):
        reached += count
        if reached >= share * total:
            low, high = bucket_bounds(bucket)
            return (low + high - 1) / 2
    return None


def tables_as_arrow(tables: AnalyticsTables) -> dict[str, pa.Table]:
    """The tables with their names, to be written as Parquet files; empty ones are left out."""
    named: dict[str, Sequence[msgspec.Struct]] = {
        "popular_tags": tables.popular_tags.tags,
        "tags": tables.tags,
        "latency": tables.latency,
        "ratios": tables.ratios,
        "load": tables.load,
        "recall": tables.recall,
        "clocks": tables.clocks,
        "writers": tables.writers,
    }
    return {
        name: pa.table(
            {
                field: pa.array([getattr(row, field) for row in rows])
                for field in rows[0].__struct_fields__
            }
        )
        for name, rows in named.items()
        if rows
    }


def _group(measures: pa.Table) -> dict[str, _Group]:
    groups: dict[str, _Group] = defaultdict(dict)
    columns = (measures[name].to_pylist() for name in measures.column_names)
    for measure, window_us, world, name, detail, *sums in zip(*columns, strict=True):
        groups[measure].setdefault((window_us, world, name), {})[detail] = _Sum(*sums)
    for measure, group in groups.items():
        groups[measure] = dict(sorted(group.items()))
    return groups


def _tag_rows(group: _Group) -> Iterable[TagRow]:
    for (window_us, world, tag), details in group.items():
        uses = dict.fromkeys(_ACTIVITIES.values(), 0)
        for activity, sums in details.items():
            if activity in _ACTIVITIES:
                uses[_ACTIVITIES[activity]] += sums.count
        yield TagRow(window_us=window_us, world=world, tag=tag, **uses)


def _latency_rows(group: _Group) -> Iterable[LatencyRow]:
    for (window_us, world, name), details in group.items():
        buckets = {int(each): sums.count for each, sums in details.items() if each != NEGATIVE}
        negative = details[NEGATIVE].count if NEGATIVE in details else 0
        most = max(sums.most or 0 for sums in details.values())
        p50, p95, p99 = (
            None if (value := quantile(buckets, share)) is None else min(value, most) / 1_000
            for share in (0.5, 0.95, 0.99)
        )
        yield LatencyRow(
            window_us=window_us,
            world=world,
            name=name,
            count=sum(buckets.values()),
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
            max_ms=most / 1_000,
            negative=negative,
        )


def _ratio_rows(caches: _Group, operations: _Group) -> Iterable[RatioRow]:
    for group, kind, good in ((caches, "cache", "hit"), (operations, "operation", "ok")):
        for (window_us, world, name), details in group.items():
            hits = details[good].count if good in details else 0
            total = sum(sums.count for sums in details.values())
            yield RatioRow(
                window_us=window_us,
                world=world,
                name=f"{kind} {name}",
                hits=hits,
                total=total,
                ratio=round(hits / total, 6),
            )


def _load_rows(group: _Group) -> Iterable[LoadRow]:
    for (window_us, world, cell), details in group.items():
        messages, size = details["messages"], details["bytes"]
        near = details.get("neighbours")
        yield LoadRow(
            window_us=window_us,
            world=world,
            cell=cell,
            samples=messages.count,
            messages=messages.total,
            bytes=size.total,
            neighbours_mean=None if near is None else round(near.total / near.count, 3),
        )


def _clock_rows(windows: Sequence[WindowRows]) -> Iterable[ClockRow]:
    """Estimates clocks from the quickest notifications between two nodes in both directions: the
    difference of the two is twice the difference of the clocks, if the ways are equally long."""
    quickest: dict[tuple[str, str, str], int] = {}
    ahead: dict[tuple[str, str], tuple[int, int]] = {}
    for window in windows:
        for pair, least_us in window.quickest.items():
            quickest[pair] = min(least_us, quickest.get(pair, least_us))
        for node, (count, most_us) in window.ahead.items():
            before = ahead.get(node, (0, 0))
            ahead[node] = before[0] + count, max(before[1], most_us)
    offsets: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (world, publisher, subscriber), there_us in sorted(quickest.items()):
        back_us = quickest.get((world, subscriber, publisher))
        if back_us is not None:
            offsets[world, subscriber].append((there_us - back_us) / 2)
    for world, name in sorted({*offsets, *ahead}):
        found = offsets.get((world, name), [])
        count, most_us = ahead.get((world, name), (0, 0))
        yield ClockRow(
            world=world,
            node=name,
            peers=len(found),
            offset_ms=round(median(found) / 1_000, 3) if found else None,
            ahead_events=count,
            ahead_ms_max=most_us / 1_000,
        )
