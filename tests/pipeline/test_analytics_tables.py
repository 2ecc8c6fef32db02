"""Pure parts of the analytics: intervals, commits and derived tables (P9)."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from thyme.pipeline.analytics import batch_log
from thyme.pipeline.analytics.batch import ARROW_MEASURES
from thyme.pipeline.analytics.batch_log import Commit, merge_commits, merged_ranges
from thyme.pipeline.analytics.intervals import (
    count_missing,
    count_numbers,
    merge_intervals,
    merge_seen,
)
from thyme.pipeline.analytics.page import render_page
from thyme.pipeline.analytics.tables import TagRow, derive_tables, quantile, rank_tags

MINUTE_US = 60_000_000
interval = st.tuples(st.integers(1, 60), st.integers(0, 9)).map(lambda pair: (pair[0], sum(pair)))


def numbers(intervals: list[tuple[int, int]]) -> set[int]:
    return {number for first, last in intervals for number in range(first, last + 1)}


@given(st.lists(interval))
def test_merged_intervals_are_the_same_numbers_in_as_few_intervals_as_possible(
    intervals: list[tuple[int, int]],
) -> None:
    merged = merge_intervals(intervals)
    assert numbers(merged) == numbers(intervals)
    assert count_numbers(merged) == len(numbers(intervals))
    assert all(a[1] + 1 < b[0] for a, b in pairwise(merged))
    if merged:
        assert count_missing(merged) == merged[-1][1] - len(numbers(intervals))


@given(st.lists(interval), st.lists(interval), st.lists(interval))
def test_seen_numbers_do_not_depend_on_the_order_of_batches(
    one: list[tuple[int, int]], two: list[tuple[int, int]], three: list[tuple[int, int]]
) -> None:
    parts = [{"w": one}, {"w": two, "v": one}, {"w": three}]
    step_by_step: dict[str, list[tuple[int, int]]] = {}
    for part in reversed(parts):
        step_by_step = merge_seen([step_by_step, part])
    assert step_by_step == merge_seen(parts)


def commit(first: int, last: int) -> Commit:
    return Commit(
        first=first,
        last=last,
        events=2,
        duplicates=1,
        quarantined={"not an event": 1},
        seen={"w": [(first + 1, last + 1)]},
        newest_us=first,
        facts_from_us=None,
        committed_us=9,
    )


def test_batches_are_merged_level_by_level() -> None:
    most = batch_log.MERGED_BATCHES
    batches = [commit(number, number) for number in range(most + 1)]
    assert merged_ranges(batches[:-2]) is None
    assert merged_ranges(batches) == batches[:most]
    merged = merge_commits(batches[:most])
    assert merged.name == f"{0:010d}-{most - 1:010d}"
    assert merged.seen == {"w": [(1, most)]}
    assert (merged.events, merged.quarantined, merged.newest_us) == (
        2 * most,
        {"not an event": most},
        most - 1,
    )
    ranges = [commit(most * number, most * (number + 1) - 1) for number in range(most)]
    assert merged_ranges([*ranges, commit(most**2, most**2)]) == ranges


def test_popularity_counts_half_after_a_half_life() -> None:
    """B8: popularity with decay."""

    def row(window: int, tag: str, inserts: int, retrieves: int = 0) -> TagRow:
        return TagRow(
            window_us=window * MINUTE_US, world="w", tag=tag, inserts=inserts, notifications=0,
            retrieves=retrieves,
        )  # fmt: skip

    rows = [row(0, "old", 100), row(10, "new", 40, 1), row(20, "now", 1)]
    ranked = rank_tags(rows, 21 * MINUTE_US, MINUTE_US, 10 * MINUTE_US)
    assert [(tag.tag, tag.score, tag.inserts, tag.retrieves) for tag in ranked.tags] == [
        ("old", 25.0, 25.0, 0.0),
        ("new", 20.5, 20.0, 0.5),
        ("now", 1.0, 1.0, 0.0),
    ]


@given(st.lists(st.integers(0, 31), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_quantiles_of_small_values_are_exact(values: list[int], share: float) -> None:
    buckets = {value: values.count(value) for value in values}
    rank = next(n for n in range(1, len(values) + 1) if n >= share * len(values))
    assert quantile(buckets, share) == sorted(values)[rank - 1]


def test_tables_and_page_of_nothing_and_of_markup() -> None:
    """A tag is any text: the page shows it and nothing else."""
    none = derive_tables(
        ARROW_MEASURES.empty_table(), (), (), window_us=MINUTE_US, half_life_us=MINUTE_US
    )
    assert "0 events" in render_page(none)
    keys = {"measure": "tag", "window_us": 0, "world": "w", "detail": "insert"}
    sums = {"count": 2, "total": 0, "least": None, "most": None}
    measures = pa.Table.from_pylist(
        [keys | sums | {"name": "<script>alert(1)</script>"}], schema=ARROW_MEASURES
    )
    tables = derive_tables(
        measures, (), (commit(0, 0),), window_us=MINUTE_US, half_life_us=MINUTE_US
    )
    page = render_page(tables)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "1 not an event" in page
