"""Pure parts of the analytics: intervals, commits and derived tables (P9)."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.analytics_reference import measure_files
from tests.pipeline.event_files import SECOND_US, event, notification, some_events, write_segment
from thyme.events.event import encode_event
from thyme.pipeline.analytics.batch_log import Commit, merge_commits
from thyme.pipeline.analytics.decode import (
    BAD_VALUE,
    MISSING_FIELD,
    NOT_AN_EVENT,
    UNKNOWN_VERSION,
    decode_line,
)
from thyme.pipeline.analytics.facts import FactRows, FactSpan
from thyme.pipeline.analytics.files import from_parquet
from thyme.pipeline.analytics.intervals import (
    IntervalSet,
    count_missing,
    count_numbers,
    merge_intervals,
    merge_seen,
)
from thyme.pipeline.analytics.measures import (
    MEASURES,
    add_measures,
    bucket_bounds,
    latency_bucket,
)
from thyme.pipeline.analytics.merging import FINISHED_EVENTS, MERGED_BATCHES, select_batches
from thyme.pipeline.analytics.page import render_page
from thyme.pipeline.analytics.recall_table import SLICE_US_MAX, slice_length
from thyme.pipeline.analytics.tables import (
    RecentMeasures,
    TagRow,
    derive_tables,
    derive_window,
    quantile,
    rank_tags,
)
from thyme.pipeline.analytics.task import LineProcessor

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


@given(st.lists(interval), st.lists(st.integers(1, 80)))
def test_an_interval_set_knows_which_numbers_are_new(
    intervals: list[tuple[int, int]], added: list[int]
) -> None:
    found, expected = IntervalSet(intervals), numbers(intervals)
    for number in added:
        assert (number in found) is (number in expected)
        assert found.add(number) is (number not in expected)
        expected.add(number)
    assert found.intervals() == merge_intervals((number, number) for number in expected)


def commit(first: int, last: int, events: int = 2) -> Commit:
    return Commit(
        first=first,
        last=last,
        events=events,
        duplicates=1,
        quarantined={"not an event": 1},
        seen={"w": [(first + 1, last + 1)]},
        newest_us=first,
        facts={"insert": FactSpan(count=1, first_us=first, last_us=last)},
        committed_us=9,
    )


def test_small_batches_are_merged_level_by_level() -> None:
    most = MERGED_BATCHES
    batches = [commit(number, number) for number in range(most + 1)]
    assert select_batches(batches[:-2]) is None
    assert select_batches(batches) == batches[:most]
    merged = merge_commits(batches[:most])
    assert merged.name == f"{0:010d}-{most - 1:010d}"
    assert merged.seen == {"w": [(1, most)]}
    assert (merged.events, merged.quarantined, merged.newest_us) == (
        2 * most,
        {"not an event": most},
        most - 1,
    )
    assert merged.facts == {"insert": FactSpan(count=most, first_us=0, last_us=most - 1)}
    ranges = [commit(most * number, most * (number + 1) - 1) for number in range(most)]
    assert select_batches([*ranges, commit(most**2, most**2)]) == ranges


def test_a_step_of_merging_has_a_bounded_number_of_events() -> None:
    """Large batches are merged once; a finished range is left alone for ever."""
    half = FINISHED_EVENTS // 2
    batches = [commit(number, number, half) for number in range(9)]
    assert select_batches(batches) == batches[:2]
    finished = [commit(number, number + 1, 2 * half) for number in range(0, 200, 2)]
    assert select_batches(finished) is None
    assert select_batches([*finished, commit(200, 200, half)]) is None
    one = commit(200, 200, 1)
    assert select_batches([*finished, one, commit(201, 201, 2 * half), one]) is None


def test_p2_every_invalid_line_has_a_reason() -> None:
    good = event(7, SECOND_US)
    line = encode_event(good)
    assert decode_line(line) == good
    assert decode_line(line[:-1] + b',"colour":"red"}') == good  # a newer optional field
    reasons = {
        b"": NOT_AN_EVENT,
        b"[]": NOT_AN_EVENT,
        b"\xff\xfe": NOT_AN_EVENT,
        b"[" * 100_000: NOT_AN_EVENT,
        line[:-9]: NOT_AN_EVENT,
        line.replace(b'"goal"', b'"\xff"'): NOT_AN_EVENT,
        line.replace(b'"goal"', b'"\\ud800"'): NOT_AN_EVENT,
        line.replace(b'"seq":7', b'"seq":"7"'): NOT_AN_EVENT,
        line.replace(b'"v":1', b'"v":2').replace(b'"seq":7', b'"seq":"7"'): UNKNOWN_VERSION,
        line.replace(b'"v":1', b'"v":0'): UNKNOWN_VERSION,
        line.replace(b'"v":1,', b""): MISSING_FIELD,
        line.replace(b'"world":"lisbon",', b""): MISSING_FIELD,
        line.replace(b'"seq":7', b'"seq":0'): BAD_VALUE,
        line.replace(b'"took_us":2000', b'"took_us":-1'): BAD_VALUE,
        line.replace(b'"at_us":1000000', b'"at_us":9' + b"0" * 18): BAD_VALUE,
        line[:-1] + b',"size":' + b"9" * 30 + b"}": BAD_VALUE,
    }
    assert {line: decode_line(line) for line in reasons} == reasons


@given(st.integers(0, 2**52))
def test_latency_buckets_are_narrow_and_in_order(value: int) -> None:
    bucket = int(latency_bucket(value))
    low, high = bucket_bounds(bucket)
    assert low <= value < high
    assert high - low <= max(1, low / 16)
    assert int(latency_bucket(high)) == bucket + 1
    assert latency_bucket(-1 - value) == "negative"


def process(lines: list[bytes], seen: dict[str, list[tuple[int, int]]]) -> LineProcessor:
    processor = LineProcessor(10 * SECOND_US, seen)
    processor.add_file(lines, "file", 0)
    return processor


def test_p9_the_measures_of_parts_in_any_order_are_those_of_a_plain_loop(tmp_path: Path) -> None:
    """Repeated events within a part and between parts count once."""
    events = [*some_events("w", 1, 60), *some_events("v", 3, 40)]
    lines = [encode_event(each) for each in events]
    parts = [[*lines[50:], *lines[70:80], b"no event"], lines[:50], [*lines, b""]]
    seen: dict[str, list[tuple[int, int]]] = {}
    tables, repeated = [], 0
    for part in parts:
        result = process(part, seen).result()
        seen = merge_seen([seen, result.seen])
        tables.append(from_parquet(result.measures))
        repeated += result.repeated
    write_segment(tmp_path, "all", events)
    os.utime(tmp_path / "all.jsonl", (0, 0))
    found = sorted(tuple(row.values()) for row in add_measures(tables).to_pylist())
    assert found == measure_files(tmp_path, 10 * SECOND_US)
    assert seen == {"v": [(3, 40)], "w": [(1, 60)]}
    assert repeated == len(events) + 10

    recent = RecentMeasures(10**12)
    for table in tables:
        recent.add([table], 0)
        recent.derive_rows()
    by_window = {row.window_us for row in recent.derive_rows()[0].tags}
    assert by_window == {0}
    whole = add_measures(tables)
    tags = [row for rows in recent.derive_rows() for row in rows.tags]
    assert tags == list(derive_window(whole).tags)
    recent.add([], 10**12 + 5 * SECOND_US)
    assert {row.window_us for rows in recent.derive_rows() for row in rows.load} == {10 * SECOND_US}


def test_facts_are_operations_that_succeeded_and_notifications_of_new_objects() -> None:
    facts = FactRows()
    for each in (
        event(1, 5),
        event(2, 6, code="store_full"),
        event(3, 7, op="retrieve"),
        notification(1, 20, 4, key="o1@bb"),
        notification(2, 21, 3, key="o2@bb", past=True),
    ):
        facts.add_event(each)
    tables = facts.to_tables()
    assert {what: span for what, (span, _) in tables.items()} == {
        "insert": FactSpan(count=1, first_us=5, last_us=5),
        "notification": FactSpan(count=1, first_us=4, last_us=4),
    }
    assert tables["insert"][1]["tags"].to_pylist() == [["goal"]]
    assert tables["notification"][1]["at_us"].to_pylist() == [20]


@given(st.integers(1, 10**9))
def test_the_slices_of_a_window_are_equally_long(window_us: int) -> None:
    length_us = slice_length(window_us)
    assert window_us % length_us == 0
    assert length_us <= SLICE_US_MAX or length_us == window_us
    assert slice_length(600 * SECOND_US) == 60 * SECOND_US


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
    options = {"window_us": MINUTE_US, "half_life_us": MINUTE_US}
    none = derive_tables((), (), (), {}, **options)
    assert "0 events" in render_page(none)
    keys = {"measure": "tag", "window_us": 0, "world": "w", "detail": "insert"}
    sums = {"count": 2, "total": 0, "least": None, "most": None}
    measures = pa.Table.from_pylist(
        [keys | sums | {"name": "<script>alert(1)</script>"}], schema=MEASURES
    )
    tables = derive_tables([derive_window(measures)], (), (commit(0, 0),), {}, **options)
    page = render_page(tables)
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "1 not an event" in page
