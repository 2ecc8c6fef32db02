"""mypyc build: compiles the modules that take most of the run time to machine code.

Entry points: `compile_modules`, `build_state` and, for `./run`, `main`. Compiled are modules of the
simulator, the routing, the DCS node and the live link. Compiling is optional: without a C compiler
the sources run as they are, with the same results, at about half the speed. The compiled files are
beside the sources; a manifest holds the fingerprint of the sources. This module imports nothing of
Thyme, so that `./run` can start it as a script before Thyme is installed.
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
"""The compiled modules. They form one mypyc group, so they call each other directly."""
_GROUP = "thyme.rooms"
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
_SETUP = """\
from mypyc.build import mypycify
from setuptools import setup

modules = {modules!r}
extensions = mypycify(modules, opt_level="3", debug_level="0", group_name={group!r})
setup(name="rooms", packages=[], ext_modules=extensions)
"""


class State(Enum):
    """Which code runs when the modules are imported."""

    PLAIN = "plain"
    """The sources."""
    COMPILED = "compiled"
    """Machine code of the current sources."""
    STALE = "stale"
    """Machine code of other sources."""


class CompileError(Exception):
    """The modules could not be compiled; their sources run instead."""


def state(package: Path = PACKAGE) -> State:
    """The state of the compiled files beside the sources."""
    compiled = _made(package)
    if not compiled:
        return State.PLAIN
    manifest = _note(package)
    complete = manifest.get("files") == sorted(path.name for path in compiled)
    current = complete and manifest.get("of") == fingerprint(package)
    return State.COMPILED if current else State.STALE


def settled(package: Path = PACKAGE) -> bool:
    """Whether there is nothing to compile: it is done, or it failed for the same sources."""
    found = state(package)
    tried = _note(package).get("of") == fingerprint(package)
    return found is State.COMPILED or (found is State.PLAIN and tried)


def fingerprint(package: Path = PACKAGE) -> str:
    """A digest of the sources of the compiled modules and of the Python version."""
    digest = hashlib.sha256(sys.version.encode())
    for module in ROOMS:
        digest.update(module.encode() + (package / f"{module}.py").read_bytes())
    return digest.hexdigest()


def remove(package: Path = PACKAGE) -> None:
    """Removes the compiled files and the manifest."""
    for path in _made(package):
        path.unlink()
    (package / NOTE).unlink(missing_ok=True)


def compile_rooms(package: Path = PACKAGE) -> None:
    """Compiles all modules again; takes about a minute."""
    remove(package)
    of = fingerprint(package)
    files: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="thyme-") as work:
            files = _build(package, Path(work))
    finally:
        (package / NOTE).write_text(json.dumps({"of": of, "files": files}))


def _build(package: Path, work: Path) -> list[str]:
    """Compiles a copy of the package, copies the compiled files here, and returns their names."""
    shutil.copytree(package, work / "thyme", ignore=shutil.ignore_patterns("__pycache__"))
    modules = [f"thyme/{module}.py" for module in ROOMS]
    (work / "setup.py").write_text(_SETUP.format(modules=modules, group=_GROUP))
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
        lines = (done.stderr or done.stdout).strip().splitlines()
        if any("No module named" in line for line in lines):
            raise CompileError("mypyc and setuptools are missing: pip install 'thyme[fast]'")
        errors = (line for line in reversed(lines) if "error" in line)
        raise CompileError(f"compilation failed: {next(errors, lines[-1] if lines else '')}")


def _made(package: Path) -> list[Path]:
    """The compiled files beside the sources, for this Python version."""
    paths = [package / f"{module}{_SUFFIX}" for module in ROOMS]
    paths.append(package / f"rooms__mypyc{_SUFFIX}")
    return [path for path in paths if path.exists()]


def _note(package: Path) -> dict[str, object]:
    """The manifest: the fingerprint of the sources last compiled, and the compiled files."""
    try:
        manifest = json.loads((package / NOTE).read_text())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def main(arguments: Sequence[str]) -> int:
    """Compiles all modules; with `--settled`, returns status 0 if there is nothing to compile."""
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
