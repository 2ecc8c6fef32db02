"""Live analytics: the stream gives what one batch over the same events gives, exactly once (P9)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.hashing import ROOT
from tests.pipeline import event_files
from tests.pipeline.analytics_reference import measure_files
from tests.pipeline.event_files import (
    CONFIG,
    SECOND_US,
    WINDOW_US,
    event,
    notification,
    rows_of,
    some_events,
    write_segment,
)
from tests.pipeline.test_kill import _wait_for_end_of_session
from thyme.events.event import encode_event
from thyme.events.popular_tags import read_popular_tags
from thyme.pipeline.analytics import merging, recall_table
from thyme.pipeline.analytics.batch_log import BatchLog
from thyme.pipeline.analytics.files import AnalyticsFolder
from thyme.pipeline.analytics.follow import STATE, FollowConfig, Follower
from thyme.pipeline.analytics.recall_table import RecallRow
from thyme.pipeline.analytics.task import INVALID_LINES
from thyme.pipeline.storage import WarehouseError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def events(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    folder.mkdir()
    return folder


def follower(spark: SparkSession, events: Path, config: FollowConfig = CONFIG) -> Follower:
    return Follower(spark, str(events), str(events.parent / "out"), config)


def test_p9_late_repeated_and_invalid_lines_change_nothing_twice(
    spark: SparkSession, events: Path
) -> None:
    """Also: events of an unknown version, a half-written event file, a restart with new files."""
    first = some_events("w", 1, 40)
    newer = encode_event(first[0]).replace(b'"v":1', b'"v":2', 1).replace(b'"seq":1', b'"seq":"x"')
    write_segment(events, "w-1", first, newer + b'\n\n{"v":1,"writer":"w","seq":41,"at_')
    write_segment(events, "w-1-copy", [*first[:5], *first[:5]])
    tables = follower(spark, events).run_once()
    assert tables.totals.events == 40
    assert tables.totals.duplicates == 10
    assert tables.totals.quarantined == {"not an event": 1, "unknown version": 1}

    write_segment(events / "device", "u-1", some_events("u", 5, 12))  # 1 to 4 never come
    write_segment(events, "w-2", some_events("w", 35, 60))
    late = [event(3, 0, writer="late", tags=("old",))]
    write_segment(events, "late-1", late)
    restarted = follower(spark, events)
    tables = restarted.run_once()

    assert (tables.totals.events, tables.totals.duplicates) == (60 + 8 + 1, 10 + 6)
    assert {row.writer: (row.events, row.missing) for row in tables.writers} == {
        "late": (1, 2),
        "u": (8, 4),
        "w": (60, 0),
    }
    assert rows_of(restarted.measures()) == measure_files(events, WINDOW_US)
    raw = restarted.log.read(spark, "quarantine", INVALID_LINES).orderBy("reason").collect()
    assert [row["reason"] for row in raw] == ["not an event", "unknown version"]
    assert raw[0]["raw"].startswith('{"v":1,"writer":"w","seq":41')
    popular = read_popular_tags(
        events.parent / "out" / "popular_tags.json", now_us=20 * SECOND_US, age_us_max=10**9
    )
    assert popular == tables.popular_tags.tags
    assert popular[0].tag == "goal"


@pytest.mark.slow
def test_p9_a_killed_driver_resumes_and_the_tables_equal_a_batch_run(
    spark: SparkSession, events: Path
) -> None:
    """kill -9 of driver and Java between and within batches."""
    for number in range(5):
        write_segment(events, f"w-{number:02}", some_events("w", 20 * number + 1, 20 * number + 25))
    out = events.parent / "out"
    commits = 0
    while commits < 4:
        process = subprocess.Popen(
            [sys.executable, "-m", event_files.__name__, str(events), str(out), "local[1]"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert process.stdout is not None
            for _ in range(2):
                assert process.stdout.readline()
                commits += 1
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
            _wait_for_end_of_session(process.pid)

    resumed = follower(spark, events)
    assert commits <= resumed.log.last + 1 <= 5
    tables = resumed.run_once()

    assert tables.totals.events == 20 * 4 + 25
    assert rows_of(resumed.measures()) == measure_files(events, WINDOW_US)


def test_p9_merged_batches_have_the_same_measures_and_a_killed_merge_leaves_no_trace(
    spark: SparkSession, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P10: the number of files stays small."""
    monkeypatch.setattr(merging, "MERGED_BATCHES", 2)
    for number in range(3):
        first = 10 * number + 1
        write_segment(events, f"w-{number}", some_events("w", first, first + 9), b"no event\n")
        stream = follower(spark, events)
        before = stream.run_once()
    parts = stream.log.commits[:2]
    folder = AnalyticsFolder(str(events.parent / "out"))
    saved = {part.name: folder.read(f"commits/{part.name}.json") for part in parts}

    assert stream.merge_batches()
    assert not stream.merge_batches()

    names = [commit.name for commit in stream.log.commits]
    assert names == ["0000000000-0000000001", "0000000002-0000000002"]
    folders = [f"batches={name}" for name in names]
    assert all(folder.names(table) == folders for table in ("measures", "facts", "quarantine"))
    for name, data in saved.items():  # killed before the parts were removed
        folder.write(f"commits/{name}.json", data or b"")
    assert [commit.name for commit in BatchLog(folder).commits] == names
    assert folder.names("commits") == [f"{name}.json" for name in names]
    again = follower(spark, events)
    assert rows_of(again.measures()) == measure_files(events, WINDOW_US)
    assert again.refresh(complete=True) == before
    assert again.log.read(spark, "quarantine", INVALID_LINES).count() == 3


def test_p9_lost_and_late_notifications_are_found_from_the_events(
    spark: SparkSession, events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events themselves give the expected notifications, as far as they are known."""
    monkeypatch.setattr(recall_table, "SLICE_US_MAX", WINDOW_US)
    at = [second * SECOND_US for second in range(200)]
    sid = {"op": "subscribe", "sid": "s1", "query": "goal & !replay | eder", "node": "aa"}
    short = sid | {"sid": "s2", "query": "goal"}
    told = [
        event(1, at[0], writer="a", key=None, tags=None, **sid),
        event(6, at[0], writer="a", key=None, tags=None, **short),
        event(7, at[1], writer="a", key=None, tags=None, **(short | {"op": "unsubscribe"})),
        notification(2, at[21], at[20], key="o3@bb"),
        notification(3, at[22], at[20], key="o3@bb"),  # repeated: the first counts
        notification(4, at[42], at[22], key="o4@bb", tags=("eder",)),
        notification(5, at[199], at[198], key="o9@bb"),
    ]
    inserted = [
        event(1, at[2]),  # unsure: one subscription had hardly begun, the other hardly ended
        event(2, at[20], tags=("goal", "replay")),
        event(3, at[20]),
        event(4, at[22], tags=("eder",)),  # late
        event(5, at[23]),  # lost
        event(6, at[24], code="store_full", key=None),
        event(7, at[30]),  # deleted at once: unsure
        event(8, at[31], op="delete", key="o7@bb"),
        event(9, at[198]),  # its window is open
    ]
    write_segment(events, "a-1", told)
    write_segment(events, "b-1", inserted)

    config = FollowConfig(window_us=3 * WINDOW_US)  # computed in three slices
    tables = follower(spark, events, config).run_once()

    def row(window: int, *counts: int) -> RecallRow:
        names = ("expected", "in_time", "late", "lost", "unsure")
        return RecallRow(
            window_us=window * 30 * SECOND_US,
            world="lisbon",
            **dict(zip(names, counts, strict=True)),
        )

    assert tables.recall == (row(0, 3, 1, 1, 1, 2), row(1, 0, 0, 0, 0, 1))

    # The missing notification arrives after all: its window is counted again.
    write_segment(events, "a-2", [notification(8, at[190], at[23], key="o5@bb")])
    tables = follower(spark, events, config).run_once()
    assert tables.recall == (row(0, 3, 1, 2, 0, 2), row(1, 0, 0, 0, 0, 1))


def test_p9_clocks_that_differ_are_measured_and_do_no_harm(
    spark: SparkSession, events: Path
) -> None:
    """Clock skew between nodes: alice is 3 s ahead, carol a year."""
    now_us = 10 * WINDOW_US
    year_us = 60 * 10**12
    ahead = [event(1, now_us + year_us, writer="c", node="cc", tags=("later",))]
    pair = [
        notification(1, now_us + 3_040_000, now_us, key="o1@bb"),
        notification(2, now_us - 2_960_000, now_us, key="o2@aa", node="bb"),
    ]
    write_segment(events, "c-1", ahead)
    write_segment(events, "a-1", pair)
    os.utime(events / "c-1.jsonl", (now_us / 1e6 + 5, now_us / 1e6 + 5))

    tables = follower(spark, events).run_once()

    assert tables.totals.newest_us == now_us + 5 * SECOND_US  # when the file was written
    (latency,) = [row for row in tables.latency if row.name == "notification" and row.count]
    offsets = {row.node: (row.peers, row.offset_ms, row.ahead_events) for row in tables.clocks}
    assert offsets == {"aa": (1, 3000.0, 0), "bb": (1, -3000.0, 0), "cc": (0, None, 1)}
    assert sum(row.negative for row in tables.latency) == 1
    assert latency.p50_ms == pytest.approx(3040, rel=1 / 16)


def test_p9_a_checkpoint_of_another_version_or_setting_is_refused(
    spark: SparkSession, events: Path
) -> None:
    write_segment(events, "w-1", some_events("w", 1, 3))
    follower(spark, events).run_once()
    out = events.parent / "out"
    with pytest.raises(WarehouseError, match=r"window_us 10000000, not 20000000.*another --out"):
        follower(spark, events, FollowConfig(window_us=20 * SECOND_US))
    state = msgspec.json.decode((out / STATE).read_bytes())
    (out / STATE).write_bytes(msgspec.json.encode(state | {"layout": 99}))
    with pytest.raises(WarehouseError, match="layout 99, not 2"):
        follower(spark, events)
    (out / STATE).write_bytes(msgspec.json.encode(state))
    (out / "checkpoint").rename(out / "moved")
    with pytest.raises(WarehouseError, match="no checkpoint"):
        follower(spark, events)
    (out / "moved").rename(out / "checkpoint")
    (out / STATE).unlink()
    with pytest.raises(WarehouseError, match=f"no {STATE}"):
        follower(spark, events)
