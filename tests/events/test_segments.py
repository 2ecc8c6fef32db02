"""Segments appear complete, survive crashes and full disks, and stay within their limit (P9)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.events import segments
from thyme.events.background import BackgroundWriter
from thyme.events.event import EVENT_VERSION, Event, decode_event, encode_event
from thyme.events.segments import (
    EventStats,
    SegmentConfig,
    SegmentWriter,
    complete_bytes,
    recover_segments,
)
from thyme.model.errors import OptionError

SMALL = SegmentConfig(segment_bytes_max=1_000, segment_age_s_max=10.0, reserve_bytes=0)


def line(seq: int) -> bytes:
    """An encoded event."""
    return encode_event(
        Event(
            v=EVENT_VERSION, writer="w", seq=seq, at_us=seq, node="aa", world="x", kind="node",
            code="started",
        )
    )  # fmt: skip


def visible(folder: Path) -> list[Path]:
    return sorted(folder.glob("[!._]*"))


def numbers(folder: Path) -> list[int]:
    """The numbers of all events in visible segments."""
    lines = [each for path in visible(folder) for each in path.read_bytes().splitlines()]
    return [decode_event(each).seq for each in lines]


def test_a_segment_is_hidden_until_it_is_large_enough(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "w", SMALL)
    writer.write([line(1)], 0.0)
    assert visible(tmp_path) == []

    writer.write([line(seq) for seq in range(2, 20)], 0.0)

    assert numbers(tmp_path) == list(range(1, 20))
    assert (writer.stats.written, writer.stats.segments, writer.stats.dropped) == (19, 1, 0)


def test_a_segment_is_closed_when_it_is_old_enough(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path, "w", SMALL)
    writer.write([line(1)], 5.0)
    writer.close_if_due(14.9)
    assert visible(tmp_path) == []
    writer.close_if_due(15.0)
    assert numbers(tmp_path) == [1]


def test_the_oldest_segments_are_removed_above_the_limit(tmp_path: Path) -> None:
    config = SegmentConfig(segment_bytes_max=1, total_bytes_max=3 * 4096, reserve_bytes=0)
    for writer_name in ("n-1", "n-2"):  # a restart continues to count
        writer = SegmentWriter(tmp_path, writer_name, config, family="n-")
        for seq in range(1, 4):
            writer.write([line(seq)], 0.0)
    assert len(visible(tmp_path)) == 3
    assert all(path.name.startswith("n-2") for path in visible(tmp_path))
    assert writer.stats.removed == 3


@pytest.mark.parametrize(("tail", "aside"), [(b"", 0), (b'{"v":1,"wri', 1), (b"\x00\x00\n", 1)])
def test_a_crash_leaves_a_segment_that_the_next_writer_recovers(
    tmp_path: Path, tail: bytes, aside: int
) -> None:
    """A half-written event file: its complete events are kept, the rest is set aside."""
    half = tmp_path / ".w-00000001.jsonl"
    half.write_bytes(line(1) + b"\n" + line(2) + b"\n" + tail)

    writer = SegmentWriter(tmp_path, "later", SMALL)

    assert numbers(tmp_path) == [1, 2]
    assert (writer.stats.recovered, writer.stats.set_aside) == (1, aside)
    assert [path.read_bytes() for path in tmp_path.glob("_*.bad")] == [tail] * aside


def test_the_segment_of_a_living_writer_is_left_alone(tmp_path: Path) -> None:
    half = tmp_path / ".w-00000001.jsonl"
    half.write_bytes(line(1) + b"\n")
    stats = EventStats()
    with half.open("rb") as living:
        fcntl.flock(living, fcntl.LOCK_EX)
        recover_segments(tmp_path, stats)
        assert stats == EventStats()
        assert half.exists()


def test_a_full_disk_drops_and_counts_events_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(tmp_path, "w", SMALL)
    writer.write([line(1)], 0.0)
    full = SegmentConfig(reserve_bytes=2**62)
    monkeypatch.setattr(writer, "_config", full)
    writer.write([line(2), line(3)], 0.0)
    monkeypatch.setattr(writer, "_config", SMALL)
    writer.write([line(4)], 0.0)
    writer.close()
    assert numbers(tmp_path) == [1, 4]
    assert (writer.stats.written, writer.stats.dropped) == (2, 2)


def test_a_write_that_fails_midway_leaves_no_half_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = SegmentWriter(tmp_path, "w", SMALL)
    writer.write([line(1)], 0.0)
    file = writer._file
    assert file is not None

    class HalfFile:
        """Writes half of the bytes, as a disk that becomes full."""

        name = file.name

        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

        def write(self, data: bytes) -> int:
            return file.write(data[: len(data) // 2])

    monkeypatch.setattr(writer, "_file", HalfFile())
    writer.write([line(2)], 0.0)
    monkeypatch.setattr(writer, "_file", file)
    writer.write([line(3)], 0.0)
    writer.close()
    assert numbers(tmp_path) == [1, 3]
    assert writer.stats.dropped == 1


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "events"
    writer = SegmentWriter(folder, "w", SMALL)
    folder.rmdir()
    writer.write([line(1)], 0.0)
    writer.close()
    assert numbers(folder) == [1]


def test_a_folder_that_cannot_be_made_is_refused_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(OptionError, match="events cannot be written"):
        SegmentWriter(tmp_path / "file" / "events", "w")


def test_the_background_writer_writes_everything_before_it_ends(tmp_path: Path) -> None:
    writer = BackgroundWriter(SegmentWriter(tmp_path, "w", SMALL))
    for seq in range(1, 101):
        writer.put(line(seq))
    writer.close()
    assert numbers(tmp_path) == list(range(1, 101))
    assert writer.read_stats().written == 100


def test_a_queue_that_is_full_drops_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that hangs never makes the node wait."""
    release = os.pipe()
    original = segments.SegmentWriter.write

    def hang(self: SegmentWriter, lines: list[bytes], now_s: float) -> None:
        if lines:
            os.read(release[0], 1)
        original(self, lines, now_s)

    monkeypatch.setattr(segments.SegmentWriter, "write", hang)
    writer = BackgroundWriter(SegmentWriter(tmp_path, "w", SMALL), queue_events_max=10)
    for seq in range(1, 101):
        writer.put(line(seq))
    assert writer.read_stats().dropped >= 80
    os.write(release[1], b"xxx")
    writer.close()
    stats = writer.read_stats()
    assert stats.written + stats.dropped == 100
    for end in release:
        os.close(end)


@given(st.integers(0, 5), st.binary(max_size=40))
def test_complete_bytes_are_exactly_the_complete_events(count: int, tail: bytes) -> None:
    good = b"".join(line(seq) + b"\n" for seq in range(1, count + 1))
    # Whatever follows is not an event.
    assert complete_bytes(good + b"#" + tail) == len(good)
