"""From a running node, or a simulation, to the tables (P9)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.live.nodes import free_group, running
from tests.pipeline.event_files import some_events, write_segment
from tests.sim.venues.test_run import scenario
from thyme.cli import main
from thyme.events.event import decode_event
from thyme.events.recorder import STATION_CACHES
from thyme.sim.event_export import SimulationEvents
from thyme.sim.scenario import lecture_of
from thyme.sim.venues.run import simulate_venues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def thyme(*words: str) -> str:
    """Runs a command of an application."""
    done = subprocess.run(
        [sys.executable, "-m", "thyme.cli", *words], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_p9_a_node_exports_events_and_follow_shows_them(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = tmp_path / "events"
    options = ("--world", "w", "--create", "--memory", "--group", free_group(), "--events", events)
    with running("node", *options) as node:
        text = tmp_path / "text"
        text.write_text("hello")
        key = thyme("publish", str(text), "--node", node.url, "--tags", "goal").strip()
        thyme("retrieve", key, "--node", node.url)
        thyme("subscribe", "goal", "--node", node.url, "--json")
        with urllib.request.urlopen(f"{node.url}/metrics") as response:
            metrics = response.read().decode()
        assert 'thyme_events_total{end="dropped"} 0' in metrics
        node.kill()  # leaves a half-written segment, perhaps
    with running("node", *options) as node:  # recovers it
        status = json.loads(thyme("status", "--node", node.url, "--json"))
        assert status["events"]["dropped"] == 0

    assert (
        main(
            ["analytics", "follow", str(events), "--out", str(tmp_path / "out"), "--once", "--json"]
        )
        == 0
    )

    tables = json.loads(capsys.readouterr().out)
    assert tables["totals"]["quarantined"] == {}
    assert [tag["tag"] for tag in tables["popular_tags"]["tags"]] == ["goal"]
    ratios = {row["name"]: (row["hits"], row["total"]) for row in tables["ratios"]}
    assert ratios["operation insert"] == (1, 1)
    assert ratios["cache node"] == (1, 1)
    assert {row["missing"] for row in tables["writers"]} == {0}
    assert len(tables["writers"]) == 2


def test_p9_a_simulation_exports_the_same_events_for_the_same_seed(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["sim", "run", "--substrate", "dcs", "--nodes", "4", "--json", "--events"]
    for name in ("one", "two"):
        assert main([*command, str(tmp_path / name)]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    (one,) = (tmp_path / "one").iterdir()
    (two,) = (tmp_path / "two").iterdir()
    assert one.name == two.name
    assert one.read_bytes() == two.read_bytes()
    found = [decode_event(line) for line in one.read_bytes().splitlines()]
    assert [event.seq for event in found] == list(range(1, len(found) + 1))
    kinds = [event.op or event.kind for event in found]
    assert kinds.count("insert") == summary["ops"]["insert"]["issued"]
    assert kinds.count("notification") == summary["notifications"]["delivered"]

    follow = ["analytics", "follow", str(tmp_path / "one"), "--out", str(tmp_path / "out")]
    assert main([*follow, "--once"]) == 0
    shown = capsys.readouterr().out
    assert f"{len(found):,} events of 1 writers" in shown
    assert "popular tags" in shown


def test_p9_i29_the_hit_ratios_of_stations_are_those_that_the_stations_count(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A simulated lecture in two venues exports the events of its users and stations."""
    venues = scenario()
    trace = lecture_of(venues.without_stations())
    events = SimulationEvents(tmp_path / "events", venues, trace)
    stations = simulate_venues(venues, trace, events=events).stations
    assert events.close() == 0

    follow = ["analytics", "follow", str(tmp_path / "events"), "--out", str(tmp_path / "out")]
    assert main([*follow, "--once", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)

    def counted(name: str) -> tuple[int, int]:
        rows = [row for row in tables["ratios"] if row["name"] == f"cache {name}"]
        return sum(row["hits"] for row in rows), sum(row["total"] for row in rows)

    of_stations = {"local_popularity": "local_popularity", "global": "global_data"}
    of_stations["prefetch"] = "prefetch_data"
    for name in STATION_CACHES:
        caches = [station.caches[of_stations[name]] for station in stations]
        hits = sum(cache["hits"] for cache in caches)
        misses = sum(cache["misses"] for cache in caches)
        assert counted(name) == (hits, hits + misses)
        assert hits > 0


def test_p9_follow_serves_a_page_until_it_is_interrupted(tmp_path: Path) -> None:
    events = tmp_path / "events"
    write_segment(events, "w-1", some_events("w", 1, 20))
    words = ["analytics", "follow", str(events), "--out", str(tmp_path / "out"), "--json"]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "thyme.cli",
            *words,
            "--serve",
            "127.0.0.1:0",
            "--master",
            "local[1]",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        url = process.stderr.readline().removeprefix("serving ").strip()
        first = json.loads(process.stdout.readline())
        write_segment(events, "w-2", some_events("w", 21, 30))
        second = json.loads(process.stdout.readline())
        with urllib.request.urlopen(url) as response:
            page = response.read().decode()
    finally:
        process.send_signal(signal.SIGINT)
        rest = process.communicate()
    assert (first["totals"]["events"], second["totals"]["events"]) == (20, 30)
    assert "Thyme live analytics" in page
    assert "30 events" in page
    assert (process.returncode, rest[1]) == (130, "")


def test_a_folder_that_does_not_exist_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analytics", "follow", str(tmp_path / "none"), "--once"]) == 2
    assert "there is no folder" in capsys.readouterr().err
