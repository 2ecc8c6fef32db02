"""Tables: derives what users read from the measures of the recent windows.

Entry point: `derive_tables`, a pure function; floats are computed from exact counts in a fixed
order, so the same events give the same tables. Clauses: P9, I9, B4.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median

import msgspec
import pyarrow as pa

from thyme.events.popular_tags import POPULAR_TAGS_VERSION, PopularTag, PopularTags
from thyme.pipeline.analytics.batch_log import Commit
from thyme.pipeline.analytics.intervals import count_missing, count_numbers, merge_seen
from thyme.pipeline.analytics.measures import NEGATIVE, bucket_bounds
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


class _Sum(msgspec.Struct):
    """A measure of one name and detail."""

    count: int
    total: int
    least: int | None
    most: int | None


_Group = dict[tuple[int, str, str], dict[str, _Sum]]
"""Window, world and name; by detail."""


def derive_tables(
    measures: pa.Table,
    recall: Sequence[RecallRow],
    commits: Sequence[Commit],
    *,
    window_us: int,
    half_life_us: int,
) -> AnalyticsTables:
    """Derives all tables from the measures of the recent windows."""
    groups = _group(measures)
    newest_us = max((c.newest_us for c in commits if c.newest_us is not None), default=None)
    tags = tuple(_tag_rows(groups["tag"]))
    quarantined: dict[str, int] = defaultdict(int)
    for commit in commits:
        for reason, count in commit.quarantined.items():
            quarantined[reason] += count
    seen = merge_seen(commit.seen for commit in commits)
    return AnalyticsTables(
        totals=Totals(
            batches=commits[-1].last + 1 if commits else 0,
            events=sum(commit.events for commit in commits),
            duplicates=sum(commit.duplicates for commit in commits),
            quarantined=dict(sorted(quarantined.items())),
            newest_us=newest_us,
            committed_us=commits[-1].committed_us if commits else None,
        ),
        window_us=window_us,
        popular_tags=rank_tags(tags, newest_us or 0, window_us, half_life_us),
        tags=tags,
        latency=tuple(_latency_rows(groups["latency"])),
        ratios=tuple(_ratio_rows(groups["cache"], groups["operation"])),
        load=tuple(_load_rows(groups["load"])),
        recall=tuple(recall),
        clocks=tuple(_clock_rows(groups["clock"], groups["ahead"])),
        writers=tuple(
            WriterRow(writer=writer, events=count_numbers(each), missing=count_missing(each))
            for writer, each in seen.items()
        ),
    )


def rank_tags(
    tags: Iterable[TagRow], as_of_us: int, window_us: int, half_life_us: int
) -> PopularTags:
    """The most popular tags: a use counts half for each half-life since the end of its window."""
    scores: dict[tuple[str, str], list[float]] = {}
    for row in sorted(tags, key=lambda row: (row.world, row.tag, row.window_us)):
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
        name: pa.Table.from_pylist([msgspec.structs.asdict(row) for row in rows])
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


def _clock_rows(group: _Group, ahead: _Group) -> Iterable[ClockRow]:
    """Estimates clocks from the quickest notifications between two nodes in both directions: the
    difference of the two is twice the difference of the clocks, if the ways are equally long."""
    least: dict[tuple[str, str, str], int] = {}
    for (_, world, publisher), details in group.items():
        for subscriber, sums in details.items():
            pair = world, publisher, subscriber
            if sums.least is not None and publisher != subscriber:
                least[pair] = min(sums.least, least.get(pair, sums.least))
    offsets: dict[tuple[str, str], list[float]] = defaultdict(list)
    for (world, publisher, subscriber), there_us in least.items():
        back_us = least.get((world, subscriber, publisher))
        if back_us is not None:
            offsets[world, subscriber].append((there_us - back_us) / 2)
    early: dict[tuple[str, str], list[_Sum]] = defaultdict(list)
    for (_, world, node), details in ahead.items():
        early[world, node] += details.values()
    for world, node in sorted({*offsets, *early}):
        found, late = offsets[world, node], early[world, node]
        yield ClockRow(
            world=world,
            node=node,
            peers=len(found),
            offset_ms=round(median(found) / 1_000, 3) if found else None,
            ahead_events=sum(each.count for each in late),
            ahead_ms_max=max((each.most or 0 for each in late), default=0) / 1_000,
        )
