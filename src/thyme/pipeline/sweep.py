"""The sweep: a table of runs carried out by Spark, one simulation per task.

Each task writes its run's result as it ends (`runs`), so a sweep that is killed goes on where it
was; a run that raises is written down with its error and the others go on. The driver watches the
folder of results, which all workers and the driver must see, to say how far it is.
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
    """Spark gave the sweep up; what had ended is kept, and the same command goes on from there."""

    code = "sweep_failed"


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep came to."""

    planned: int
    found: int
    ran: int
    failures: list[Failure]
    wall_s: float
    """From when the sweep was asked for to when its last result was there."""
    simulating_s: float
    """What the simulations took that ran now, each by the clock, added up."""
    cpu_s: float
    """What they took of their cores: less, where cores are shared with others."""
    cores: int

    @property
    def overhead(self) -> float | None:
        """How much longer it took than the simulations alone, spread evenly over the cores."""
        alone_s = self.simulating_s / self.cores
        return self.wall_s / alone_s - 1 if alone_s else None


def sweep(
    spark: SparkSession,
    runs: Sequence[PlannedRun],
    folder: Path,
    on_progress: Callable[[Progress], None] | None = None,
) -> Swept:
    """Carries out those of the runs whose results are not in the folder yet."""
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
    """The longest first, so that no core has to wait long for the others at the end; but where it
    is not known how fast this machine is, before them the shortest of each substrate."""
    ordered = sorted(runs, key=lambda run: -work_of(run.scenario).seconds)
    shortest = {} if known else {run.scenario.substrate: run for run in ordered}
    first = list(shortest.values())
    return first + [run for run in ordered if run not in first]


def _forget_failures(missing: Sequence[PlannedRun], folder: Path) -> None:
    """What failed before is tried again."""
    for run in missing:
        (folder / f"{run.run_id}{FAILED}").unlink(missing_ok=True)


def _carry_out(
    spark: SparkSession,
    missing: Sequence[PlannedRun],
    folder: Path,
    watch: Watch,
    on_progress: Callable[[Progress], None] | None,
) -> None:
    """Runs the job in a thread of its own and watches meanwhile."""
    from pyspark import InheritableThread

    tell = on_progress or (lambda _: None)
    trouble: list[BaseException] = []

    def work() -> None:
        try:
            spark.sparkContext.setJobGroup(GROUP, f"{len(missing)} simulations")
            _job(spark, missing, folder)
        except Exception as error:
            trouble.append(error)

    thread: InheritableThread = InheritableThread(target=work, session=spark)
    thread.start()
    try:
        tell(watch.look())
        while thread.is_alive():
            thread.join(LOOK_EVERY_S)
            tell(watch.look())
    except KeyboardInterrupt:
        spark.sparkContext.cancelJobGroup(GROUP)
        thread.join()
        raise
    if trouble:
        raise SweepError(_reason(trouble[0])) from trouble[0]


def _job(spark: SparkSession, missing: Sequence[PlannedRun], folder: Path) -> None:
    """One partition per run, in their order: Spark starts them in that order.

    Not a DataFrame: there are no columns to speak of, and the first task of one starts much later.
    """
    task = partial(run_and_keep, folder=folder.resolve())
    spark.sparkContext.parallelize(missing, len(missing)).foreach(task)


def warm_up(spark: SparkSession) -> None:
    """Has a Python worker per core import the simulator, while the driver goes on."""
    from pyspark import InheritableThread

    cores = spark.sparkContext.defaultParallelism
    numbers = spark.sparkContext.parallelize(range(cores), cores)
    # If it fails, so will the sweep, which says why.
    InheritableThread(target=lambda: _quietly(numbers), session=spark, daemon=True).start()


def _quietly(numbers: RDD[int]) -> None:
    with suppress(Exception):
        numbers.foreach(_import_all)


def _import_all(_: int) -> None:
    """A worker that knows this function has imported its module and what that needs; but for
    what pyarrow imports when it is first used."""
    parquet_bytes([])


def _reason(error: BaseException) -> str:
    """The line of a long complaint of Spark's that tells what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "cannot be written" in line or "Error: " in line]
    return f"the sweep stopped: {(telling or lines or [type(error).__name__])[-1]}"
