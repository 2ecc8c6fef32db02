"""A sweep in a process of its own, for the test that kills it.

    python -m tests.pipeline.sweeping FOLDER MASTER

sweeps `many` runs on that master into FOLDER/runs.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pipeline.planned import planned
from thyme.pipeline.metrics import tables
from thyme.pipeline.metrics.devices import measure_messages
from thyme.pipeline.session import spark_session
from thyme.pipeline.sweep.runner import sweep
from thyme.pipeline.sweep.task import RESULT_SUFFIX, PlannedRun
from thyme.sim.scenario import Substrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HASTE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java options for a fast start, for processes that end soon."""
FEW = {
    "spark.executor.extraJavaOptions": HASTE,
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def many(folder: Path) -> list[PlannedRun]:
    """A dozen short runs, the same in every process."""
    return [
        planned(folder / "traces", substrate, topology=topology)
        for substrate in Substrate
        for topology in (1, 2, 3, 4)
    ]


def measured(spark: SparkSession, runs: list[PlannedRun], folder: Path) -> list[list[object]]:
    """The messages by type of all runs, in order: a stage with a shuffle."""
    files = [str(folder / "runs" / f"{run.run_id}{RESULT_SUFFIX}") for run in runs]
    results = tables.read_results(spark, files)
    return sorted(list(row) for row in measure_messages(results).collect())


def started(master: str) -> SparkSession:
    """A Spark session for a process that ends soon."""
    os.environ["JDK_JAVA_OPTIONS"] = HASTE
    return spark_session(master, FEW)


def main(folder: Path, master: str) -> None:
    """Sweeps all runs."""
    spark = started(master)
    sweep(spark, many(folder), folder / "runs")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
