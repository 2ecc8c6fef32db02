"""A sweep that is killed goes on where it was (P5)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pipeline.planned import result
from tests.pipeline.sweeping import many
from tests.pipeline.test_sweep import kept
from thyme.pipeline.sweep.runner import sweep
from thyme.pipeline.sweep.task import completed_runs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PATIENCE_S = 120


def test_p5_a_killed_sweep_runs_only_what_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.sweeping", str(tmp_path), "local[1]"],
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        until_s = time.monotonic() + PATIENCE_S
        while len(completed_runs(folder)) < 3 and time.monotonic() < until_s:
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # it and its Java
        process.wait()
    runs = many(tmp_path)
    before = _quiet(folder)

    resumed = sweep(spark, runs, folder)

    assert 3 <= len(before) < len(runs)
    assert (resumed.found, resumed.ran, resumed.failures) == (
        len(before),
        len(runs) - len(before),
        [],
    )
    after = _written(folder)
    assert {name: after[name] for name in before} == before
    assert [kept(folder, run) for run in runs] == [result(run) for run in runs]


def _quiet(folder: Path) -> dict[str, int]:
    """What is there once the last worker has noticed that nobody waits for it."""
    found = _written(folder)
    while True:
        time.sleep(0.5)
        now = _written(folder)
        if now == found:
            return now
        found = now


def _written(folder: Path) -> dict[str, int]:
    """When each result was written."""
    return {file.name: file.stat().st_mtime_ns for file in folder.glob("[!.]*.parquet")}
