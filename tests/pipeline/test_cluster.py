"""The same code on a real cluster: a master and two workers, each its own process (P8, P9, P11)."""

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
from tests.pipeline import event_files
from tests.pipeline.analytics_reference import measure_files
from tests.pipeline.clustered import (
    CONFIG,
    POSTS_SEED,
    READER,
    RULES,
    TRACE_SEED,
    USERS,
    every_other,
)
from tests.pipeline.event_files import WINDOW_US, some_events, write_segment
from tests.pipeline.planned import result
from tests.pipeline.sweeping import HASTE, measured
from tests.pipeline.test_sweep import kept
from thyme.pipeline.analytics.follow import Follower
from thyme.pipeline.executors import SOURCES_FILE
from thyme.pipeline.jobs import import_posts
from thyme.pipeline.warehouse import Stage, Warehouse
from thyme.tools.mypyc_build import BuildState, build_state
from thyme.traces.oracle import Expected, expected_notifications
from thyme.traces.posts_to_trace import trace_from_posts
from thyme.traces.row_codec import row_to_operation
from thyme.traces.synthetic.football_match import FootballMatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CLASS = Path(pyspark.__path__[0], "bin", "spark-class")
DEPLOY = "org.apache.spark.deploy"
AT_S = 1_468_180_801
PATIENCE_S = 3_600
"""Enough for six Java processes on a machine with much other work."""


@pytest.mark.slow
def test_p8_p9_p11_a_cluster_gives_what_one_process_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Every stage and the stream, in one session on two workers: starting a cluster takes long."""
    folder = tmp_path / "w"
    files = write_bucket(folder / "bucket" / "in")
    for number in range(3):
        first = 30 * number + 1
        lines = some_events("w", first, first + 32)
        write_segment(folder / "events", f"w-{number}", lines, b"no event\n")
    with cluster(tmp_path) as (master, logs):
        subprocess.run(
            [sys.executable, "-m", every_other.__module__, str(folder), master],
            cwd=ROOT,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            check=True,
            timeout=PATIENCE_S,
        )
        executors = [path for path in logs.glob("worker-*/app-*/*") if path.is_dir()]
    assert len(executors) == 2
    check_stages(spark, folder)
    check_bucket(spark, folder / "bucket", files, tmp_path / "alone")
    check_stream(spark, folder / "events", folder / "out")


def check_stages(spark: SparkSession, folder: Path) -> None:
    """P8: posts, trace, oracle, runs and metrics are those of one process."""
    told = json.loads((folder / "told.json").read_text())
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


def write_bucket(folder: Path) -> list[str]:
    """Two files with the same ids and a broken line each."""
    folder.mkdir(parents=True)
    files = []
    for part in (1, 2):
        rows = [
            {"id": str(number), "user": "ana", "time": AT_S + number + part, "text": f"#t{part}"}
            for number in range(30 * part)
        ]
        file = folder / f"{part}.jsonl"
        file.write_text("\n".join([*map(json.dumps, rows), "broken"]))
        files.append(str(file))
    return files


def check_bucket(spark: SparkSession, bucket: Path, files: list[str], folder: Path) -> None:
    """P11: an import from and into a file system that is not `file` gives the same posts."""
    alone = Warehouse(folder)
    for file in files:
        import_posts(spark, alone, [file], READER)
    wanted, found = alone.open_stage("posts"), Warehouse(bucket / "w").open_stage("posts")
    assert sorted_rows(found, "posts") == sorted_rows(wanted, "posts")
    assert [row["reason"] for row in sorted_rows(found, "quarantine")] == [
        row["reason"] for row in sorted_rows(wanted, "quarantine")
    ]
    assert found.manifest.notes == wanted.manifest.notes


def check_stream(spark: SparkSession, events: Path, out: Path) -> None:
    """P9: the measures are those of one batch job."""
    stream = Follower(spark, str(events), str(out), event_files.CONFIG)
    assert sum(commit.events for commit in stream.log.commits) == 93
    assert event_files.rows_of(stream.measures()) == measure_files(events, WINDOW_US)
    # This process continues what the cluster began, and finds nothing new.
    assert stream.run_once().totals.events == 93


def sorted_rows(stage: Stage, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in an order of their own."""
    read = (parquet.ParquetFile(file).read() for file in stage.table_files(table))
    return sorted((row for each in read for row in each.to_pylist()), key=repr)


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
