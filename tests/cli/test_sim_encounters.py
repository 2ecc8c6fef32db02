"""thyme sim run with encounters: mobuser, mfps and rapid (U7–U9)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Thyme


def run(thyme: Thyme, *more: str, substrate: str = "mobuser") -> dict[str, object]:
    result = thyme("sim", "run", "--substrate", substrate, "--json", *more)
    assert result.status == 0, result.err
    found: dict[str, object] = json.loads(result.out)
    return found


@pytest.mark.parametrize("substrate", ["mobuser", "mfps", "rapid"])
def test_u8_the_json_has_the_keys_of_the_documents(thyme: Thyme, substrate: str) -> None:
    found = run(thyme, "--nodes", "20", "--hours", "0.5", "--side", "100", substrate=substrate)

    assert {"events", "traffic", "contacts", "wall_s"} <= found.keys()
    events, traffic = found["events"], found["traffic"]
    assert isinstance(events, dict)
    assert isinstance(traffic, dict)
    assert set(events) == {"published", "due", "delivered", "reliability", "delay_s"}
    assert set(events["delay_s"]) == {"mean", "p50", "p95"}
    assert {"bytes", "exchanges"} <= traffic.keys()
    assert events["reliability"] == events["delivered"] / events["due"]


def test_the_same_seed_gives_the_same_output(thyme: Thyme) -> None:
    options = ("--scenario", "areas", "--seed", "7")
    one, other = run(thyme, *options), run(thyme, *options)
    for found in (one, other):
        del found["wall_s"]

    assert one == other


def test_recorded_contacts_bring_their_nodes_and_their_duration(
    thyme: Thyme, tmp_path: Path
) -> None:
    file = tmp_path / "tij.dat"
    file.write_text("".join(f"{20 * t} {t % 3} {t % 3 + 1}\n" for t in range(300)))
    found = run(thyme, "--scenario", "contacts", "--contacts", str(file))

    assert found["nodes"] == 4
    assert found["hours"] == pytest.approx(300 * 20 / 3600)
    assert found["contacts"] == 300


def test_without_json_the_result_is_a_few_lines(thyme: Thyme) -> None:
    result = thyme("sim", "run", "--substrate", "rapid", "--scenario", "areas")

    assert result.status == 0
    assert "reliability" in result.out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--scenario", "crash"], "unknown for mobuser"),
        (["--scenario", "contacts"], "go together"),
        (["--contacts", "x.dat"], "go together"),
        (["--hours", "0"], "above 0"),
        (["--hours", "nan"], "above 0"),
        (["--nodes", "1"], "from 2 to"),
        (["--failing", "0.5"], "is for es, ls and dcs"),
        (["--exchange", "all"], "there is whole, one-for-one, reconcile"),
        (["--trace", "none.csv"], "none.csv"),
        (["--memory-bytes", "0"], "at least 1 byte"),
        (["--discovery", "0"], "from 0.1"),
        (["--joules-per-hour", "nan"], "above 0 joules"),
        (["--trace", "t.csv", "--rare", "0.1"], "not with --trace"),
        (["--retrieve", "0.5"], "is for es, ls and dcs"),
        (["--scenario", "contacts", "--contacts", "none.dat"], "cannot be read"),
        (["--scenario", "contacts", "--contacts", "none.dat", "--nodes", "3"], "leave them out"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    thyme: Thyme, options: list[str], problem: str
) -> None:
    result = thyme("sim", "run", "--substrate", "mobuser", *options)

    assert result.status == 2
    assert problem in result.err
    assert "Traceback" not in result.err


def test_u3_the_exchange_is_an_option_of_mobuser_alone(thyme: Thyme) -> None:
    options = ("--nodes", "20", "--hours", "0.5", "--side", "60", "--exchange")
    whole, reconciled = (run(thyme, *options, mode) for mode in ("whole", "reconcile"))
    assert whole["traffic"] != reconciled["traffic"]

    refused = thyme("sim", "run", "--substrate", "rapid", "--exchange", "whole")
    assert refused.status == 2
    assert "--exchange is for mobuser" in refused.err


def test_s13_the_lecture_may_be_held_by_encounters(thyme: Thyme) -> None:
    found = run(thyme, "--trace", "lecture", "--nodes", "6", "--hours", "0.5", "--side", "40")

    assert found["nodes"] == 6
    assert isinstance(found["events"], dict)
    assert found["events"]["published"] > 10


def test_options_of_encounters_are_refused_on_the_radio(thyme: Thyme) -> None:
    result = thyme("sim", "run", "--substrate", "ls", "--hours", "1")

    assert result.status == 2
    assert "mobuser" in result.err


def test_a_bad_row_is_named_with_its_line(thyme: Thyme, tmp_path: Path) -> None:
    file = tmp_path / "tij.dat"
    file.write_text("20 1 2\n0 1 2\n")
    result = thyme(
        "sim", "run", "--substrate", "rapid", "--scenario", "contacts", "--contacts", str(file)
    )

    assert result.status == 2
    assert "line 2" in result.err
