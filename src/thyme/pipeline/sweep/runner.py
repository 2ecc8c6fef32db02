"""The sweep: runs planned simulations on Spark.

Entry point: `sweep`. A task has one long run or several short ones (`group_runs`). Executors get
the traces from the driver, simulate the runs in a process of
their own (`sweep.simulation_process`) and write each result at once (`sweep.results`), so an
interrupted sweep continues where it stopped. A run that fails, or whose process dies, is recorded
with its error, and the others continue. The driver lists the results to report progress.
Clauses: P5, P11, S16.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from thyme.model.errors import ThymeError
from thyme.pipeline.executors import ship_file, spark_context
from thyme.pipeline.storage import read_file
from thyme.pipeline.sweep.progress import ProgressMonitor, SweepProgress
from thyme.pipeline.sweep.results import RunFailure, RunResults
from thyme.pipeline.sweep.run_schemas import RUN_PART
from thyme.pipeline.sweep.runs.planned_run import SweepRun
from thyme.pipeline.sweep.simulation_process import RunLimits
from thyme.pipeline.sweep.spark_task import (
    PackedRun,
    simulate_into_folder,
    simulate_runs,
    warm_worker,
)

if TYPE_CHECKING:
    from pyspark import InheritableThread
    from pyspark.sql import DataFrame, SparkSession

Run = TypeVar("Run", bound=SweepRun)
POLL_S = 0.5
JOB_TAG = "thyme-sweep"
COMMIT_OPTIONS = {
    # A finished task is visible at once, not when the whole job has finished.
    "mapreduce.fileoutputcommitter.algorithm.version": "2",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "true",
}
TASK_S_MAX = 15.0
"""Estimated time of the runs that share a task: Spark needs about 0.04 s for each task."""
TASKS_PER_CORE_LEFT = 8
"""Runs share a task only if so many tasks of its length are left for each core: all cores work to
the end."""
FATAL_MESSAGES = ("No space left on device", "Disk quota exceeded", "Permission denied")
"""Errors of the warehouse, in messages of Java: no other run would fare better."""


class SweepLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each simulation of a sweep."""

    memory_max_bytes: int = 4 << 30
    seconds_max: float | None = None
    """Wall-clock time. None: only a run that hangs ends, on a busy machine too. Its CPU time is
    limited to ten minutes and twenty times the estimate, its wall-clock time to ten times that."""

    def for_run(self, run: SweepRun) -> RunLimits:
        """The limits of one run."""
        memory = self.memory_max_bytes
        if self.seconds_max is not None:
            return RunLimits(memory_max_bytes=memory, seconds_max=self.seconds_max)
        cpu_s = 600 + 20 * run.cost.seconds
        return RunLimits(memory_max_bytes=memory, seconds_max=10 * cpu_s, cpu_seconds_max=cpu_s)


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
    compiled: int
    """Number of runs simulated by compiled modules in this sweep; the others ran plain Python."""

    @property
    def overhead(self) -> float | None:
        """Extra time relative to the simulations alone, spread evenly over the cores."""
        alone_s = self.simulating_s / self.cores
        return self.wall_s / alone_s - 1 if alone_s else None


def sweep(
    spark: SparkSession,
    runs: Sequence[SweepRun],
    results: RunResults,
    on_progress: Callable[[SweepProgress], None] | None = None,
    limits: SweepLimits = SweepLimits(),  # noqa: B008 (immutable)
) -> SweepResult:
    """Carries out the runs that have no result."""
    started = time.monotonic()
    cores = core_count(spark)
    durations = results.durations()
    missing = longest_first(
        (run for run in runs if run.run_id not in durations), calibrated=bool(durations)
    )
    results.forget_failures({run.run_id for run in missing})
    job = results.new_job()
    monitor = ProgressMonitor(len(runs), missing, partial(results.poll_job, job), cores, durations)
    if missing:
        _run_job(spark, missing, results, job, limits, monitor, on_progress)
    monitor.poll()
    planned = {run.run_id for run in runs}
    finished = monitor.finished.values()
    return SweepResult(
        planned=len(runs),
        found=len(runs) - len(missing),
        ran=len(missing),
        failures=[failure for failure in results.failures() if failure.run_id in planned],
        wall_s=time.monotonic() - started,
        simulating_s=sum(each.wall_s for each in finished),
        cpu_s=sum(each.cpu_s for each in finished),
        cores=cores,
        compiled=sum(each.compiled for each in finished),
    )


def longest_first(runs: Iterable[Run], *, calibrated: bool) -> list[Run]:
    """Sorts runs by cost, longest first, so that cores finish at about the same time. If the speed
    of this machine is not known yet, the shortest run of each substrate comes before them."""
    ordered = sorted(runs, key=lambda run: -run.cost.seconds)
    shortest = {} if calibrated else {run.cost.substrate: run for run in ordered}
    first = list(shortest.values())
    return first + [run for run in ordered if run not in first]


def _run_job(
    spark: SparkSession,
    missing: Sequence[SweepRun],
    results: RunResults,
    job: str,
    limits: SweepLimits,
    monitor: ProgressMonitor,
    on_progress: Callable[[SweepProgress], None] | None,
) -> None:
    """Runs the Spark job in a thread and reports progress until it ends."""
    from pyspark import InheritableThread

    packed = pack_runs(spark, missing, limits)
    report = on_progress or (lambda _: None)
    errors: list[BaseException] = []

    def work() -> None:
        try:
            spark.addTag(JOB_TAG)
            _simulate_all(spark, packed, results, job)
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
        spark.interruptTag(JOB_TAG)
        thread.join()
        raise
    if errors:
        raise SweepError(_error_summary(errors[0], results.uri)) from errors[0]


def pack_runs(
    spark: SparkSession, missing: Sequence[SweepRun], limits: SweepLimits
) -> list[PackedRun]:
    """The runs as tasks get them; sends their traces to the executors."""
    for name, file in {run.shipped_trace: run.trace_file for run in missing}.items():
        if name is not None and file is not None:
            ship_file(spark, name, read_file(file))
    return [
        PackedRun(
            run.run_id,
            msgspec.json.encode(run),
            run.shipped_trace,
            limits.for_run(run),
            run.cost.seconds,
        )
        for run in missing
    ]


def _simulate_all(
    spark: SparkSession, packed: Sequence[PackedRun], results: RunResults, job: str
) -> None:
    """Simulates the runs in tasks, which Spark starts in their order. The result of a run is
    written when it has ended: into a folder by the task, elsewhere by Spark's writer, which
    publishes whole tasks, so that each run has its own. In a folder, that writer would start a
    dozen processes for each file, to set permissions."""
    folder = results.local_folder(job)
    if folder is None:
        alone = [[run] for run in packed]
        frame = _map_numbers(spark, len(alone), partial(simulate_runs, tasks=alone))
        _write_parts(frame, results.spark_path(job))
        return
    tasks = group_runs(packed, core_count(spark))
    task = partial(simulate_into_folder, tasks=tasks, folder=str(folder))
    _map_numbers(spark, len(tasks), task).write.format("noop").mode("overwrite").save()
    results.mark_finished(job)


def group_runs(packed: Sequence[PackedRun], cores: int) -> list[list[PackedRun]]:
    """Groups short runs that follow each other: one task per group."""
    groups: list[list[PackedRun]] = []
    left_s = sum(run.estimated_s for run in packed)
    group_s = limit_s = 0.0
    for run in packed:
        if groups and group_s + run.estimated_s <= limit_s:
            groups[-1].append(run)
            group_s += run.estimated_s
        else:
            groups.append([run])
            group_s = run.estimated_s
            limit_s = min(TASK_S_MAX, left_s / (TASKS_PER_CORE_LEFT * cores))
        left_s -= run.estimated_s
    return groups


def _map_numbers(
    spark: SparkSession, count: int, task: Callable[[Iterable[pa.RecordBatch]], Any]
) -> DataFrame:
    from pyspark.sql.pandas.types import from_arrow_schema

    schema = from_arrow_schema(RUN_PART).add("run", "string", nullable=False)
    return spark.range(0, count, 1, count).mapInArrow(task, schema)


def _write_parts(frame: DataFrame, path: str) -> None:
    """Writes each run into a folder of its own, by the executors, as soon as it has ended."""
    writer = frame.write.mode("append").partitionBy("state", "run").options(**COMMIT_OPTIONS)
    writer.parquet(path)


def warm_up(spark: SparkSession) -> None:
    """Starts a worker and its simulation process per core, in the background."""
    from pyspark import InheritableThread

    def work() -> None:
        # If this fails, the sweep fails too and reports the reason.
        with suppress(Exception):
            frame = _map_numbers(spark, core_count(spark), warm_worker)
            frame.write.format("noop").mode("overwrite").save()

    InheritableThread(target=work, session=spark, daemon=True).start()


def core_count(spark: SparkSession) -> int:
    """The number of tasks that can run at the same time."""
    if (context := spark_context(spark)) is not None:
        return context.defaultParallelism
    from pyspark.sql import functions as F  # noqa: N812

    return spark.range(1 << 16).select(F.spark_partition_id()).distinct().count()


def _error_summary(error: BaseException, uri: str) -> str:
    """The cause of a failed job, from a long error message of Spark."""
    text = str(error)
    for message in FATAL_MESSAGES:
        if message in text:
            return f"the sweep stopped: {uri} cannot be written: {message}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if "cannot be written" in line or "Error: " in line]
    return f"the sweep stopped: {(causes or lines or [type(error).__name__])[-1]}"
