"""S17: a recorded run becomes one self-contained page, which says what it leaves out."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import zlib
from array import array
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from tests.hashing import ROOT
from tests.sim.playback.test_recorder import recorded
from thyme.map.recording import (
    AppEventRecord,
    AppRequestEvent,
    FaultEvent,
    MessageDroppedEvent,
    MessageReceivedEvent,
    MessageSentEvent,
    MoveEvent,
    PowerEvent,
    RecordedEvent,
    Recorder,
    Recording,
    ReplicaEvent,
)
from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.worlds import Area
from thyme.sim.faults.schedule import Crash, LossBurst, Partition
from thyme.sim.playback import event_columns, page, page_data
from thyme.sim.playback.event_columns import EventColumns, MessageRates
from thyme.sim.playback.page import PlaybackGrid, write_page

MS = 1_000
PLACES = [(0.0, 0.0), (40.5, -3.25), (80.0, 10.0)]
HEADER = b'{"recording":1,"start_us":0,"nodes":["61","62"],"places":[[0,0],[1,1]],"range_m":9}\n'
STORY: list[RecordedEvent] = [
    PowerEvent(0, 0, True),
    PowerEvent(0, 1, True),
    MoveEvent(0, 2, 50 * MS, (80.0, 10.0), (90.25, -20.5)),
    AppRequestEvent(1 * MS, 0, "Insert"),
    MessageSentEvent(1 * MS, 1, 0, 1, "Packet/InsertObject", 700, objects=("photo",)),
    MessageSentEvent(1 * MS, 2, 1, None, "RouteUpdate", 44),
    MessageReceivedEvent(2 * MS, 1, (1,)),
    MessageReceivedEvent(2 * MS, 2, (0, 2)),
    MessageSentEvent(3 * MS, 3, 1, None, "Flooded/StartSubscription", 90),
    MessageReceivedEvent(4 * MS, 3, (0,)),
    MessageReceivedEvent(5 * MS, 3, (2,)),
    AppEventRecord(6 * MS, 0, "Finished", ("photo",), "Insert", 5 * MS),
    MessageSentEvent(7 * MS, 4, 0, 2, "Packet/Notify", 80, perimeter=True),
    ReplicaEvent(8 * MS, 0, "photo", "own"),
    ReplicaEvent(8 * MS, 1, "photo", "active"),
    MessageDroppedEvent(9 * MS, 4, "exceeded"),
    FaultEvent(10 * MS, to_builtins(Crash(10 * MS, 1)), True),
    FaultEvent(10 * MS, to_builtins(Partition(10 * MS, ((0,), (1, 2)))), True),
    FaultEvent(10 * MS, to_builtins(LossBurst(10 * MS, 20 * MS, 0.5)), True),
    PowerEvent(10 * MS, 1, False),
    ReplicaEvent(12 * MS, 2, "photo", "passive"),
    ReplicaEvent(12 * MS, 2, "song", "passive"),
    ReplicaEvent(14 * MS, 1, "photo", ""),
    MoveEvent(50 * MS, 2, 10**12, (90.25, -20.5), (90.25, -20.5)),
    MessageSentEvent(60 * MS, 5, 0, 2, "Packet/Notify", 80),
]


def written(events: list[RecordedEvent]) -> bytes:
    file = io.BytesIO()
    recorder = Recorder(file)
    recorder.write_header(0, [b"ann", b"ben", b"cy"], PLACES, 113.0)
    for event in events:
        recorder.write_event(event)
    return file.getvalue()


def page_of(tmp_path: Path, recording: bytes, **more: Any) -> str:
    source, target = tmp_path / "run.jsonl", tmp_path / "run.html"
    source.write_bytes(recording)
    write_page(source, target, title=more.pop("title", "A run"), **more)
    return target.read_text("utf-8")


def data_of(page: str) -> tuple[dict[str, Any], dict[str, list[int]]]:
    """The data embedded in a page: the object about the run, and its columns by name."""
    [text] = re.findall(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    payload = zlib.decompress(base64.b64decode(text))
    at = 4 + int.from_bytes(payload[:4], "little")
    about = json.loads(payload[4:at])
    columns: dict[str, list[int]] = {}
    for name, width, count in about["columns"]:
        column = array({"u1": "B", "u2": "H", "u4": "I"}[width])
        column.frombytes(payload[at : at + count * column.itemsize])
        at += count * column.itemsize
        if sys.byteorder == "big":
            column.byteswap()
        columns[name] = list(accumulate(column)) if name.endswith(".at") else list(column)
    assert at == len(payload)
    return about, columns


def rows(columns: dict[str, list[int]], table: str) -> list[tuple[int, ...]]:
    chosen = [column for name, column in columns.items() if name.startswith(f"{table}.")]
    return list(zip(*chosen, strict=True))


def test_s17_a_page_holds_what_was_recorded(tmp_path: Path) -> None:
    about, columns = data_of(page_of(tmp_path, written(STORY)))

    assert about["names"] == ["616e6e", "62656e", "6379"]
    assert about["places"] == [list(place) for place in PLACES]
    assert about["kinds"] == [
        ["Packet/InsertObject", False],
        ["RouteUpdate", True],
        ["Flooded/StartSubscription", False],
        ["Packet/Notify", False],
    ]
    # at, node, to + 1, kind, bytes, around, took, outcome, heard
    assert rows(columns, "application") == [
        (1 * MS, 0, 2, 0, 700, 0, 1 * MS, 1, 1),
        (3 * MS, 1, 0, 2, 90, 0, 1 * MS, 1, 2),
        (7 * MS, 0, 3, 3, 80, 1, 2 * MS, 2, 0),
        (60 * MS, 0, 3, 3, 80, 0, 0, 0, 0),
    ]
    assert rows(columns, "control") == [(1 * MS, 1, 0, 1, 44, 0, 1 * MS, 1, 2)]
    assert about["causes"] == ["exceeded"]
    assert about["whats"] == [["Insert", False, 1], ["Finished", True, 1]]
    assert rows(columns, "marks") == [(1 * MS, 0, 0), (6 * MS, 0, 1)]
    assert rows(columns, "switches") == [(0, 0, 1), (0, 1, 1), (10 * MS, 1, 0)]
    assert about["corner"] == [0.0, -20.5]
    assert rows(columns, "legs") == [
        (0, 2, 50 * MS, 8000, 3050, 9025, 0),
        (50 * MS, 2, 0, 9025, 0, 9025, 0),
    ]
    assert about["objects"] == ["photo", "song"]
    assert rows(columns, "kept") == [  # at, node, object, role
        (8 * MS, 0, 0, 1),
        (8 * MS, 1, 0, 2),
        (12 * MS, 2, 0, 3),
        (12 * MS, 2, 1, 3),
        (14 * MS, 1, 0, 0),
    ]
    assert [(at, begins, fault["type"]) for at, begins, fault in about["faults"]] == [
        (10 * MS, True, "crash"),
        (10 * MS, True, "partition"),
        (10 * MS, True, "loss"),
    ]
    # at, object, type, node, to + 1, what, around, took
    assert rows(columns, "life") == [
        (1 * MS, 0, 2, 0, 2, 0, 0, 0),
        (6 * MS, 0, 1, 0, 0, 1, 0, 5 * MS),
    ]
    assert about["life_words"] == ["Packet/InsertObject", "Finished Insert"]
    assert columns["totals.sent"] == [3, 1, 0]
    assert columns["totals.control"] == [0, 1, 0]
    assert columns["totals.heard"] == [2, 1, 2]
    assert columns["rates.3"] == [2]


def test_s17_a_page_of_a_real_run_holds_every_message(tmp_path: Path) -> None:
    recording = recorded()
    about, columns = data_of(page_of(tmp_path, recording))

    events = list(Recording(recording.splitlines()))
    sent = [event for event in events if isinstance(event, MessageSentEvent)]
    assert about["span_us"] == events[-1].at_us
    assert [row[:3] for row in rows(columns, "application")] == [
        (event.at_us, event.node, 0 if event.to is None else event.to + 1) for event in sent
    ]
    assert sum(columns["application.heard"]) == sum(
        len(event.nodes) for event in events if isinstance(event, MessageReceivedEvent)
    )
    gave_up = [event for event in events if isinstance(event, MessageDroppedEvent)]
    assert sum(outcome > 1 for outcome in columns["application.outcome"]) == len(gave_up) > 5


def test_s17_a_page_needs_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = page_of(tmp_path, written(STORY))

    assert not re.search(r"https?:|//[a-z]+\.|@import|url\(|\ssrc=|\shref=|import\(|fetch\(", page)
    [policy] = re.findall(r'content="(default-src[^"]*)"', page)
    assert "unsafe" not in policy
    for tag in ("style", "script"):
        [text] = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.S)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy


def test_s17_a_title_is_text(tmp_path: Path) -> None:
    page = page_of(tmp_path, written(STORY), title="<b>{{data}} & co</b>")

    assert "<title>&lt;b&gt;{{data}} &amp; co&lt;/b&gt;</title>" in page
    assert "<b>{{" not in page
    assert data_of(page)[0]["title"] == "<b>{{data}} & co</b>"


def test_s17_an_area_and_a_grid_are_drawn_if_there_are_any(tmp_path: Path) -> None:
    plain, _ = data_of(page_of(tmp_path, written(STORY)))
    assert (plain["box"], plain["grid"]) == ([0.0, -20.5, 90.25, 10.0], None)

    area, grid = Area(400.0, 200.0), PlaybackGrid(10, 5, 40.0)
    about, _ = data_of(page_of(tmp_path, written(STORY), area=area, grid=grid))
    assert (about["box"], about["grid"]) == ([0.0, 0.0, 400.0, 200.0], [10, 5, 40.0])

    with pytest.raises(InputError, match="1 to 1000 columns"):
        PlaybackGrid(0, 5, 40.0)


def test_s17_replicas_of_more_objects_than_there_is_room_for_are_left_out_and_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that is shown must also be shown to go, so none of an object's is left out
    alone."""
    monkeypatch.setattr(page_data, "OBJECTS_MAX", 1)

    page = page_of(tmp_path, written(STORY))

    about, columns = data_of(page)
    assert about["objects"] == ["photo"]
    assert len(rows(columns, "kept")) == 4
    assert about["omitted"]["replicas"] == 1


def test_s17_a_compressed_recording_will_do(tmp_path: Path) -> None:
    plain, packed = tmp_path / "run.jsonl", tmp_path / "run.jsonl.gz"
    plain.write_bytes(written(STORY))
    packed.write_bytes(gzip.compress(written(STORY)))
    pages = []
    for source in (plain, packed):
        write_page(source, tmp_path / "page.html", title="A run")
        pages.append((tmp_path / "page.html").read_bytes())
    assert pages[0] == pages[1]


def test_s17_the_same_recording_gives_the_same_page_whatever_the_hash_seed(tmp_path: Path) -> None:
    first = page_of(tmp_path, written(STORY)).encode()
    program = (
        "import sys; from thyme.sim.playback.page import write_page;"
        "write_page(sys.argv[1], sys.argv[2], title='A run')"
    )
    for hash_seed in ("0", "1"):
        target = tmp_path / f"{hash_seed}.html"
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "run.jsonl"), str(target)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            check=True,
        )
        assert hashlib.sha256(target.read_bytes()).digest() == hashlib.sha256(first).digest()


# Thinning out


def chatter(application: int, control: int) -> bytes:
    """A number of messages, then a number of routing control messages."""
    events: list[RecordedEvent] = []
    rng = derive_rng(1, "chatter")
    for number in range(application + control):
        at_us = 997 * number
        kind, to = ("Notify", 1) if number < application else ("RouteUpdate", None)
        events.append(MessageSentEvent(at_us, number, number % 2, to, kind, rng.randrange(30_000)))
        events.append(MessageReceivedEvent(at_us, number, (2,)))
    return written(events)


def test_s17_control_is_thinned_out_and_everything_else_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_data, "CONTROL_MAX", 1_000)
    page = page_of(tmp_path, chatter(application=2_000, control=5_000))

    about, columns = data_of(page)
    assert about["strides"]["control"] == 8
    assert columns["control.at"] == [997 * number for number in range(2_000, 7_000, 8)]
    assert columns["control.heard"] == [1] * 625
    assert about["strides"]["application"] == 1
    assert len(columns["application.at"]) == 2_000
    assert about["seen"]["control"] == 5_000
    counted = {
        kind: sum(columns[f"rates.{number}"]) for number, (kind, _) in enumerate(about["kinds"])
    }
    assert counted == {"Notify": 2_000, "RouteUpdate": 5_000}
    assert columns["totals.control"] == [2_500, 2_500, 0]
    assert columns["totals.heard"] == [0, 0, 7_000]


def test_s17_a_page_stays_within_its_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = chatter(application=12_000, control=15_000)
    whole = page_of(tmp_path, recording)
    budget = len(whole.encode()) - 30_000
    monkeypatch.setattr(page, "PAGE_BYTES_MAX", budget)
    html = page_of(tmp_path, recording)

    assert len(html.encode()) <= budget
    about, columns = data_of(html)
    assert about["strides"]["control"] == about["strides"]["application"] == 2
    assert len(columns["control.at"]) == 7_500
    assert sum(columns["rates.0"]) + sum(columns["rates.1"]) == 27_000
    assert (about["seen"]["control"], about["seen"]["application"]) == (15_000, 12_000)


def test_s17_a_page_that_cannot_be_small_enough_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "PAGE_BYTES_MAX", 1_000)
    with pytest.raises(InputError, match=r"3 nodes, 2 legs .* too big"):
        page_of(tmp_path, written(STORY))
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


@given(st.integers(1, 40), st.integers(0, 300))
def test_s17_what_is_thinned_out_is_thinned_out_evenly(most: int, count: int) -> None:
    kept = EventColumns(("at",), most)
    for number in range(count):
        kept.add(number)
    assert kept.seen == count
    assert list(kept.columns["at"]) == list(range(0, count, kept.stride))
    assert len(kept) <= most
    assert kept.stride == 1 or 2 * len(kept) >= most


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 10**13)), max_size=50))
def test_s17_rates_count_everything_however_long_the_run(sent: list[tuple[int, int]]) -> None:
    rates = MessageRates()
    for kind, at_us in sorted(sent, key=lambda message: message[1]):
        rates.count_message(kind, at_us)
    for kind, counts in enumerate(rates.rows):
        wanted = [at_us // rates.bin_us for number, at_us in sent if number == kind]
        assert [index for index, count in enumerate(counts) for _ in range(count)] == sorted(wanted)
        assert len(counts) <= event_columns.BINS_MAX


def test_s17_a_run_of_hours_has_coarser_instants(tmp_path: Path) -> None:
    hours = 3 * 3_600 * 10**6
    about, columns = data_of(
        page_of(tmp_path, written([PowerEvent(7, 0, True), PowerEvent(hours + 7, 0, False)]))
    )
    assert about["tick_us"] == 10
    assert columns["switches.at"] == [0, hours // 10]


def test_s17_the_limits_of_a_page_are_the_ones_documented() -> None:
    text = (ROOT / "docs" / "simulator.md").read_text("utf-8")
    listed = re.findall(r"^\| .*up to ([\d,]+).* \| `(\w+_MAX)` \|$", text, flags=re.M)
    assert len(listed) == 7
    for number, name in listed:
        [value] = {
            vars(module)[name]
            for module in (page_data, event_columns, page)
            if name in vars(module)
        }
        assert int(number.replace(",", "")) == value, name


# Recordings that cannot be played


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (b"", "line 1 of the recording"),
        (b"<html>", "line 1 of the recording"),
        (HEADER.replace(b"[1,1]", b""), "line 1 of the recording"),
        (HEADER.replace(b",[1,1]", b""), "2 nodes, but 1 positions"),
        (HEADER.replace(b"[1,1]", b"[1,1e300]"), ":1: a coordinate is at most"),
        (HEADER + b'["on",5,1,tr', "line 2 of the recording"),
        (HEADER + b'["on",5,2,true]', ":2: node 2 is unknown, there are 2"),
        (
            HEADER + b'["on",5,1,true]\n["on",4,0,true]',
            ":3: an event at 4 µs comes after one at 5 µs",
        ),
        (HEADER + b'["on",-1,1,true]', ":2: an event at -1 µs"),
        (HEADER + b'["on",99999999999999999999999,1,true]', "line 2|:2: "),
        (HEADER + b'["tx",1,1,0,7,"Done",3]', ":2: node 7 is unknown"),
        (HEADER + b'["tx",1,1,0,1,"Done",-3]', ":2: a message cannot have -3 bytes"),
        (HEADER + b'["tx",1,1,0,1,"Done",3]\n["tx",1,1,0,1,"Done",3]', ":3: message 1 comes after"),
        (HEADER + b'["rx",1,1,[0]]', ":2: message 1 has not been sent"),
        (HEADER + b'["tx",1,1,0,1,"Done",3]\n["rx",1,1,[-1]]', ":3: node -1 is unknown"),
        (HEADER + b'["go",9,1,3,[0,0],[1,1]]', ":2: a leg that begins at 9 µs ends at 3 µs"),
        (HEADER + b'["go",9,1,30,[0,0],[1,1e9]]', ":2: a coordinate"),
        (HEADER + b'["fault",9,{"type":"crash","at_us":9,"node":5},true]', ":2: node 5"),
        (HEADER + b'["fault",9,{"type":"flood"},true]', ":2: a fault cannot be read"),
        (HEADER + b'["node",9,5,"63",[0,0],""]', ":2: the next node is 2, not 5"),
        (HEADER + b'["near",9,0,2,true]', ":2: node 2 is unknown"),
    ],
)
def test_s17_a_bad_recording_is_refused_and_nothing_is_written(
    tmp_path: Path, lines: bytes, words: str
) -> None:
    source, target = tmp_path / "run.jsonl", tmp_path / "run.html"
    source.write_bytes(lines)
    target.write_text("the page before")

    with pytest.raises(InputError, match=words) as caught:
        write_page(source, target, title="A run")

    assert "run.jsonl" in str(caught.value)
    assert target.read_text() == "the page before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "run.jsonl"]


@pytest.mark.parametrize("name", ["absent.jsonl", "damaged.jsonl.gz", "cut.jsonl.gz"])
def test_s17_a_recording_that_cannot_be_opened_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "damaged.jsonl.gz").write_bytes(b"plain text")
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(written(STORY))[:-20])
    with pytest.raises(InputError, match=rf"{name}: cannot be read: \S"):
        write_page(tmp_path / name, tmp_path / "run.html", title="A run")
    assert not (tmp_path / "run.html").exists()
