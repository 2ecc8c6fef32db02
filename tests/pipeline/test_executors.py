"""P11: executors get the package, compiled where it fits, and fall back to the sources."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import msgspec
import pytest

from tests.pipeline.planned import planned
from thyme.pipeline.executors import COMPILED_FOLDER, PACKAGE, package_copies, zip_package
from thyme.pipeline.sweep.simulation_process import RunLimits, SimulationSlot
from thyme.tools.mypyc_build import BuildState, build_state


def shipped(folder: Path, *endings: str) -> Path:
    """The files of an application on a worker: the package with files of these endings."""
    folder.mkdir(exist_ok=True)
    files = [path for ending in endings for path in PACKAGE.rglob(f"*{ending}")]
    with zipfile.ZipFile(zip_package(folder / "archive.zip", files)) as archive:
        archive.extractall(folder / COMPILED_FOLDER)
    return folder


def test_executors_get_the_whole_package(tmp_path: Path) -> None:
    archive = zip_package(tmp_path / "thyme.zip", PACKAGE.rglob("*.py"))
    script = "import thyme.pipeline.sweep.runs.task as it; print(it.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(archive)!r}); {script}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == f"{archive}/thyme/pipeline/sweep/runs/task.py"


def test_machine_code_for_another_python_is_not_tried(tmp_path: Path) -> None:
    shipped(tmp_path, "executors.py")
    other = tmp_path / COMPILED_FOLDER / "thyme" / "compiled__mypyc.cpython-27-vax.so"
    other.write_bytes(b"")

    assert package_copies(str(tmp_path)) == [PACKAGE.parent]
    assert package_copies(None) == [PACKAGE.parent]


@pytest.mark.skipif(build_state() is not BuildState.COMPILED, reason="there is no machine code")
def test_the_compiled_package_is_used_where_it_is_unpacked(tmp_path: Path) -> None:
    slot = SimulationSlot(str(shipped(tmp_path, ".py", EXTENSION_SUFFIXES[0])))
    try:
        assert slot.start().compiled
    finally:
        slot.close()


def test_machine_code_that_does_not_load_gives_way_to_the_sources(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """As on a machine with an older C library."""
    files = shipped(tmp_path / "files", ".py")
    broken = files / COMPILED_FOLDER / "thyme" / "distribution"
    broken.with_name(f"distribution{EXTENSION_SUFFIXES[0]}").write_bytes(b"not for this machine")
    slot, run = SimulationSlot(str(files)), planned(tmp_path)
    try:
        table = slot.run(msgspec.json.encode(run), run.run_id, run.trace_file, RunLimits())
    finally:
        slot.close()

    assert table.column("state").to_pylist() == ["ended"]
    assert "thyme: runs plain Python, not compiled: ImportError: " in capfd.readouterr().err
