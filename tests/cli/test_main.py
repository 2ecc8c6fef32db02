"""The thyme command as a whole: help with examples, one clear message for each error."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

import thyme as front_door
from tests.cli.conftest import Thyme
from thyme.distribution import install_hint
from thyme.tools import mypyc_build
from thyme.wire.codec import VERSION

COMMAND = [sys.executable, "-m", "thyme.cli"]


def test_version_names_what_a_report_of_a_problem_needs(thyme: Thyme) -> None:
    assert json.loads(thyme("version", "--json").out) == {
        "thyme": front_door.__version__,
        "wire": VERSION,
        "python": platform.python_version(),
    }


@pytest.mark.parametrize("words", ["version", "--version"])
def test_version_is_one_line_for_people(thyme: Thyme, words: str) -> None:
    result = thyme(words)

    assert result.status == 0
    assert result.out.startswith(f"thyme {front_door.__version__} ")
    assert result.out.count("\n") == 1


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["dmeo"],
        ["query"],
        ["query", "explian", "a"],
        ["query", "explain"],
        ["query", "match", "a"],
        ["version", "--jsno"],
    ],
)
def test_a_command_that_is_none_is_status_2_and_points_to_the_help(
    thyme: Thyme, argv: list[str]
) -> None:
    result = thyme(*argv)

    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("thyme: ")
    assert "--help" in result.err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--help"], "thyme query match 'goal & !replay'"),
        (["query", "--help"], "goal & (a | b)"),
        (["query", "explain", "--help"], "examples:"),
        (["query", "match", "--help"], "exit status: 0"),
        (["demo", "--help"], "thyme evaluate --preset quick"),
        (["story", "--help"], "temporary directory"),
        (["version", "--help"], "--json"),
    ],
)
def test_help_teaches(thyme: Thyme, argv: list[str], words: str) -> None:
    result = thyme(*argv)

    assert result.status == 0
    assert words in result.out


def test_the_module_is_the_command() -> None:
    result = subprocess.run(
        [*COMMAND, "query", "match", "goal", "--tags", "save"], capture_output=True, text=True
    )

    assert (result.returncode, result.stdout, result.stderr) == (1, "no\n  goal: lacks goal\n", "")


def test_matching_does_not_wait_for_rich() -> None:
    program = (
        "import sys; from thyme.cli import main;"
        "main(['query', 'match', 'goal', '--tags', 'goal']); print('rich' in sys.modules)"
    )

    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert result.stdout.splitlines()[-1] == "False"


def test_bytes_that_are_no_text_are_pointed_at() -> None:
    result = subprocess.run(
        [*COMMAND, "query", "explain", "-"], input=b"goal & \xff\xfe", capture_output=True
    )

    assert result.returncode == 2
    assert result.stderr.startswith(b"thyme: at character 7")


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_any_terminal_can_show_any_tag(encoding: str) -> None:
    result = subprocess.run(
        [*COMMAND, "query", "explain", "éder & 目标"],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
    )

    assert (result.returncode, result.stderr) == (0, b"")


def test_no_color_means_no_escapes() -> None:
    result = subprocess.run(
        [*COMMAND, "query", "explain", "goal & !replay"],
        capture_output=True,
        env={**os.environ, "NO_COLOR": "1"},
    )

    assert b"\x1b" not in result.stdout


@pytest.mark.parametrize("argv", [["version"], ["query", "explain", "goal"], ["story"]])
def test_a_reader_that_goes_away_ends_it_quietly(argv: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        result = subprocess.run([*COMMAND, *argv], stdout=closed, stderr=subprocess.PIPE)

    assert (result.returncode, result.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_an_output_that_cannot_be_written_is_said() -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run([*COMMAND, "version"], stdout=full, stderr=subprocess.PIPE)

    assert result.returncode == 2
    assert b"No space left" in result.stderr
    assert b"Traceback" not in result.stderr


def test_ctrl_c_ends_it_quietly(thyme: Thyme, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr("thyme.cli.version.line", interrupted)

    assert thyme("version") == (128 + signal.SIGINT, "", "")


def test_compiling_without_its_packages_says_how_to_install_them(
    thyme: Thyme, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise mypyc_build.MissingToolsError("mypyc is missing")

    monkeypatch.setattr(mypyc_build, "compile_modules", fail)
    result = thyme("compile")
    assert result.status == 2
    assert f"mypyc is missing: {install_hint('fast')}" in result.err


@pytest.mark.parametrize(
    ("command", "missing", "extra"),
    [
        (("evaluate", "--preset", "quick", "--out", "x"), "pyspark", "pipeline,report"),
        (("evaluate", "--preset", "quick", "--out", "x", "--plan"), "pyspark", "pipeline,report"),
        (("evaluate", "--preset", "quick", "--out", "x"), "matplotlib", "pipeline,report"),
        (("report", "x"), "pyarrow", "report"),
        (("node", "--world", "x"), "nacl", "live"),
    ],
)
def test_a_command_without_its_packages_says_how_to_install_them(
    thyme: Thyme,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    missing: str,
    extra: str,
) -> None:
    for module in ("importlib.util", "thyme.pipeline.session", "thyme.cli.pipeline.options"):
        monkeypatch.setattr(f"{module}.find_spec", lambda name: None if name == missing else name)
    result = thyme(*command)
    assert result.status == 2
    assert install_hint(extra) in result.err


def test_the_shares_of_neighbours_and_authors_are_two_tables(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from thyme.cli.operations.shares_output import shares_tables
    from thyme.live.status import AddressShare, AuthorShare, SharesStatus

    def share(address: str, *nodes: str, full: bool = False, banned_us: int = 0) -> AddressShare:
        return AddressShare(
            address=address,
            nodes=nodes,
            datagrams=1_200,
            bytes=90_000,
            dropped=7,
            inbox_full=full,
            reassembly_bytes=0,
            bans=int(banned_us > 0),
            banned_us=banned_us,
        )

    author = AuthorShare(
        node="ab" * 16, verifications=12, rejected=3, objects=4, bytes=5_000, subscriptions=1
    )
    shares = SharesStatus(
        addresses=(
            share("10.0.0.7:4100", "ab" * 16, full=True),
            share("10.0.0.8:4100", banned_us=4_000_000),
        ),
        authors=(author,),
        bans=2,
        stranger_share=0.25,
    )

    Console(width=160).print(shares_tables(shares))

    shown = capsys.readouterr().out
    assert "10.0.0.7:4100  abababababab" in shown
    assert "too many messages wait" in shown
    assert "stranger" in shown
    assert "banned for 4 s" in shown
    assert "2 bans, 25% of strangers' datagrams received" in shown
