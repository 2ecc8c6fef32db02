"""thyme sim run: from a scenario and its trace to the results (S7, S10–S12, S14–S18)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Result, Thyme
from thyme.sim.results.tables import RESULT_FILES, SUMMARY
from thyme.sim.scenario import Scenario, Substrate, synthetic_trace
from thyme.traces.synthetic.football_match import FITTED_MATCHES
from thyme.traces.synthetic.lecture_trace import LectureConfig, lecture_trace

HEADER = "at_us,user,op,oid,tags,size,summary_size,text,life_us,sid,query,start_us,end_us\n"
INSERT = "1000000,0,insert,o1,goal,100,,,,,,,\n"
SUBSCRIBE = "2000000,1,subscribe,,,,,,,s1,goal,,\n"
ROWS = (
    INSERT
    + SUBSCRIBE
    + "3000000,0,insert,o2,goal eder,100,,,,,,,\n"
    + "9000000,0,delete,o2,,,,,,,,,\n"
    + "9500000,1,unsubscribe,,,,,,,s1,,,\n"
)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace of two users."""
    path = tmp_path / "trace.csv"
    path.write_text(HEADER + ROWS)
    return path


def run(thyme: Thyme, *more: str, substrate: str = "ls") -> Result:
    return thyme("sim", "run", "--substrate", substrate, *more)


def refused(result: Result) -> str:
    """The one-line error message of a command that was refused."""
    assert result.status == 2
    assert result.out == ""
    assert "Traceback" not in result.err
    return result.err


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Output

LATENCY = {"mean", "p50", "p95", "max"}


@pytest.mark.parametrize("substrate", ["es", "ls", "dcs"])
def test_the_json_has_the_keys_of_the_documents(thyme: Thyme, trace: Path, substrate: str) -> None:
    """S14, S15, S18."""
    result = run(thyme, "--trace", str(trace), "--json", substrate=substrate)

    assert result.status == 0
    assert result.err == ""
    found = json.loads(result.out)
    assert list(found) == [
        "scenario", "ops", "notifications", "traffic", "load", "storage", "cells", "energy_j",
        "analytical", "wall_s", "events",
    ]  # fmt: skip
    assert list(found["ops"]) == ["insert", "delete", "subscribe", "unsubscribe", "retrieve"]
    for operations in found["ops"].values():
        assert set(operations) == {"issued", "ok", "success", "latency_ms", "failures"}
        assert set(operations["latency_ms"]) == LATENCY
    assert set(found["notifications"]) == {
        "expected", "delivered", "recall", "spurious", "duplicates", "unexpected", "latency_ms",
    }  # fmt: skip
    assert set(found["notifications"]["latency_ms"]) == LATENCY
    assert set(found["traffic"]) == {
        "phy_bytes", "phy_frames", "mac_retransmissions", "mac_exceeded", "forwarded_bytes",
        "control_bytes", "dropped", "by_type",
    }  # fmt: skip
    assert set(found["load"]) == {"max", "gini"}
    assert set(found["storage"]) == {"objects", "bytes", "metadata", "subscriptions"}
    assert (found["cells"] is not None) == (substrate == "dcs")
    assert set(found["energy_j"]) == {"mean", "max"}
    assert set(found["analytical"]) == {"formula", "simulated"}


def test_the_json_says_what_was_run(thyme: Thyme, trace: Path) -> None:
    options = ("--trace", str(trace), "--seed", "5", "--topology", "9", "--area", "50x40")
    more = ("--scenario", "mobile", "--speed", "2.5", "--retrieve", "0.5", "--within", "2")
    found = json.loads(run(thyme, *options, *more, "--profile", "robust", "--json").out)

    scenario = found["scenario"]
    assert scenario["operations"] == {"insert": 2, "delete": 1, "subscribe": 1, "unsubscribe": 1}
    assert scenario["area_m"] == [50.0, 40.0]
    assert scenario["reaction"] == {"probability": 0.5, "within_us": 2_000_000}
    wanted = {"substrate": "ls", "nodes": 2, "kind": "mobile", "profile": "robust"}
    wanted |= {"speed_m_s": 2.5, "seed": 5, "topology": 9}
    assert {name: scenario[name] for name in wanted} == wanted
    assert found["notifications"]["recall"] == 1.0
    assert found["notifications"]["spurious"] == 0


def test_people_see_tables(thyme: Thyme, trace: Path) -> None:
    result = run(thyme, "--trace", str(trace))

    assert result.status == 0
    assert result.err == ""  # no progress, since it is not a terminal
    rows = [line.split() for line in result.out.splitlines()]
    assert ["insert", "2", "2", "100.0%", "0.0", "0.0", "0.0", "0.0"] in rows
    assert any(row[:4] == ["notification", "2", "2", "100.0%"] for row in rows)
    assert any(row[:1] == ["upkeep"] and row[1] == "-" for row in rows)
    for words in ("0 spurious", "on the air:", "routing control:", "Gini", "J", "events in"):
        assert words in result.out
    assert "kept per node:" in result.out
    assert "hot spot:" not in result.out


def test_people_see_how_the_cells_are(thyme: Thyme, trace: Path) -> None:
    """S14: for dcs only."""
    result = run(thyme, "--trace", str(trace), substrate="dcs")

    for words in ("cells: ", "populated: ", "hot spot: cell ", "pairs of nodes differ"):
        assert words in result.out


def test_who_watches_sees_how_far_it_is_and_what_has_happened(thyme: Thyme, trace: Path) -> None:
    """S17: on standard error, so that the result on standard output is complete."""
    result = run(thyme, "--trace", str(trace), "--watch", "--json")

    assert json.loads(result.out)["ops"]["insert"]["ok"] == 2
    last = result.err.splitlines()[-1]
    assert last.startswith("720 of 720 s (100%)")
    assert "delete 1/1, insert 2/2, retrieve " in last
    assert last.endswith(", subscribe 1/1, unsubscribe 1/1, notified 2")
    assert "\x1b" not in result.err


def test_the_help_teaches(thyme: Thyme) -> None:
    text = thyme("sim", "run", "--help").out

    for option in ("--substrate", "--nodes", "--scenario", "--failing", "--speed", "--trace",
                   "--profile", "--area", "--retrieve", "--within", "--seed", "--topology",
                   "--out", "--json", "--watch"):  # fmt: skip
        assert option in text
    for word in ("static", "crash", "transient", "mobile", "exit status", "examples:"):
        assert word in text
    assert "run a scenario" in thyme("sim", "--help").out


def test_without_a_trace_the_users_follow_the_match(thyme: Thyme) -> None:
    found = json.loads(run(thyme, "--nodes", "4", "--json").out)

    assert found["scenario"]["nodes"] == 4
    assert found["notifications"]["expected"] > 0
    assert found["notifications"]["spurious"] == 0


# Folders


def test_s13_users_may_attend_the_lecture(thyme: Thyme) -> None:
    """The good and the regular students of both classes subscribe to all eight topics."""
    result = run(thyme, "--trace", "lecture", "--nodes", "2", "--json")

    told = json.loads(result.out)
    assert told["scenario"]["nodes"] == 2
    assert told["scenario"]["operations"] == lecture_trace(1, LectureConfig(users=2)).counts()
    assert told["ops"]["subscribe"]["issued"] >= 2 * 8


def test_d28_the_operations_may_be_those_of_a_match_fitted_to_real_posts(thyme: Thyme) -> None:
    """Its objects have more tags, so that a subscription matches more of them."""
    fitted = run(thyme, "--trace", "swansea-everton", "--nodes", "3", "--json")
    usual = run(thyme, "--nodes", "3", "--json")

    expected = synthetic_trace(
        Scenario(substrate=Substrate.LS, nodes=3), FITTED_MATCHES["swansea-everton"]
    )
    told, before = json.loads(fitted.out), json.loads(usual.out)
    assert told["scenario"]["operations"] == expected.counts()
    assert told["notifications"]["expected"] > 3 * before["notifications"]["expected"]


def test_out_is_a_folder_with_everything(thyme: Thyme, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "result"
    first = run(thyme, "--trace", str(trace), "--out", str(out))
    assert first.status == 0
    assert set(names(out)) == RESULT_FILES
    assert str(out / "playback.html") in first.out

    run(thyme, "--trace", str(trace), "--out", str(out), "--json", "--seed", "2")
    assert json.loads((out / SUMMARY).read_text())["scenario"]["seed"] == 2
    assert names(tmp_path) == ["result", "trace.csv"]


def test_the_summary_is_what_json_prints(thyme: Thyme, trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "result"
    result = run(thyme, "--trace", str(trace), "--out", str(out), "--json")

    assert json.loads(result.out) == json.loads((out / SUMMARY).read_text())


def test_out_onto_what_is_not_a_result_is_refused_before_the_run(
    thyme: Thyme, trace: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    before = names(tmp_path)

    for out, word in (("trace.csv", "file"), ("other", "other files"), ("a/b", "no folder")):
        complaint = refused(run(thyme, "--trace", str(trace), "--out", str(tmp_path / out)))
        assert word in complaint
    assert names(tmp_path) == before
    assert names(tmp_path / "other") == ["mine.txt"]


def test_a_bad_trace_leaves_nothing_in_out(thyme: Thyme, trace: Path, tmp_path: Path) -> None:
    trace.write_text(HEADER + "900000000,0,insert,o1,goal,100,,,,,,,\n")
    complaint = refused(run(thyme, "--trace", str(trace), "--out", str(tmp_path / "result")))

    assert f"{trace}: operation 0, at_us: 900 s is later" in complaint
    assert names(tmp_path) == ["trace.csv"]


def test_same_scenario_and_seed_same_bytes_in_any_process(trace: Path, tmp_path: Path) -> None:
    """Equal except for the wall time in the summary."""
    results: list[dict[str, Any]] = []
    for hash_seed in ("1", "2"):
        out = tmp_path / hash_seed
        command = ["-m", "thyme.cli", "sim", "run", "--substrate", "ls", "--nodes", "4"]
        command += ["--scenario", "transient", "--failing", "0.5", "--out", str(out)]
        environment = os.environ | {"PYTHONHASHSEED": hash_seed}
        subprocess.run([sys.executable, *command], check=True, env=environment, capture_output=True)
        files: dict[str, Any] = {name: (out / name).read_bytes() for name in names(out)}
        files[SUMMARY] = json.loads(files[SUMMARY]) | {"wall_s": None}
        results.append(files)

    assert set(results[0]) == RESULT_FILES
    assert results[0] == results[1]


# Refused commands


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--scenario", "riot"], "--scenario 'riot' is unknown; there is static, crash"),
        (["--profile", "bold"], "--profile 'bold' is unknown; there is paper or robust"),
        (["--nodes", "0"], "nodes: from 1"),
        (["--nodes", "-4"], "nodes: from 1"),
        (["--nodes", "1000000"], "nodes: from 1 to 100,000"),
        (["--nodes", "many"], "--nodes: invalid int value: 'many'"),
        (["--area", "0x50"], "area"),
        (["--area", "50x-1"], "area"),
        (["--area", "nanx50"], "area"),
        (["--area", "infx50"], "area"),
        (["--area", "1e300x50"], "area: sides are at most"),
        (["--area", "1e-300x1e-300"], "there is no room"),
        (["--area", "50"], "--area is WxH in metres"),
        (["--area", "5x5x5"], "--area is WxH in metres"),
        (["--scenario", "crash", "--failing", "1.5"], "failing"),
        (["--scenario", "crash", "--failing", "nan"], "failing"),
        (["--scenario", "crash", "--failing", "-0.1"], "failing"),
        (["--scenario", "mobile", "--speed", "nan"], "speed"),
        (["--scenario", "mobile", "--speed", "0"], "speed"),
        (["--scenario", "mobile", "--speed", "-1"], "speed"),
        (["--scenario", "mobile", "--speed", "inf"], "speed"),
        (["--retrieve", "1.1"], "probability"),
        (["--retrieve", "nan"], "probability"),
        (["--within", "nan"], "--within"),
        (["--within", "inf"], "--within"),
        (["--within", "-1"], "within_us must not be negative"),
        (["--failing", "0.2"], "--failing is for crash and transient; in static nobody fails"),
        (["--scenario", "mobile", "--failing", "0.2"], "in mobile nobody fails"),
        (["--speed", "1"], "--speed is for mobile; in static nobody moves"),
        (["--scenario", "crash", "--speed", "1"], "in crash nobody moves"),
        (["--trace", "nowhere.csv"], "nowhere.csv"),
        (["--trace", "trace.txt"], "traces are files named"),
        (["--seed", "x"], "--seed"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(
    thyme: Thyme, tmp_path: Path, options: list[str], words: str
) -> None:
    complaint = refused(run(thyme, *options, "--out", str(tmp_path / "result")))

    assert words in complaint
    assert names(tmp_path) == []


def test_there_is_no_other_substrate(thyme: Thyme) -> None:
    assert (
        "--substrate 'cloud' is unknown; there is es, ls, dcs, infra, mobuser, mfps or rapid"
        in refused(run(thyme, substrate="cloud"))
    )
    assert "--substrate" in refused(thyme("sim", "run"))


@pytest.mark.parametrize(
    ("rows", "line", "field", "problem"),
    [
        (INSERT + "2000000,2,insert,o2,goal,1,,,,,,,\n", 3, "user", "unknown: 2"),
        ("1000000,0,delete,o1,,,,,,,,,\n", 2, "oid", "not inserted before"),
        (INSERT + "2000000,1,delete,o1,,,,,,,,,\n", 3, "user", "may not delete"),
        (INSERT + "2000000,1,subscribe,,,,,,,s1,goal &,,\n", 3, "query", "expected"),
        (INSERT + "999999,1,insert,o2,goal,1,,,,,,,\n", 3, "at_us", "time goes back"),
        (INSERT + "2000000,1,insert,o1,goal,1,,,,,,,\n", 3, "oid", "already inserted"),
        (SUBSCRIBE + "2000000,0,subscribe,,,,,,,s1,goal,,\n", 3, "sid", "already used"),
        ("1000000,0,unsubscribe,,,,,,,s1,,,\n", 2, "sid", "no such subscription"),
        ("1000000,-1,insert,o1,goal,1,,,,,,,\n", 2, "user", "0 or more"),
        ("soon,0,insert,o1,goal,1,,,,,,,\n", 2, "at_us", "whole number"),
        ("nan,0,insert,o1,goal,1,,,,,,,\n", 2, "at_us", "whole number"),
        ("1000000,0,insert,o1,,1,,,,,,,\n", 2, "tags", ""),
        ("1000000,0,shout,o1,goal,1,,,,,,,\n", 2, "op", "shout"),
    ],
    ids=[
        "unknown user",
        "delete before insert",
        "foreign delete",
        "bad query",
        "time goes back",
        "object twice",
        "subscription twice",
        "unsubscribe before subscribe",
        "negative user",
        "no number",
        "NaN",
        "no tags",
        "unknown operation",
    ],
)
def test_what_is_wrong_with_a_trace_is_named_with_file_row_and_field(
    thyme: Thyme, trace: Path, rows: str, line: int, field: str, problem: str
) -> None:
    trace.write_text(HEADER + rows)
    options = ("--trace", str(trace), "--nodes", "2", "--out", str(trace.parent / "result"))
    complaint = refused(run(thyme, *options))

    assert f"{trace}:{line}: {field}: " in complaint
    assert problem in complaint
    assert names(trace.parent) == ["trace.csv"]


def test_there_are_as_many_nodes_as_users(thyme: Thyme, trace: Path) -> None:
    """With fewer, a user has no device; with more, a device has no user."""
    fewer = refused(run(thyme, "--trace", str(trace), "--nodes", "1"))
    more = refused(run(thyme, "--trace", str(trace), "--nodes", "3"))

    assert f"{trace}:3: user: unknown: 1" in fewer
    assert f"nodes: {trace} has 2 users, but there are 3 nodes" in more


def test_an_object_that_no_node_would_take_is_refused_before_the_run(
    thyme: Thyme, trace: Path
) -> None:
    trace.write_text(HEADER + "1000000,0,insert,o1,goal,1000000000000,,,,,,,\n")

    assert "operation 0, size: a node takes at most" in refused(run(thyme, "--trace", str(trace)))
