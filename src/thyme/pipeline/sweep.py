"""The sweep: a table of runs carried out by Spark, one simulation per task.

Each task writes its run's result as it ends (`runs`), so a sweep that is killed goes on where it
was; a run that raises is written down with its error and the others go on. The driver watches the
folder of results, which all workers and the driver must see, to say how far it is.
Clauses: P5, S16.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from thyme.model.errors import ThymeError
from thyme.pipeline.runs import (
    FAILED,
    Failure,
    PlannedRun,
    done_in,
    failures_in,
    run_and_keep,
    wall_s_of,
)
from thyme.pipeline.warehouse import WarehouseError
from thyme.sim.scenario import Scenario, Substrate

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import InheritableThread
    from pyspark.sql import SparkSession

ENDED = "run_id string, failed boolean"
LOOK_EVERY_S = 0.25
COSTS = {Substrate.ES: (1.0, 2.0), Substrate.LS: (0.53, 2.3), Substrate.DCS: (6.5, 1.7)}
"""How the time of a run grows with its nodes: a factor and a power, fitted to runs of 16 to 64."""
GROUP = "thyme-sweep"


class SweepError(ThymeError):
    """Spark gave the sweep up; what had ended is kept, and the same command goes on from there."""

    code = "sweep_failed"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a sweep is."""

    total: int
    found: int
    """Runs whose results were there before."""
    done: int
    """Runs that have a result or a failure, those found among them."""
    failed: int
    passed_s: float
    left_s: float | None
    """An estimate, once there is something to go by."""

    @property
    def runs_per_s(self) -> float:
        """The rate since it began."""
        return (self.done - self.found) / self.passed_s if self.passed_s else 0.0


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep came to."""

    planned: int
    found: int
    ran: int
    failures: list[Failure]
    wall_s: float
    simulating_s: float
    """What the runs took that ran now, added up."""
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
    there = done_in(folder)
    missing = sorted(
        (run for run in runs if run.run_id not in there), key=lambda run: -cost(run.scenario)
    )
    _forget_failures(missing, folder)
    watch = _Watch(runs, missing, folder, on_progress)
    if missing:
        _carry_out(spark, missing, folder, watch)
    planned = {run.run_id for run in runs}
    return Swept(
        planned=len(runs),
        found=len(runs) - len(missing),
        ran=len(missing),
        failures=[failure for failure in failures_in(folder) if failure.run_id in planned],
        wall_s=time.monotonic() - started,
        simulating_s=sum(wall_s_of(run.run_id, folder) for run in missing),
        cores=spark.sparkContext.defaultParallelism,
    )


def cost(scenario: Scenario) -> float:
    """About how long a run takes, in some unit: the longest begin first, so that no core has to
    wait long for the others at the end."""
    factor, power = COSTS[scenario.substrate]
    return factor * math.pow(scenario.nodes, power) * scenario.timeline.end_us


def _forget_failures(missing: Sequence[PlannedRun], folder: Path) -> None:
    """What failed before is tried again."""
    for run in missing:
        (folder / f"{run.run_id}{FAILED}").unlink(missing_ok=True)


def _carry_out(
    spark: SparkSession, missing: Sequence[PlannedRun], folder: Path, watch: _Watch
) -> None:
    """Runs the job in a thread of its own and watches meanwhile."""
    from pyspark import InheritableThread

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
        while thread.is_alive():
            thread.join(LOOK_EVERY_S)
            watch.look()
    except KeyboardInterrupt:
        spark.sparkContext.cancelJobGroup(GROUP)
        thread.join()
        raise
    if trouble:
        raise SweepError(_reason(trouble[0])) from trouble[0]


def _job(spark: SparkSession, missing: Sequence[PlannedRun], folder: Path) -> None:
    """One partition per run, in their order: Spark starts them in that order."""
    size = len(missing)
    task = partial(_task, runs=tuple(missing), folder=str(folder.resolve()))
    spark.range(0, size, 1, size).mapInArrow(task, ENDED).collect()


def _task(
    batches: Iterator[pa.RecordBatch], runs: tuple[PlannedRun, ...], folder: str
) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        for number in batch.column(0).to_pylist():
            failure = run_and_keep(runs[number], Path(folder))
            yield pa.RecordBatch.from_pydict(
                {"run_id": [runs[number].run_id], "failed": [failure is not None]}
            )


def _reason(error: BaseException) -> str:
    """The line of a long complaint of Spark's that tells what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "cannot be written" in line or "Error: " in line]
    return f"the sweep stopped: {(telling or lines or [type(error).__name__])[-1]}"


class _Watch:
    """Counts what has ended and estimates how long the rest takes, by what runs are expected to
    cost: the first are the longest."""

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        missing: Sequence[PlannedRun],
        folder: Path,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._costs = {run.run_id: cost(run.scenario) for run in missing}
        self._total = len(runs)
        self._found = len(runs) - len(missing)
        self._folder = folder
        self._on_progress = on_progress
        self._since = time.monotonic()

    def look(self) -> None:
        if self._on_progress is None:
            return
        ended = self._costs.keys() & done_in(self._folder)
        failed = {
            name
            for file in self._folder.glob(f"[!.]*{FAILED}")
            if (name := file.name.removesuffix(FAILED)) in self._costs
        }
        passed_s = time.monotonic() - self._since
        over = ended | failed
        spent = sum(cost for name, cost in self._costs.items() if name in over)
        left = sum(cost for name, cost in self._costs.items() if name not in over)
        self._on_progress(
            Progress(
                total=self._total,
                found=self._found,
                done=self._found + len(over),
                failed=len(failed),
                passed_s=passed_s,
                left_s=passed_s * left / spent if spent else None,
            )
        )
