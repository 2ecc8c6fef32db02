"""mypyc build: compiles the modules that take most of the run time to machine code.

Entry points: `compile_modules`, `build_state` and, for `./run`, `main`. Compiled are modules of the
simulator, the routing, the DCS and encounter nodes, a station's caches and the live link, and the
simulator's native radio, which is written in C. Compiling is optional: without a C compiler the
Python sources run as they are, with the same results, at about half the speed (the radio: at a
tenth). The compiled files are beside the sources; a manifest holds the fingerprint of the sources.
This module imports nothing of Thyme, so that `./run` can start it as a script before Thyme is
installed.
Decisions: docs/decisions/0012-compiled-modules.md, 0064-native-radio.md.
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

PACKAGE = Path(__file__).parents[1]
MANIFEST_NAME = "compiled.json"
COMPILED_MODULES = (
    "live/clocks/clock",
    "live/clocks/timers",
    "live/host",
    "live/keys/pair_keys",
    "live/keys/record_signer",
    "live/limits/fair_inbox",
    "live/limits/sender_limits",
    "protocol/answer_auth",
    "protocol/message_auth",
    "protocol/outbox",
    "protocol/quick_receiver",
    "routing/cells/beacons",
    "routing/cells/cell_bitmap",
    "routing/cells/deliveries",
    "routing/cells/duplicate_filter",
    "routing/cells/faces",
    "routing/cells/geographic",
    "routing/cells/logical",
    "routing/cells/neighbours",
    "routing/dsdv/packet_buffer",
    "routing/dsdv/pending_updates",
    "routing/dsdv/protocol",
    "routing/dsdv/routing_table",
    "routing/routed_node",
    "sim/encounters/network",
    "sim/engine/bitsets",
    "sim/engine/driver",
    "sim/engine/plain_kernel",
    "sim/networks/in_transit",
    "sim/networks/wireless_network",
    "sim/radio/counters",
    "sim/radio/link_table",
    "sim/radio/mac",
    "sim/radio/medium",
    "sim/radio/power_levels",
    "sim/radio/reception",
    "sim/radio/station",
    "substrates/common/loopback",
    "substrates/dcs/input_dispatch",
    "substrates/dcs/node",
    "substrates/encounters/event_memory",
    "substrates/encounters/events",
    "substrates/encounters/mfps",
    "substrates/encounters/mobuser",
    "substrates/encounters/rapid",
    "substrates/encounters/reconciled_exchange",
    "substrates/infra/caches/policies/frequency_sketch",
    "substrates/infra/caches/policies/key_hash",
    "substrates/infra/caches/policies/s3_fifo",
    "substrates/infra/caches/policies/w_tinylfu",
    "substrates/infra/caches/policies/window_climber",
    "transport/hello_records",
    "transport/link",
    "transport/neighbour_table",
    "transport/peer_shares",
    "transport/rate_limit",
    "transport/reassembly",
    "transport/send_window",
)
"""The compiled modules. They form one mypyc group, so they call each other directly."""
NATIVE_MODULE = "sim/native/radio_core"
"""The module written in C; its sources are all C files of its folder."""
NATIVE_FLAGS = ("-O2", "-ffp-contract=off", "-fvisibility=hidden", "-Wall", "-Wextra")
"""Contracted operations would round differently from the twin in Python."""
_GROUP = "thyme.compiled"
_SUFFIX = sysconfig.get_config_var("EXT_SUFFIX") or ".so"
_SETUP = """\
from mypyc.build import mypycify
from setuptools import Extension, setup

# Packages of other extras need not be installed.
paths = ["--ignore-missing-imports", *{modules!r}]
extensions = mypycify(paths, opt_level="3", debug_level="0", group_name={group!r})
extensions.append(Extension({native!r}, {native_sources!r}, extra_compile_args={native_flags!r}))
setup(name="compiled", packages=[], ext_modules=extensions)
"""


class BuildState(Enum):
    """Which code runs when the modules are imported."""

    PLAIN = "plain"
    """The sources."""
    COMPILED = "compiled"
    """Machine code of the current sources."""
    STALE = "stale"
    """Machine code of other sources."""


class CompileError(Exception):
    """The modules could not be compiled; their sources run instead."""


class MissingToolsError(CompileError):
    """The packages that compile are not installed."""


def build_state(package: Path = PACKAGE) -> BuildState:
    """The state of the compiled files beside the sources."""
    compiled = _compiled_files(package)
    if not compiled:
        return BuildState.PLAIN
    manifest = _read_manifest(package)
    complete = manifest.get("files") == sorted(path.name for path in compiled)
    current = complete and manifest.get("of") == source_fingerprint(package)
    return BuildState.COMPILED if current else BuildState.STALE


def is_up_to_date(package: Path = PACKAGE) -> bool:
    """Whether there is nothing to compile: it is done, or it failed for the same sources."""
    found = build_state(package)
    tried = _read_manifest(package).get("of") == source_fingerprint(package)
    return found is BuildState.COMPILED or (found is BuildState.PLAIN and tried)


def source_fingerprint(package: Path = PACKAGE) -> str:
    """A digest of the sources of the compiled modules and of the Python version."""
    digest = hashlib.sha256(sys.version.encode())
    for module in COMPILED_MODULES:
        digest.update(module.encode() + (package / f"{module}.py").read_bytes())
    for path in native_sources(package, "[ch]"):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def native_sources(package: Path = PACKAGE, suffix: str = "c") -> list[Path]:
    """The C sources of the native module; with the suffix `[ch]`, its header files, too."""
    return sorted((package / NATIVE_MODULE).parent.glob(f"*.{suffix}"))


def remove_compiled(package: Path = PACKAGE) -> None:
    """Removes all compiled files, also of modules that are no longer compiled, and the manifest."""
    for path in package.rglob(f"*{_SUFFIX}"):
        path.unlink()
    (package / MANIFEST_NAME).unlink(missing_ok=True)


def compile_modules(package: Path = PACKAGE) -> None:
    """Compiles all modules again; takes about a minute."""
    remove_compiled(package)
    of = source_fingerprint(package)
    files: list[str] = []
    try:
        with tempfile.TemporaryDirectory(prefix="thyme-") as work:
            files = _build(package, Path(work))
    finally:
        (package / MANIFEST_NAME).write_text(json.dumps({"of": of, "files": files}))


def _build(package: Path, work: Path) -> list[str]:
    """Compiles a copy of the package, copies the compiled files here, and returns their names."""
    shutil.copytree(package, work / "thyme", ignore=shutil.ignore_patterns("__pycache__"))
    modules = [f"thyme/{module}.py" for module in COMPILED_MODULES]
    (work / "setup.py").write_text(
        _SETUP.format(
            modules=modules,
            group=_GROUP,
            native=f"thyme/{NATIVE_MODULE}".replace("/", "."),
            native_sources=[str(path.relative_to(work)) for path in native_sources(work / "thyme")],
            native_flags=[] if sys.platform == "win32" else list(NATIVE_FLAGS),
        )
    )
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
            raise MissingToolsError("mypyc and setuptools are missing, the extra `fast`")
        errors = (line for line in reversed(lines) if "error" in line)
        raise CompileError(f"compilation failed: {next(errors, lines[-1] if lines else '')}")


def _compiled_files(package: Path) -> list[Path]:
    """The compiled files beside the sources, for this Python version."""
    paths = [package / f"{module}{_SUFFIX}" for module in (*COMPILED_MODULES, NATIVE_MODULE)]
    paths.append(package / f"compiled__mypyc{_SUFFIX}")
    return [path for path in paths if path.exists()]


def _read_manifest(package: Path) -> dict[str, object]:
    """The manifest: the fingerprint of the sources last compiled, and the compiled files."""
    try:
        manifest = json.loads((package / MANIFEST_NAME).read_text())
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def main(arguments: Sequence[str]) -> int:
    """Compiles all modules; with `--settled`, returns status 0 if there is nothing to compile."""
    if arguments == ["--settled"]:
        return 0 if is_up_to_date() else 1
    try:
        compile_modules()
    except (CompileError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
