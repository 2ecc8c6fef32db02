"""The same code on a real cluster: a master and two workers, each its own process (P8, P11)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from pyarrow import parquet

from tests.hashing import ROOT
from tests.pipeline.clustered import CONFIG, POSTS_SEED, RULES, TRACE_SEED, USERS, every_other
from tests.pipeline.planned import result
from tests.pipeline.sweeping import HASTE, measured
from tests.pipeline.test_sweep import kept
from thyme.pipeline.executors import SOURCES_FILE
from thyme.pipeline.warehouse import Stage, Warehouse
from thyme.tools.mypyc_build import BuildState, build_state
from thyme.traces.football_match import FootballMatch
from thyme.traces.oracle import Expected, expected_notifications
from thyme.traces.posts_to_trace import trace_from_posts
from thyme.traces.row_codec import row_to_operation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CLASS = Path(pyspark.__path__[0], "bin", "spark-class")
DEPLOY = "org.apache.spark.deploy"
PATIENCE_S = 1_200
"""Enough for six Java processes on a machine with much other work."""


@pytest.mark.slow
def test_p8_a_cluster_gives_what_one_process_gives(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "w"
    with cluster(tmp_path) as (master, logs):
        subprocess.run(
            [sys.executable, "-m", every_other.__module__, str(folder), master],
            cwd=ROOT,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            check=True,
            timeout=PATIENCE_S,
        )
        executors = [path for path in logs.glob("worker-*/app-*/*") if path.is_dir()]
    told = json.loads((folder / "told.json").read_text())

    assert len(executors) == 2
    # The workers got the package from the driver, and not because it is installed here; simulations
    # ran the driver's machine code, if it has any.
    assert all(SOURCES_FILE in place for place in told["places"])
    runs = every_other(folder)
    assert told["failures"] == []
    assert told["compiled"] == (len(runs) if build_state() is BuildState.COMPILED else 0)
    posts = Warehouse(folder).open_stage("posts")
    assert posts.row_count("posts") == CONFIG.posts

    wanted = trace_from_posts(TRACE_SEED, FootballMatch(POSTS_SEED, CONFIG), USERS, RULES)
    rows = rows_of(Warehouse(folder).open_stage("trace"), "operations")
    assert [row.pop("number") for row in rows] == list(range(len(rows)))
    filled = [{name: value for name, value in row.items() if value is not None} for row in rows]
    assert tuple(map(row_to_operation, filled)) == wanted.operations
    notes = [
        Expected(**row) for row in rows_of(Warehouse(folder).open_stage("oracle"), "notifications")
    ]
    assert notes == expected_notifications(wanted)

    assert kept(Warehouse(folder).open_stage("runs"), runs) == [result(run) for run in runs]
    assert told["measured"] == measured(spark, runs, folder)


def rows_of(stage: Stage, table: str) -> list[dict[str, Any]]:
    """The rows in the order of the files."""
    files = stage.table_files(table)
    return [row for file in files for row in parquet.read_table(file).to_pylist()]


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, Path]]:
    """A master and two workers of one core each; they stop at the end of the block."""
    port = _free_port()
    master = f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:
        settings = ["--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        stack.enter_context(_running(folder, f"{DEPLOY}.master.Master", *settings))
        _wait_for(port)
        for number in (1, 2):
            settings = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1"]
            settings += ["--memory", "600m", "--work-dir", str(folder / f"worker-{number}")]
            stack.enter_context(_running(folder, f"{DEPLOY}.worker.Worker", *settings, master))
        yield master, folder


@contextmanager
def _running(folder: Path, name: str, *settings: str) -> Iterator[None]:
    """A process of Spark, with the Java of the session."""
    with (folder / "cluster.log").open("ab") as log:
        process = subprocess.Popen(
            [SPARK_CLASS, name, *settings],
            stdout=log,
            stderr=log,
            env={**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": HASTE},
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < until_s:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(f"the master does not listen on {port}")
