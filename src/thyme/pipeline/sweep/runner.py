"""The sweep: runs planned simulations on Spark, one simulation per task.

Entry point: `sweep`. Each task (`sweep.task`) writes the result of its run, so an interrupted sweep
continues where it stopped; a run that raises is recorded with its error, and the others continue.
The driver polls the results folder, which all workers must share, to report progress.
Clauses: P5, S16.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from thyme.model.errors import ThymeError
from thyme.pipeline.sweep.cost_model import run_size
from thyme.pipeline.sweep.progress import ProgressMonitor, SweepProgress
from thyme.pipeline.sweep.task import (
    FAILURE_SUFFIX,
    PlannedRun,
    RunFailure,
    completed_runs,
    read_failures,
    results_to_parquet,
    run_task,
)
from thyme.pipeline.warehouse import WarehouseError

if TYPE_CHECKING:
    from pyspark import RDD, InheritableThread
    from pyspark.sql import SparkSession

POLL_S = 0.25
JOB_GROUP = "thyme-sweep"


class SweepError(ThymeError):
    """Spark aborted the sweep. Finished runs are kept; the same command continues from there."""

    code = "sweep_failed"


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep."""

    planned: int
    found: int
    ran: int
    failures: list[RunFailure]
    wall_s: float
    """Time from the start of the sweep to its last result."""
    simulating_s: float
    """Sum of the wall-clock times of the simulations run by this sweep."""
    cpu_s: float
    """Sum of their CPU times; less than `simulating_s` on a busy machine."""
    cores: int

    @property
    def overhead(self) -> float | None:
        """Extra time relative to the simulations alone, spread evenly over the cores."""
        alone_s = self.simulating_s / self.cores
        return self.wall_s / alone_s - 1 if alone_s else None


def sweep(
    spark: SparkSession,
    runs: Sequence[PlannedRun],
    folder: Path,
    on_progress: Callable[[SweepProgress], None] | None = None,
) -> SweepResult:
    """Carries out the runs that have no result in the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WarehouseError(f"{folder} cannot be written: {error.strerror or error}") from error
    started = time.monotonic()
    cores = spark.sparkContext.defaultParallelism
    completed = completed_runs(folder)
    missing = longest_first(
        (run for run in runs if run.run_id not in completed), calibrated=bool(completed)
    )
    _remove_failures(missing, folder)
    monitor = ProgressMonitor(len(runs), missing, folder, cores)
    if missing:
        _run_job(spark, missing, folder, monitor, on_progress)
    monitor.poll()
    planned = {run.run_id for run in runs}
    return SweepResult(
        planned=len(runs),
        found=len(runs) - len(missing),
        ran=len(missing),
        failures=[failure for failure in read_failures(folder) if failure.run_id in planned],
        wall_s=time.monotonic() - started,
        simulating_s=sum(each.wall_s for each in monitor.finished.values()),
        cpu_s=sum(each.cpu_s for each in monitor.finished.values()),
        cores=cores,
    )


def longest_first(runs: Iterable[PlannedRun], *, calibrated: bool) -> list[PlannedRun]:
    """Sorts runs by cost, longest first, so that cores finish at about the same time. If the speed
    of this machine is not known yet, the shortest run of each substrate comes before them."""
    ordered = sorted(runs, key=lambda run: -run_size(run.scenario).seconds)
    shortest = {} if calibrated else {run.scenario.substrate: run for run in ordered}
    first = list(shortest.values())
    return first + [run for run in ordered if run not in first]


def _remove_failures(missing: Sequence[PlannedRun], folder: Path) -> None:
    """Removes the failures of earlier attempts: these runs are tried again."""
    for run in missing:
        (folder / f"{run.run_id}{FAILURE_SUFFIX}").unlink(missing_ok=True)


def _run_job(
    spark: SparkSession,
    missing: Sequence[PlannedRun],
    folder: Path,
    monitor: ProgressMonitor,
    on_progress: Callable[[SweepProgress], None] | None,
) -> None:
    """Runs the Spark job in a thread and reports progress until it ends."""
    from pyspark import InheritableThread

    report = on_progress or (lambda _: None)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            spark.sparkContext.setJobGroup(JOB_GROUP, f"{len(missing)} simulations")
            _run_tasks(spark, missing, folder)
        except Exception as error:
            errors.append(error)

    thread: InheritableThread = InheritableThread(target=work, session=spark)
    thread.start()
    try:
        while thread.is_alive():
            report(monitor.poll())
            thread.join(POLL_S)
        report(monitor.poll())
    except KeyboardInterrupt:
        spark.sparkContext.cancelJobGroup(JOB_GROUP)
        thread.join()
        raise
    if errors:
        raise SweepError(_error_summary(errors[0])) from errors[0]


def _run_tasks(spark: SparkSession, missing: Sequence[PlannedRun], folder: Path) -> None:
    """Runs one partition per run; Spark starts partitions in their order.

    An RDD, because the first task of a DataFrame starts much later.
    """
    task = partial(run_task, folder=folder.resolve())
    spark.sparkContext.parallelize(missing, len(missing)).foreach(task)


def warm_up(spark: SparkSession) -> None:
    """Starts a Python worker per core that imports the simulator, in the background."""
    from pyspark import InheritableThread

    cores = spark.sparkContext.defaultParallelism
    numbers = spark.sparkContext.parallelize(range(cores), cores)
    # If this fails, the sweep fails too and reports the reason.
    InheritableThread(target=lambda: _ignore_errors(numbers), session=spark, daemon=True).start()


def _ignore_errors(numbers: RDD[int]) -> None:
    with suppress(Exception):
        numbers.foreach(_import_simulator)


def _import_simulator(_: int) -> None:
    """Unpickling this function imports the simulator; writing an empty table loads the parts of
    pyarrow that are imported on first use."""
    results_to_parquet([])


def _error_summary(error: BaseException) -> str:
    """The line of a long Spark error message that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "cannot be written" in line or "Error: " in line]
    return f"the sweep stopped: {(causes or lines or [type(error).__name__])[-1]}"
