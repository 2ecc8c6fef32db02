"""thyme sim radio: replays a file of sends, or compares the radio with ns-3 (S1–S5)."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Result, Thyme
from thyme.sim.validation import selftest
from thyme.sim.validation.selftest import compare

POSITIONS = "node,x,y\n0,0,0\n1,80,0\n2,160,0\n3,900,0\n"
SENDS = """\
id,t,src,dst,size
7,1.0,1,-1,300
3,1.5,0,1,300
5,1.2,0,3,300
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with positions and sends."""
    (tmp_path / "positions.csv").write_text(POSITIONS)
    (tmp_path / "sends.csv").write_text(SENDS)
    return tmp_path


def replay(thyme: Thyme, folder: Path, *more: str) -> Result:
    return thyme(*arguments(folder), *more)


def arguments(folder: Path, out: str = "result.csv") -> list[str]:
    return [
        *("sim", "radio", "--positions", str(folder / "positions.csv")),
        *("--sends", str(folder / "sends.csv"), "--out", str(folder / out)),
    ]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_result_has_a_line_for_each_send_in_the_order_of_the_file(
    thyme: Thyme, folder: Path
) -> None:
    assert replay(thyme, folder).status == 0

    assert (folder / "result.csv").read_text() == (
        "id,n_rx,n_tx,delay_mean_us,dropped\n7,2,1,568,\n3,1,1,568,\n5,0,7,-1,exceeded\n"
    )


def test_the_totals_are_one_json_object(thyme: Thyme, folder: Path) -> None:
    result = replay(thyme, folder, "--json")

    totals = json.loads(result.out)
    assert totals.pop("wall_s") >= 0
    assert totals == {
        "frames": 1 + 2 + 7,
        "retransmissions": 6,
        "exceeded": 1,
        "bytes": 9 * 364 + 14,
        "receptions": 3,
        "delay_ms": {"mean": 0.568, "p50": 0.568, "p95": 0.568},
    }


def test_the_totals_for_people_name_the_same_things(thyme: Thyme, folder: Path) -> None:
    rows = [line.split()[:2] for line in replay(thyme, folder).out.splitlines()]

    assert ["frames", "10"] in rows
    assert ["exceeded", "1"] in rows


def test_delays_are_null_where_nothing_arrived(thyme: Thyme, folder: Path) -> None:
    (folder / "sends.csv").write_text("id,t,src,dst,size\n0,1,3,-1,50\n")

    result = replay(thyme, folder, "--json")

    assert json.loads(result.out)["delay_ms"] == {"mean": None, "p50": None, "p95": None}
    assert (folder / "result.csv").read_text().endswith("\n0,0,1,-1,\n")


def test_a_longer_range_reaches_further(thyme: Thyme, folder: Path) -> None:
    replay(thyme, folder, "--range", "1000")

    with (folder / "result.csv").open() as file:
        assert {row["id"]: row["n_rx"] for row in csv.DictReader(file)} == {
            "7": "3",
            "3": "1",
            "5": "1",
        }


@pytest.mark.parametrize(
    ("more", "delay_us", "neighbours"),
    [
        ([], 568, 2),
        (["--rate", "6"], 568, 2),
        (["--rate", "12"], 324, 2),
        (["--rate", "54"], 132, 0),
        (["--rate", "54", "--range", "113"], 132, 2),
        (["--standard", "802.11b"], 3_154, 2),
        (["--standard", "802.11b", "--rate", "1"], 3_154, 2),
        (["--standard", "802.11b", "--rate", "5.5"], 772, 2),
        (["--standard", "802.11b", "--rate", "11", "--range", "113"], 507, 2),
    ],
)
def test_s1_a_faster_rate_takes_less_time_and_reaches_less_far(
    thyme: Thyme, folder: Path, more: list[str], delay_us: int, neighbours: int
) -> None:
    """Node 1 sends to nodes 80 m away on both sides, then node 4 to one 10 m away. The delays are
    those of ns-3 for 300 bytes of payload: DIFS and the frame."""
    (folder / "positions.csv").write_text(f"{POSITIONS}4,910,0\n")
    (folder / "sends.csv").write_text("id,t,src,dst,size\n0,1,1,-1,300\n1,2,4,-1,300\n")

    assert replay(thyme, folder, *more).status == 0

    with (folder / "result.csv").open() as file:
        far, near_by = csv.DictReader(file)
    assert far["n_rx"] == str(neighbours)
    assert (near_by["n_rx"], near_by["delay_mean_us"]) == ("1", str(delay_us))


@pytest.mark.parametrize(
    ("more", "receivers"),
    [
        (["--range", "100"], "1"),
        (["--range", "99.9"], "0"),
        ([], "1"),
        (["--rate", "9"], "0"),
        (["--standard", "802.11b", "--rate", "2"], "1"),
    ],
)
def test_s2_a_disk_ends_at_the_range(
    thyme: Thyme, folder: Path, more: list[str], receivers: str
) -> None:
    """Without a range option, the range is that of the rate: 113 m at 6 Mb/s, 91 at 9, 144 at
    802.11b's 2."""
    (folder / "positions.csv").write_text("node,x,y\n0,0,0\n1,100,0\n")
    sends = [f"{number},{1 + number},0,-1,300" for number in range(20)]
    (folder / "sends.csv").write_text("\n".join(["id,t,src,dst,size", *sends, ""]))

    assert replay(thyme, folder, "--propagation", "disk", *more).status == 0

    with (folder / "result.csv").open() as file:
        assert {row["n_rx"] for row in csv.DictReader(file)} == {receivers}


def test_s2_in_a_disk_hidden_nodes_disturb_within_earshot(thyme: Thyme, folder: Path) -> None:
    """Nodes 0 and 2 are hidden from each other, node 1 hears both: frames sent at once collide."""
    (folder / "positions.csv").write_text("node,x,y\n0,0,0\n1,110,0\n2,220,0\n")
    (folder / "sends.csv").write_text(
        "id,t,src,dst,size\n0,1,0,-1,300\n1,1.0001,2,-1,300\n2,2,0,-1,300\n"
    )

    assert replay(thyme, folder, "--propagation", "disk").status == 0

    with (folder / "result.csv").open() as file:
        assert [row["n_rx"] for row in csv.DictReader(file)] == ["0", "0", "1"]


def test_an_older_result_is_replaced_and_a_link_to_it_kept(thyme: Thyme, folder: Path) -> None:
    (folder / "kept.csv").write_text("old")
    (folder / "result.csv").symlink_to(folder / "kept.csv")

    assert replay(thyme, folder).status == 0

    assert (folder / "result.csv").is_symlink()
    assert (folder / "kept.csv").read_text().startswith("id,n_rx,")


@pytest.mark.parametrize(
    ("file", "text", "where"),
    [
        ("sends.csv", "id,t,src,dst,size\n0,1,0,-1,300\n1,1,9,-1,300\n", "sends.csv:3:5"),
        ("sends.csv", "id,t,src,dst,size\n0,-1,0,-1,300\n", "sends.csv:2:3"),
        ("sends.csv", "id,t,src,dst\n0,1,0,-1\n", "size"),
        ("sends.csv", "", "sends.csv"),
        ("positions.csv", "node,x,y\n0,0,0\n1,nan,0\n", "positions.csv:3:3"),
        ("positions.csv", "node,x,y\n0,0,0\n1,0,0\n", "same position"),
    ],
)
def test_a_bad_file_is_named_with_its_line_and_nothing_is_written(
    thyme: Thyme, folder: Path, file: str, text: str, where: str
) -> None:
    (folder / file).write_text(text)

    result = replay(thyme, folder)

    assert (result.status, result.out) == (2, "")
    assert where in result.err.replace(", line ", ":").replace(", column ", ":")
    assert names(folder) == ["positions.csv", "sends.csv"]


def test_a_replay_that_fails_leaves_the_older_result_and_nothing_else(
    thyme: Thyme, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "result.csv").write_text("old")

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("thyme.sim.validation.raw_replay.replay_sends", fail)

    assert replay(thyme, folder).status == 130
    assert (folder / "result.csv").read_text() == "old"
    assert names(folder) == ["positions.csv", "result.csv", "sends.csv"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--standard", "802.11n"], "--standard '802.11n' is unknown; there is 802.11g, 802.11b"),
        (["--standard", ""], "--standard '' is unknown; there is 802.11g, 802.11b"),
        (["--propagation", "cube"], "--propagation 'cube' is unknown; there is log-distance, disk"),
        (["--rate", "5.5"], "--rate: 802.11g has no rate of 5.5 Mb/s; there is 6, 9, 12, 18, 24"),
        (
            ["--standard", "802.11b", "--rate", "54"],
            "--rate: 802.11b has no rate of 54 Mb/s; there is 1, 2, 5.5, 11",
        ),
        (["--rate", "nan"], "--rate: 802.11g has no rate of nan Mb/s"),
        (["--rate", "fast"], "argument --rate: invalid float value: 'fast'"),
        (["--range", "0"], "--range must be a number of metres above 0"),
        (["--range", "nan"], "--range must be a number of metres above 0"),
        (["--seed", "x"], "argument --seed: invalid int value: 'x'"),
        (["--quick"], "--quick and --jobs belong to --selftest"),
        (["--selftest"], "--selftest has its own positions and sends"),
    ],
)
def test_an_option_without_a_meaning_is_refused_by_name(
    thyme: Thyme, folder: Path, more: list[str], words: str
) -> None:
    result = replay(thyme, folder, *more)

    assert (result.status, result.out) == (2, "")
    assert words in result.err
    assert names(folder) == ["positions.csv", "sends.csv"]


@pytest.mark.parametrize("out", ["nowhere/result.csv", ".", "sends.csv", "pipe", "link-to-pipe"])
def test_an_output_that_cannot_be_is_refused(thyme: Thyme, folder: Path, out: str) -> None:
    os.mkfifo(folder / "pipe")
    (folder / "link-to-pipe").symlink_to(folder / "pipe")
    before = names(folder)

    result = thyme(*arguments(folder, out))

    assert result.status == 2
    assert result.err.startswith("thyme: --out ")
    assert names(folder) == before
    assert (folder / "sends.csv").read_text() == SENDS
    assert (folder / "pipe").is_fifo()


@pytest.mark.parametrize("missing", ["--positions", "--sends", "--out"])
def test_what_is_missing_is_named(thyme: Thyme, folder: Path, missing: str) -> None:
    argv = arguments(folder)
    place = argv.index(missing)

    result = thyme(*argv[:place], *argv[place + 2 :])

    assert (result.status, result.out) == (2, "")
    assert f"{missing} FILE is missing" in result.err


def test_a_file_that_is_not_there_is_named(thyme: Thyme, folder: Path) -> None:
    (folder / "sends.csv").unlink()

    result = replay(thyme, folder)

    assert result.status == 2
    assert "sends.csv" in result.err


def test_the_same_seed_gives_the_same_bytes_in_every_process(folder: Path) -> None:
    """Sixty nodes that send at once, in processes with different hash seeds."""
    places = [f"{number},{number % 10 * 31},{number // 10 * 29}" for number in range(60)]
    (folder / "positions.csv").write_text("\n".join(["node,x,y", *places, ""]))
    sends = [
        f"{number},{1 + number * 0.0004:.4f},{number * 7 % 60},{-1 if number % 3 else number % 60},"
        f"{100 + number % 5 * 200}"
        for number in range(1, 1_500)
        if number % 3 or number * 7 % 60 != number % 60
    ]
    (folder / "sends.csv").write_text("\n".join(["id,t,src,dst,size", *sends, ""]))
    found = []
    for hash_seed, seed in (("0", "4"), ("1234", "4"), ("0", "5")):
        out = f"{hash_seed}-{seed}.csv"
        subprocess.run(
            [sys.executable, "-m", "thyme.cli", *arguments(folder, out), "--seed", seed],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
        )
        found.append((folder / out).read_bytes())

    assert found[0] == found[1]
    assert found[0] != found[2]
    assert found[0].count(b"\n") == len(sends) + 1


@pytest.mark.parametrize(("ours", "status"), [(101.0, 0), (120.0, 1)])
def test_the_self_test_answers_by_its_exit_status(
    thyme: Thyme, monkeypatch: pytest.MonkeyPatch, ours: float, status: int
) -> None:
    row = compare(("a_bcast", "20/s"), "receivers per send", 100.0, ours, 0.03)
    asked: dict[str, object] = {}

    def no_test(**options: object) -> list[selftest.Comparison]:
        asked.update(options)
        return [row]

    monkeypatch.setattr(selftest, "run_selftest", no_test)

    as_json = thyme("sim", "radio", "--selftest", "--quick", "--jobs", "1", "--json")
    for_people = thyme("sim", "radio", "--selftest")

    assert (as_json.status, for_people.status) == (status, status)
    assert asked["quick"] is False
    found = json.loads(as_json.out)
    assert found["passed"] is (status == 0)
    assert found["rows"][0]["quantity"] == "receivers per send"
    assert found["rows"][0]["ours"] == ours
    word = "DIFFERS" if status else "ok"
    assert any(
        line.startswith("a_bcast") and line.split()[-1] == word
        for line in map(str.strip, for_people.out.splitlines())
    )


@pytest.mark.parametrize(
    "more",
    [["--standard", "802.11b"], ["--rate", "6"], ["--range", "9"], ["--propagation", "disk"]],
)
def test_the_self_test_has_a_radio_of_its_own(thyme: Thyme, more: list[str]) -> None:
    result = thyme("sim", "radio", "--selftest", *more)

    assert (result.status, result.out) == (2, "")
    assert f"--selftest has its own radio; {more[0]} cannot be used with it" in result.err


def test_no_figure_of_the_self_test_is_cut_short(
    thyme: Thyme, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("c_chain", "cca_at_decode 1000 B 1000/s")
    rows = [
        compare(where, "receivers per reply", 36.269, 36.325, 0.05),
        compare(where, "delay mean µs", 934_736.0, 884_065.9, 0.1),
    ]
    monkeypatch.setattr(selftest, "run_selftest", lambda **_: rows)

    lines = thyme("sim", "radio", "--selftest").out.splitlines()

    assert lines[2].split()[-5:] == ["36.269", "36.325", "+0.2%", "5%", "ok"]
    assert lines[3].split()[-5:] == ["934,736", "884,066", "-5.4%", "10%", "ok"]


def test_help_teaches_with_examples(thyme: Thyme) -> None:
    result = thyme("sim", "radio", "--help")

    assert result.status == 0
    assert "id,t,src,dst,size" in result.out
    assert "thyme sim radio --selftest --quick" in result.out
