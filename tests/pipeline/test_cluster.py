"""The same code on a real cluster: a master and two workers, each a process of its own (P8)."""

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
from typing import TYPE_CHECKING

import pyspark
import pytest

from tests.pipeline.planned import result
from tests.pipeline.sweeping import HASTE, many, measured
from tests.pipeline.test_sweep import kept
from thyme.pipeline.sweep import sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SPARK_CLASS = Path(pyspark.__path__[0], "bin", "spark-class")
DEPLOY = "org.apache.spark.deploy"
PATIENCE_S = 400
"""Seven Javas on whatever machine this is."""


@pytest.mark.slow
def test_p8_a_cluster_gives_what_one_process_gives(spark: SparkSession, tmp_path: Path) -> None:
    far, near = tmp_path / "far", tmp_path / "near"
    with cluster(tmp_path) as (master, logs):
        subprocess.run(
            [sys.executable, "-m", "tests.pipeline.sweeping", str(far), master],
            cwd=ROOT,
            check=True,
            timeout=PATIENCE_S,
        )
        executors = [path for path in logs.glob("worker-*/app-*/*") if path.is_dir()]
    runs = many(near)
    swept = sweep(spark, runs, near / "runs")

    assert len(executors) == 2
    assert swept.ran == len(runs)
    assert [kept(far / "runs", run) for run in runs] == [result(run) for run in runs]
    assert json.loads((far / "measures.json").read_text()) == measured(spark, runs, near)


@contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, Path]]:
    """A master and two workers of one core each; they end with the block."""
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
    """A part of Spark, with the Java that the session has found."""
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
