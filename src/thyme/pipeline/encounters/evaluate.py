"""Evaluation of encounters: simulates the runs of a preset on Spark and aggregates their measures.

Entry point: `evaluate_encounters`. Each run is one Spark task that writes its result atomically, so
an interrupted evaluation continues where it stopped; a run that raises is recorded with its error.
The points are mean and confidence interval over seeds (S16).
Clauses: P5, P6, U8, S16.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from thyme.pipeline.encounters.presets import EncounterPreset, EncounterRun, plan_encounters
from thyme.pipeline.metrics import aggregate_points
from thyme.pipeline.schemas import MEASURES, RUNS
from thyme.sim.encounters.run import EncounterSummary, run_encounters
from thyme.traces.files import write_atomically

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS_FOLDER, POINTS_FILE, FAILURE_SUFFIX = "encounter-runs", "encounter-points.json", ".error.txt"
LATE_SHARE = 0.95
"""The time to deliver an event to nearly all its receivers: to this share of the deliveries."""


class RunMeasures(msgspec.Struct, frozen=True):
    """The result of one run: its summary, and its CPU time."""

    summary: EncounterSummary
    cpu_s: float


class EncounterEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation."""

    preset: str
    planned: int
    found: int
    """Runs with a result from before."""
    failures: dict[str, str]
    """The last line of the error of each failed run."""
    points_file: str
    wall_s: float


def run_task(run: EncounterRun, folder: str) -> None:
    """Simulates one run and writes its result, or its error."""
    target = Path(folder) / f"{run.run_id}.json"
    started_s = time.process_time()
    try:
        summary = run_encounters(run.scenario)
    except Exception:
        write_atomically(target.with_suffix(FAILURE_SUFFIX), traceback.format_exc().encode())
        return
    result = RunMeasures(summary, time.process_time() - started_s)
    write_atomically(target, msgspec.json.encode(result))
    target.with_suffix(FAILURE_SUFFIX).unlink(missing_ok=True)


def evaluate_encounters(
    spark: SparkSession,
    preset: EncounterPreset,
    warehouse: Path,
    on_stage: Callable[[str], None] | None = None,
) -> EncounterEvaluation:
    """Simulates the runs of a preset that have no result yet, and writes the points."""
    started_s = time.perf_counter()
    folder = warehouse / RUNS_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    runs = plan_encounters(preset)
    missing = [run for run in runs if not (folder / f"{run.run_id}.json").exists()]
    if on_stage is not None:
        on_stage(f"simulating {len(missing)} of {len(runs)} runs")
    if missing:
        path = str(folder.resolve())
        tasks = spark.sparkContext.parallelize(missing, len(missing))
        tasks.foreach(lambda run: run_task(run, path))
    results = {run: result for run in runs if (result := _read_result(folder, run)) is not None}
    failures = {
        run.run_id: _last_line(folder / f"{run.run_id}{FAILURE_SUFFIX}")
        for run in runs
        if run not in results
    }
    if on_stage is not None:
        on_stage("aggregating")
    points_file = warehouse / POINTS_FILE
    points = _aggregate(spark, results)
    write_atomically(
        points_file, msgspec.json.encode({"preset": preset.name, "points": points}, order="sorted")
    )
    return EncounterEvaluation(
        preset=preset.name,
        planned=len(runs),
        found=len(runs) - len(missing),
        failures=failures,
        points_file=str(points_file),
        wall_s=time.perf_counter() - started_s,
    )


def _read_result(folder: Path, run: EncounterRun) -> RunMeasures | None:
    try:
        data = (folder / f"{run.run_id}.json").read_bytes()
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=RunMeasures)


def _last_line(path: Path) -> str:
    try:
        return path.read_text().strip().splitlines()[-1]
    except (FileNotFoundError, IndexError):
        return "no result"


def measures_of(result: RunMeasures) -> Iterator[tuple[str, float]]:
    """The measures of a run, by name."""
    summary = result.summary
    events, traffic = summary.events, summary.traffic
    yield "reliability", events.reliability or 0.0
    yield "bytes", float(traffic.bytes)
    yield "exchanges", float(traffic.exchanges)
    yield "contacts", float(summary.contacts)
    yield "cpu_s", result.cpu_s
    if events.delay_s.mean is not None and events.delay_s.p95 is not None:
        yield "delay_s_mean", events.delay_s.mean
        yield "delay_s_p95", events.delay_s.p95
    if traffic.exchange_s is not None:
        yield "exchange_s_min", traffic.exchange_s.min
        yield "exchange_s_mean", traffic.exchange_s.mean
        yield "exchange_s_max", traffic.exchange_s.max
    for at_s, share in summary.timeline:
        yield f"reliability_at.{at_s:g}", share


def _aggregate(
    spark: SparkSession, results: dict[EncounterRun, RunMeasures]
) -> list[dict[str, Any]]:
    """Mean and confidence interval of every measure at every point, in a fixed order."""
    if not results:
        return []
    measured = [
        (run.run_id, name, value)
        for run, result in results.items()
        for name, value in measures_of(result)
    ]
    runs = [
        (
            run.run_id,
            run.series,
            run.substrate,
            "paper",
            run.scenario.nodes,
            run.parameter,
            run.scenario.seed,
            run.scenario.seed,
            0,
        )
        for run in results
    ]
    points = aggregate_points(
        spark.createDataFrame(measured, MEASURES), spark.createDataFrame(runs, RUNS)
    )
    rows = [row.asDict() for row in points.collect()]
    keys = ("series", "substrate", "nodes", "parameter", "measure")
    return sorted(rows, key=lambda row: tuple(row[key] for key in keys))
