"""A sweep in a process of its own, for the test that kills it.

    python -m tests.pipeline.sweeping FOLDER MASTER

sweeps `many` runs on that master into the warehouse FOLDER/w.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.pipeline.planned import planned
from thyme.pipeline import metrics
from thyme.pipeline.session import spark_session
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.runner import sweep
from thyme.pipeline.sweep.runs.planned_run import PlannedRun
from thyme.pipeline.warehouse import Warehouse
from thyme.sim.scenario import Substrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HASTE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Java that starts fast, for processes that do not live long."""
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
    """The measures of all runs and the work of their cells, in order: stages with a shuffle."""
    stage = Warehouse(folder).open_stage("runs")
    tables = metrics.RunTables(spark, stage, [run.run_id for run in runs])
    points = metrics.aggregate_points(metrics.select_measures(tables), metrics.select_runs(tables))
    cells = metrics.measure_cell_work(tables)
    return [*sorted(map(list, points.collect())), *sorted(map(list, cells.collect()))]


def started(master: str) -> SparkSession:
    """A session for a process that does not live long."""
    os.environ["JDK_JAVA_OPTIONS"] = HASTE
    return spark_session(master, FEW)


def main(folder: Path, master: str) -> None:
    """Sweeps."""
    spark = started(master)
    sweep(spark, many(folder), RunResults(Warehouse(folder / "w")))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
