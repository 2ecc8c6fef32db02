"""The stream on a real cluster: a master and two workers, each a process of its own (P9, P8)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.hashing import ROOT
from tests.pipeline import event_files
from tests.pipeline.event_files import measured_in_batch, rows_of, some_events, write_segment
from tests.pipeline.test_cluster import PATIENCE_S, cluster
from thyme.pipeline.analytics.follow import Follower

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
def test_p9_a_cluster_gives_what_one_process_gives(spark: SparkSession, tmp_path: Path) -> None:
    events, out = tmp_path / "events", tmp_path / "out"
    for number in range(3):
        first = 30 * number + 1
        write_segment(events, f"w-{number}", some_events("w", first, first + 32), b"no event\n")
    with cluster(tmp_path) as (master, logs):
        subprocess.run(
            [sys.executable, "-m", event_files.__name__, str(events), str(out), master, "once"],
            cwd=ROOT,
            env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"},
            check=True,
            timeout=PATIENCE_S,
        )
        executors = [path for path in logs.glob("worker-*/app-*/*") if path.is_dir()]

    assert len(executors) == 2
    stream = Follower(spark, str(events), str(out), event_files.CONFIG)
    assert sum(commit.events for commit in stream.log.commits) == 93
    assert rows_of(stream.measures()) == measured_in_batch(spark, events)
    # This process continues what the cluster began, and finds nothing new.
    assert stream.run_once().totals.events == 93
