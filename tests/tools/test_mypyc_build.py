"""The compiled rooms: known for what they are, and the same in what they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from thyme.tools import mypyc_build
from thyme.tools.mypyc_build import BuildState, CompileError

RUN = """\
import importlib.machinery as machinery, pathlib, sys
if sys.argv[1] == "plain":
    package = pathlib.Path(sys.argv[3])
    sources = machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES
    hook = machinery.FileFinder.path_hook(sources)
    def only_sources(path):
        if not pathlib.Path(path).resolve().is_relative_to(package):
            raise ImportError
        return hook(path)
    sys.path_hooks.insert(0, only_sources)
from thyme.cli import main
from thyme.sim import native
from thyme.sim.radio import mac
print(mac.__file__.endswith(".py"), native.AVAILABLE, file=sys.stderr)
main(["sim", "run", "--substrate", "ls", "--nodes", "9", "--scenario", "transient", "--failing",
      "0.3", "--seed", "5", "--out", sys.argv[2]])
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Sources of all rooms, with nothing in them."""
    for room in mypyc_build.COMPILED_MODULES:
        path = tmp_path / f"{room}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / mypyc_build.NATIVE_MODULE).parent.mkdir(parents=True)
    (tmp_path / mypyc_build.NATIVE_MODULE).with_name("radio.c").write_text("")
    return tmp_path


@pytest.fixture
def _compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that makes a file for each room, quickly."""
    monkeypatch.setattr(
        mypyc_build,
        "_SETUP",
        "import pathlib\nfor module in {modules!r}:\n    path = pathlib.Path('made', module)\n"
        "    path.parent.mkdir(parents=True, exist_ok=True)\n"
        f"    path.with_suffix({mypyc_build._SUFFIX!r}).write_text('{{group}}')\n",
    )


def test_sources_alone_are_plain(package: Path) -> None:
    assert mypyc_build.build_state(package) is BuildState.PLAIN
    assert not mypyc_build.is_up_to_date(package)


@pytest.mark.usefixtures("_compiler")
def test_compiled_until_a_source_changes(package: Path) -> None:
    mypyc_build.compile_modules(package)
    assert mypyc_build.build_state(package) is BuildState.COMPILED
    assert mypyc_build.is_up_to_date(package)

    for source in (f"{mypyc_build.COMPILED_MODULES[0]}.py", "sim/native/radio.c"):
        text = (package / source).read_text()
        (package / source).write_text("# changed")
        assert mypyc_build.build_state(package) is BuildState.STALE
        assert not mypyc_build.is_up_to_date(package)
        (package / source).write_text(text)

    mypyc_build.remove_compiled(package)
    assert mypyc_build.build_state(package) is BuildState.PLAIN


@pytest.mark.usefixtures("_compiler")
def test_half_of_it_is_stale(package: Path) -> None:
    mypyc_build.compile_modules(package)
    next(iter(package.rglob(f"*{mypyc_build._SUFFIX}"))).unlink()
    assert mypyc_build.build_state(package) is BuildState.STALE


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("import no_such_compiler", "the extra `fast`"),
        ("raise SystemExit('error: no Python.h')", "no Python.h"),
    ],
)
def test_what_fails_says_why_and_is_not_tried_again_with_the_same_sources(
    package: Path, monkeypatch: pytest.MonkeyPatch, script: str, says: str
) -> None:
    monkeypatch.setattr(mypyc_build, "_SETUP", script)
    with pytest.raises(CompileError, match=says):
        mypyc_build.compile_modules(package)

    assert mypyc_build.build_state(package) is BuildState.PLAIN
    assert mypyc_build.is_up_to_date(package)

    (package / f"{mypyc_build.COMPILED_MODULES[0]}.py").write_text("# changed")
    assert not mypyc_build.is_up_to_date(package)


@pytest.mark.skipif(
    mypyc_build.build_state() is not BuildState.COMPILED, reason="not compiled here: thyme compile"
)
def test_a_run_gives_the_same_bytes_compiled_or_not(tmp_path: Path) -> None:
    """Whole tables and the recording of a run with failing nodes."""
    package = mypyc_build.PACKAGE.resolve()
    for kind in ("plain", "compiled"):
        done = subprocess.run(
            [sys.executable, "-c", RUN, kind, str(tmp_path / kind), str(package)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr.splitlines()[0] == f"{kind == 'plain'} {kind != 'plain'}"
    names = sorted(path.name for path in (tmp_path / "plain").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "compiled").iterdir())
    compared = [name for name in names if name.endswith((".csv", ".parquet", ".html"))]
    assert compared
    for name in compared:
        assert (tmp_path / "plain" / name).read_bytes() == (
            tmp_path / "compiled" / name
        ).read_bytes(), name
