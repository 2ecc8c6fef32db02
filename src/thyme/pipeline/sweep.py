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
from thyme.pipeline.costs import work_of
from thyme.pipeline.progress import Progress, Watch
from thyme.pipeline.runs import (
    FAILED,
    Failure,
    PlannedRun,
    done_in,
    failures_in,
    parquet_bytes,
    run_and_keep,
)
from thyme.pipeline.warehouse import WarehouseError

if TYPE_CHECKING:
    from pyspark import RDD, InheritableThread
    from pyspark.sql import SparkSession

LOOK_EVERY_S = 0.25
GROUP = "thyme-sweep"


class SweepError(ThymeError):
    """Spark aborted the sweep. Finished runs are kept; the same command continues from there."""

    code = "sweep_failed"


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a sweep."""

    planned: int
    found: int
    ran: int
    failures: list[Failure]
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
    on_progress: Callable[[Progress], None] | None = None,
) -> Swept:
    """Carries out the runs that have no result in the folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WarehouseError(f"{folder} cannot be written: {error.strerror or error}") from error
    started = time.monotonic()
    cores = spark.sparkContext.defaultParallelism
    there = done_in(folder)
    missing = in_order((run for run in runs if run.run_id not in there), known=bool(there))
    _forget_failures(missing, folder)
    watch = Watch(len(runs), missing, folder, cores)
    if missing:
        _carry_out(spark, missing, folder, watch, on_progress)
    watch.look()
    planned = {run.run_id for run in runs}
    return Swept(
        planned=len(runs),
        found=len(runs) - len(missing),
        ran=len(missing),
        failures=[failure for failure in failures_in(folder) if failure.run_id in planned],
        wall_s=time.monotonic() - started,
        simulating_s=sum(each.wall_s for each in watch.ended.values()),
        cpu_s=sum(each.cpu_s for each in watch.ended.values()),
        cores=cores,
    )


def in_order(runs: Iterable[PlannedRun], *, known: bool) -> list[PlannedRun]:
    """Sorts runs by cost, longest first, so that cores finish at about the same time. If the speed
    of this machine is not known yet, the shortest run of each substrate comes before them."""
    ordered = sorted(runs, key=lambda run: -work_of(run.scenario).seconds)
    shortest = {} if known else {run.scenario.substrate: run for run in ordered}
    first = list(shortest.values())
    return first + [run for run in ordered if run not in first]


def _forget_failures(missing: Sequence[PlannedRun], folder: Path) -> None:
    """Removes the failures of earlier attempts: these runs are tried again."""
    for run in missing:
        (folder / f"{run.run_id}{FAILED}").unlink(missing_ok=True)


def _carry_out(
    spark: SparkSession,
    missing: Sequence[PlannedRun],
    folder: Path,
    watch: Watch,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    """Runs the Spark job in a thread and reports progress until it ends."""
    from pyspark import InheritableThread

    report = on_progress or (lambda _: None)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            spark.sparkContext.setJobGroup(GROUP, f"{len(missing)} simulations")
            _job(spark, missing, folder)
        except Exception as error:
            errors.append(error)

    thread: InheritableThread = InheritableThread(target=work, session=spark)
    thread.start()
    try:
        report(watch.look())
        while thread.is_alive():
            thread.join(LOOK_EVERY_S)
            report(watch.look())
    except KeyboardInterrupt:
        spark.sparkContext.cancelJobGroup(GROUP)
        thread.join()
        raise
    if errors:
        raise SweepError(_reason(errors[0])) from errors[0]


def _job(spark: SparkSession, missing: Sequence[PlannedRun], folder: Path) -> None:
    """Runs one partition per run; Spark starts partitions in their order.

    An RDD, because the first task of a DataFrame starts much later.
    """
    task = partial(run_and_keep, folder=folder.resolve())
    spark.sparkContext.parallelize(missing, len(missing)).foreach(task)


def warm_up(spark: SparkSession) -> None:
    """Starts a Python worker per core that imports the simulator, in the background."""
    from pyspark import InheritableThread

    cores = spark.sparkContext.defaultParallelism
    numbers = spark.sparkContext.parallelize(range(cores), cores)
    # If this fails, the sweep fails too and reports the reason.
    InheritableThread(target=lambda: _quietly(numbers), session=spark, daemon=True).start()


def _quietly(numbers: RDD[int]) -> None:
    with suppress(Exception):
        numbers.foreach(_import_all)


def _import_all(_: int) -> None:
    """Unpickling this function imports the simulator; writing an empty table loads the parts of
    pyarrow that are imported on first use."""
    parquet_bytes([])


def _reason(error: BaseException) -> str:
    """The line of a long Spark error message that names the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if "cannot be written" in line or "Error: " in line]
    return f"the sweep stopped: {(causes or lines or [type(error).__name__])[-1]}"
