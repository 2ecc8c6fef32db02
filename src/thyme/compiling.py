"""Compiling: the simulator's inner rooms as machine code, made from the same sources by mypyc.

Optional: where there is no C compiler the sources run as they are, with the same results, at about
half the speed. The machine code lies beside the sources, and a note says which ones it was made
from. Stands alone and imports nothing of Thyme, so that it can be asked before anything else.
Decision: docs/decisions/0012-compiled-rooms.md.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from enum import Enum
from pathlib import Path

PACKAGE = Path(__file__).parent
NOTE = "compiled.json"
ROOMS = (
    "live/budget",
    "live/host",
    "live/incoming",
    "live/link",
    "live/notary",
    "live/outgoing",
    "protocol/outbox",
    "routing/cells/faces",
    "routing/cells/geographic",
    "routing/cells/memory",
    "routing/cells/neighbours",
    "routing/cells/presence",
    "routing/cells/window",
    "routing/dsdv",
    "routing/news",
    "routing/relay",
    "routing/table",
    "routing/waiting",
    "sim/driver",
    "sim/kernel",
    "sim/links",
    "sim/mac",
    "sim/medium",
    "sim/parcels",
    "sim/rows",
    "sim/sets",
    "sim/stations",
    "sim/steps",
    "sim/tally",
    "sim/world",
    "substrates/dcs/node",
)
"""What is compiled, as one: they call each other without going through the interpreter."""
_GROUP = "thyme.rooms"
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
_SETUP = """\
from mypyc.build import mypycify
from setuptools import setup

rooms = {rooms!r}
extensions = mypycify(rooms, opt_level="3", debug_level="0", group_name={group!r})
setup(name="rooms", packages=[], ext_modules=extensions)
"""


class State(Enum):
    """What would run if the rooms were imported now."""

    PLAIN = "plain"
    COMPILED = "compiled"
    STALE = "stale"
    """Machine code of other sources than there are."""


class CompileError(Exception):
    """The rooms could not be compiled; they run as they are."""


def state(package: Path = PACKAGE) -> State:
    """What there is beside the sources."""
    made = _made(package)
    if not made:
        return State.PLAIN
    note = _note(package)
    whole = note.get("files") == sorted(path.name for path in made)
    return State.COMPILED if whole and note.get("of") == fingerprint(package) else State.STALE


def settled(package: Path = PACKAGE) -> bool:
    """Whether there is nothing to do: compiled, or tried with these sources in vain."""
    found = state(package)
    tried = _note(package).get("of") == fingerprint(package)
    return found is State.COMPILED or (found is State.PLAIN and tried)


def fingerprint(package: Path = PACKAGE) -> str:
    """Tells the sources of the rooms, and the Python that they were compiled for, from others."""
    digest = hashlib.sha256(sys.version.encode())
    for room in ROOMS:
        digest.update(room.encode() + (package / f"{room}.py").read_bytes())
    return digest.hexdigest()


def remove(package: Path = PACKAGE) -> None:
    """Takes the machine code away."""
    for path in _made(package):
        path.unlink()
    (package / NOTE).unlink(missing_ok=True)


def compile_rooms(package: Path = PACKAGE) -> None:
    """Makes the machine code anew; takes about a minute."""
    remove(package)
    of = fingerprint(package)
    files: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="thyme-") as work:
            files = _build(package, Path(work))
    finally:
        (package / NOTE).write_text(json.dumps({"of": of, "files": files}))


def _build(package: Path, work: Path) -> list[str]:
    """Compiles a copy of the package and brings what came of it; returns the files' names."""
    shutil.copytree(package, work / "thyme", ignore=shutil.ignore_patterns("__pycache__"))
    rooms = [f"thyme/{room}.py" for room in ROOMS]
    (work / "setup.py").write_text(_SETUP.format(rooms=rooms, group=_GROUP))
    _run([sys.executable, "setup.py", "--quiet", "build_ext", "--build-lib", "made"], work)
    made = work / "made" / "thyme"
    files = sorted(made.rglob(f"*{_SUFFIX}"))
    for path in files:
        shutil.copy(path, package / path.relative_to(made))
    return sorted(path.name for path in files)


def _run(command: list[str], work: Path) -> None:
    try:
        done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CompileError(str(error)) from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        if any("No module named" in line for line in said):
            raise CompileError("mypyc and setuptools are missing: pip install 'thyme[fast]'")
        last = next((line for line in reversed(said) if "error" in line), said[-1] if said else "")
        raise CompileError(f"the compiler did not manage: {last}")


def _made(package: Path) -> list[Path]:
    """The machine code that lies beside the sources, of this Python."""
    places = [package / f"{room}{_SUFFIX}" for room in ROOMS]
    places.append(package / f"rooms__mypyc{_SUFFIX}")
    return [path for path in places if path.exists()]


def _note(package: Path) -> dict[str, object]:
    """Which sources were compiled last, and into what."""
    try:
        note = json.loads((package / NOTE).read_text())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def main(arguments: Sequence[str]) -> int:
    """Compiles; `--settled` only says by its status whether there is nothing to do."""
    if arguments == ["--settled"]:
        return 0 if settled() else 1
    try:
        compile_rooms()
    except (CompileError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
