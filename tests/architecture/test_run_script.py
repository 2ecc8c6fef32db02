"""The script `run` on a simulated machine: its own PATH, a fake Python, no network.

The fake Python logs its calls, answers the questions of `run`, and executes `-m venv` by copying
itself, so that a whole set-up takes milliseconds.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMANDS = ["demo", "test", "lint", "bench", "thyme", "setup", "lock", "help"]
TOOLS = ["cat", "cksum", "cp", "dirname", "env", "mkdir", "rm", "sed", "sh", "sleep", "tail"]

PYTHON = """#!/bin/sh
case "$1 $2" in
    "-c "*) echo "{version} {kind}" ;;
    "-I -S") echo "{version}" ;;
    "-m venv") echo "{version} venv" >>"{calls}"; mkdir -p "$3/bin"; cp "$0" "$3/bin/python" ;;
    "-m pip")
        shift 2
        echo "pip $*" >>"{calls}"
        env >"{calls}.env"
        if [ -e "{calls}.offline" ]; then echo "no route to the index"; exit 1; fi ;;
    *) echo "{version} $*" >>"{calls}" ;;
esac
"""
UV = """#!/bin/sh
echo "uv $1" >>"{calls}"
if [ -e "{calls}.uv-broken" ]; then echo "uv is unwell"; exit 2; fi
if [ "$1" = venv ]; then
    for last; do :; done
    mkdir -p "$last/bin"
    cp "{python}" "$last/bin/python"
fi
"""

INSTALL = "pip install --quiet --progress-bar off --no-compile"
FIRST_SET_UP = [
    "3.12 venv",
    f"{INSTALL} --require-hashes --no-deps -r requirements.lock",
    f"{INSTALL} --no-build-isolation --no-deps -e .",
]


@dataclass
class Machine:
    """A PATH with a few tools, and a clone of the project that contains little but `run`."""

    bin: Path
    clone: Path
    calls: Path

    def has_python(self, name: str, version: str, kind: str = "venv") -> Path:
        text = PYTHON.format(version=version, kind=kind, calls=self.calls)
        return _executable(self.bin / name, text)

    def has_uv(self, *, python: Path) -> None:
        _executable(self.bin / "uv", UV.format(calls=self.calls, python=python))

    def run(
        self, *args: str, cwd: Path | None = None, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.clone / "run", *args],
            cwd=cwd or self.bin,
            env={"PATH": str(self.bin), **env},
            capture_output=True,
            text=True,
            timeout=30,
        )

    def calls_since_last_asked(self) -> list[str]:
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return lines

    def flag(self, name: str) -> Path:
        path = self.calls.with_name(f"calls.{name}")
        path.touch()
        return path


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(
        bin=tmp_path / "bin", clone=tmp_path / "a [clone] with spaces", calls=tmp_path / "calls"
    )
    made.bin.mkdir()
    for tool in TOOLS:
        where = shutil.which(tool)
        assert where, f"a POSIX system has {tool}"
        (made.bin / tool).symlink_to(where)
    (made.clone / "benchmarks").mkdir(parents=True)
    (made.clone / "benchmarks" / "bench_matching.py").touch()
    (made.clone / "requirements.lock").write_text("rich==1\n")
    (made.clone / "pyproject.toml").write_text("[project]\n")
    shutil.copy(ROOT / "run", made.clone / "run")
    return made


@pytest.fixture
def ready(machine: Machine) -> Machine:
    machine.has_python("python3", "3.12")
    assert machine.run("setup").returncode == 0
    machine.calls.unlink()
    return machine


# --- Output -----------------------------------------------------------------------------


@pytest.mark.parametrize("args", [[], ["help"], ["--help"], ["-h"]])
def test_help_names_every_command_and_needs_no_python(machine: Machine, args: list[str]) -> None:
    done = machine.run(*args)

    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines() if line[:2] == "  "] == COMMANDS


def test_an_unknown_command_is_refused(machine: Machine) -> None:
    done = machine.run("tset")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "run: there is no command 'tset'; ./run help lists them\n"


def test_bench_without_a_name_lists_the_benchmarks(machine: Machine) -> None:
    done = machine.run("bench")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[1:] == ["  matching"]


@pytest.mark.parametrize("name", ["mtaching", "../benchmarks/bench_matching", ""])
def test_an_unknown_benchmark_is_refused_with_the_list(machine: Machine, name: str) -> None:
    done = machine.run("bench", name)

    assert done.returncode == 2
    assert f"no benchmark is called '{name}'" in done.stderr
    assert done.stdout.splitlines()[1:] == ["  matching"]


# --- Choice of Python -------------------------------------------------------------------


def test_no_python_at_all(machine: Machine) -> None:
    done = machine.run("test")

    assert done.returncode == 1
    assert "needs Python 3.11 or newer; there is no Python on the PATH" in done.stderr


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.10"])
def test_a_python_that_is_too_old(machine: Machine, version: str) -> None:
    machine.has_python("python3", version)

    done = machine.run("test")

    assert done.returncode == 1
    assert f"needs Python 3.11 or newer; here, python3 is {version}." in done.stderr
    assert not (machine.clone / ".venv").exists()


def test_a_python_without_venv(machine: Machine) -> None:
    machine.has_python("python3", "3.12", kind="bare")

    done = machine.run("test")

    assert done.returncode == 1
    assert "python3 (Python 3.12) cannot make .venv" in done.stderr
    assert "sudo apt install python3-venv" in done.stderr


def test_the_first_python_that_fits_is_taken(machine: Machine) -> None:
    _executable(machine.bin / "python3.14", "#!/bin/sh\necho 'no such version' >&2; exit 127\n")
    machine.has_python("python3.13", "3.13", kind="bare")
    machine.has_python("python3", "3.9")
    machine.has_python("python", "3.11")

    assert machine.run("setup").returncode == 0
    assert machine.calls_since_last_asked()[0] == "3.11 venv"


def test_the_user_may_name_the_python(ready: Machine) -> None:
    python = ready.has_python("my python", "3.13")

    assert ready.run("setup", PYTHON=str(python)).returncode == 0
    assert ready.calls_since_last_asked()[0] == "3.13 venv"
    assert ready.run("setup", PYTHON=str(python)).returncode == 0
    assert ready.run("setup").returncode == 0
    assert ready.calls_since_last_asked() == []


def test_a_named_python_that_does_not_run(ready: Machine) -> None:
    done = ready.run("test", PYTHON="python9")

    assert done.returncode == 1
    assert "PYTHON=python9 does not run" in done.stderr


# --- Set-up ---------------------------------------------------------------------------------


def test_the_first_command_sets_up_and_the_next_repeats_nothing(machine: Machine) -> None:
    machine.has_python("python3", "3.12")

    first = machine.run("test", "-k", "two words")
    assert first.returncode == 0
    assert machine.calls_since_last_asked() == [*FIRST_SET_UP, "3.12 -m pytest -k two words"]

    second = machine.run("test", cwd=machine.clone)
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert machine.calls_since_last_asked() == ["3.12 -m pytest -n auto"]


@pytest.mark.parametrize(
    ("args", "call"),
    [
        (["demo"], "-P -m thyme.cli demo"),
        (["thyme", "query", "explain", "a & b"], "-P -m thyme.cli query explain a & b"),
        (["bench", "matching", "--quick"], "{clone}/benchmarks/bench_matching.py --quick"),
    ],
)
def test_arguments_are_passed_on(ready: Machine, args: list[str], call: str) -> None:
    assert ready.run(*args).returncode == 0
    assert ready.calls_since_last_asked() == [f"3.12 {call.format(clone=ready.clone)}"]


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_changed_pins_are_installed_over_what_is_there(ready: Machine, name: str) -> None:
    with (ready.clone / name).open("a") as file:
        file.write("# changed\n")

    assert ready.run("setup").returncode == 0
    assert ready.calls_since_last_asked() == FIRST_SET_UP[1:]


def test_a_failed_update_keeps_what_was_there_and_is_tried_again(ready: Machine) -> None:
    before = (ready.clone / "requirements.lock").read_text()
    (ready.clone / "requirements.lock").write_text("rich==2\n")
    offline = ready.flag("offline")

    done = ready.run("setup")
    assert done.returncode == 1
    assert "    no route to the index\n" in done.stderr
    assert (ready.clone / ".venv" / "bin" / "python").exists()
    ready.calls_since_last_asked()

    offline.unlink()
    (ready.clone / "requirements.lock").write_text(before)
    assert ready.run("setup").returncode == 0
    assert ready.calls_since_last_asked() == FIRST_SET_UP[1:]


def test_a_failed_set_up_says_why_and_is_made_afresh_next_time(machine: Machine) -> None:
    machine.has_python("python3", "3.12")
    offline = machine.flag("offline")

    done = machine.run("test")
    assert done.returncode == 1
    assert "    no route to the index\n" in done.stderr
    assert "Check the network" in done.stderr
    machine.calls_since_last_asked()

    offline.unlink()
    assert machine.run("setup").returncode == 0
    assert machine.calls_since_last_asked() == FIRST_SET_UP


def test_a_clone_that_moved_is_set_up_again(ready: Machine) -> None:
    ready.clone = ready.clone.rename(ready.clone.with_name("elsewhere"))

    assert ready.run("setup").returncode == 0
    assert ready.calls_since_last_asked() == FIRST_SET_UP


@pytest.mark.parametrize("broken", ["gone", "other"])
def test_a_venv_whose_python_changed_is_made_afresh(ready: Machine, broken: str) -> None:
    python = ready.clone / ".venv" / "bin" / "python"
    python.unlink()
    if broken == "other":
        ready.has_python("python3.13", "3.13").rename(python)

    assert ready.run("setup").returncode == 0
    assert ready.calls_since_last_asked() == FIRST_SET_UP


def test_uv_is_used_when_present_and_needs_no_ensurepip(machine: Machine) -> None:
    python = machine.has_python("python3", "3.12", kind="bare")
    machine.has_uv(python=python)

    assert machine.run("setup").returncode == 0
    assert machine.calls_since_last_asked() == ["uv venv", "uv pip", "uv pip"]


def test_pip_steps_in_when_uv_fails(machine: Machine) -> None:
    machine.has_uv(python=machine.has_python("python3", "3.12"))
    machine.flag("uv-broken")

    done = machine.run("setup")

    assert done.returncode == 0
    assert "uv did not manage (uv is unwell)" in done.stderr
    assert machine.calls_since_last_asked() == ["uv venv", *FIRST_SET_UP]


def test_a_set_up_that_was_killed_does_not_block_the_next(machine: Machine) -> None:
    machine.has_python("python3", "3.12")
    process = subprocess.Popen(["true"])
    process.wait()
    busy = machine.clone / ".venv.busy"
    busy.mkdir()
    (busy / "pid").write_text(f"{process.pid}\n")

    assert machine.run("setup").returncode == 0
    assert not busy.exists()


def test_the_users_environment_cannot_steer_the_installer(machine: Machine) -> None:
    machine.has_python("python3", "3.12")
    surprises = ["PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_CONSTRAINT", "PIP_REQUIRE_HASHES"]
    kept = {"PIP_INDEX_URL": "i", "PIP_CERT": "c", "HTTPS_PROXY": "p", "SSL_CERT_FILE": "s"}

    done = machine.run("setup", PIP_USER="1", **kept, **dict.fromkeys(surprises, "surprise"))

    assert done.returncode == 0
    lines = machine.calls.with_name("calls.env").read_text().splitlines()
    seen = dict(line.split("=", 1) for line in lines if "=" in line)
    assert seen["PIP_USER"] == "0"
    assert [name for name in surprises if name in seen] == []
    assert {name: seen[name] for name in kept} == kept


def test_a_place_that_cannot_be_written_is_named(machine: Machine) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write anywhere")
    machine.has_python("python3", "3.12")
    machine.clone.chmod(0o555)

    done = machine.run("setup")

    machine.clone.chmod(0o755)
    assert done.returncode == 1
    assert f"cannot write to {machine.clone}" in done.stderr


def _executable(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path
