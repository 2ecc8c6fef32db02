"""A sweep that is killed continues with the missing runs (P5)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.hashing import ROOT
from tests.pipeline.planned import result
from tests.pipeline.sweeping import many
from tests.pipeline.test_sweep import kept
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.runner import sweep
from thyme.pipeline.sweep.runs.planned_run import ENDED
from thyme.pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATIENCE_S = 120


def test_p5_a_killed_sweep_runs_only_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    results = RunResults(Warehouse(tmp_path / "w"))
    process = subprocess.Popen(
        [sys.executable, "-m", many.__module__, str(tmp_path), "local[1]"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until_s = time.monotonic() + PATIENCE_S
        while len(results.parts(ENDED)) < 3 and time.monotonic() < until_s:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the driver and its Java
        process.wait()
        _wait_for_end_of_session(process.pid)
    runs = many(tmp_path)
    before = results.parts(ENDED)

    resumed = sweep(spark, runs, results)

    assert 3 <= len(before) < len(runs)
    assert (resumed.found, resumed.ran, resumed.failures) == (
        len(before),
        len(runs) - len(before),
        [],
    )
    after = results.parts(ENDED)
    assert {name: after[name] for name in before} == before
    stage = results.compact(spark)
    assert stage is not None
    assert kept(stage, runs) == [result(run) for run in runs]


def _wait_for_end_of_session(session: int) -> None:
    """Waits until no process of the session runs any more. Spark's Python workers have a process
    group of their own: they outlive the kill for a moment, and may still write a result."""
    until_s = time.monotonic() + PATIENCE_S
    while _processes_of(session):
        assert time.monotonic() < until_s, "a worker of the killed sweep still runs"
        time.sleep(0.01)


def _processes_of(session: int) -> list[int]:
    """The processes of a session, without those that have ended and wait to be reaped."""
    command = ["ps", "-A", "-o", "pid=,stat="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in listed.splitlines()]
    running = [int(pid) for pid, state in rows if not state.startswith("Z")]
    return [pid for pid in running if _session_of(pid) == session]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None
