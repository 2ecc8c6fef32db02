"""Evaluation of Thyme-Infrastructure: simulates the experiments of the thesis on Spark.

Entry point: `evaluate_infra`. The runs are carried out by the sweep of the other presets, and their
results are stored with those; the stage `infra-metrics` has the tables of the report.
Clauses: P5, P6, P10, S16, C23–C37.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from thyme.model.errors import OptionError, ThymeError, safe_repr
from thyme.pipeline.infra.presets import SERIES, InfraPreset, PlannedExperiment, plan_infra
from thyme.pipeline.storage import read_file
from thyme.pipeline.sweep.infra_run import InfraRun
from thyme.pipeline.sweep.planned_run import content_digest
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.results import RunResults, digest_of_runs
from thyme.pipeline.sweep.runner import SweepLimits, SweepResult, sweep, warm_up
from thyme.pipeline.warehouse import Draft, Stage, Warehouse
from thyme.traces.trace_files import trace_to_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKLOADS_STAGE, METRICS_STAGE = "infra-workloads", "infra-metrics"


class InfraEvaluationError(ThymeError):
    """No run has a result, so there is nothing to report."""

    code = "no_results"


class InfraEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation."""

    sweep_result: SweepResult
    metrics: Stage


def parse_infra_series(text: str | None) -> tuple[str, ...]:
    """Parses the option `--only addresses,worlds`; all series if it is absent."""
    names = SERIES if text is None else tuple(name.strip() for name in text.split(","))
    for name in names:
        if name not in SERIES:
            raise OptionError(f"--only {safe_repr(name)} is unknown; there is {', '.join(SERIES)}")
    return names


def evaluate_infra(
    spark: SparkSession,
    preset: InfraPreset,
    warehouse: Warehouse,
    *,
    only: tuple[str, ...] = SERIES,
    limits: SweepLimits = SweepLimits(),  # noqa: B008 (immutable)
    on_progress: Callable[[SweepProgress], None] | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
) -> InfraEvaluation:
    """Carries out the missing runs of a preset and computes the points of all its runs."""
    planned = plan_infra(preset, only)
    on_stage("making traces")
    warm_up(spark)
    workloads = make_workloads(warehouse, planned)
    runs = with_traces(planned, workloads)
    results = RunResults(warehouse)
    on_stage(f"simulating {len(runs)} runs")
    sweep_result = sweep(spark, runs, results, on_progress, limits)
    on_stage("measuring")
    stored = results.compact(spark)
    ended = sorted({run.run_id for run in runs} & results.completed())
    if stored is None or not ended:
        first = sweep_result.failures[0].error if sweep_result.failures else "there are no runs"
        raise InfraEvaluationError(f"every run failed; the first with {first}")
    metrics = _build_metrics(spark, warehouse, stored, ended, sweep_result, preset)
    return InfraEvaluation(sweep_result=sweep_result, metrics=metrics)


def make_workloads(warehouse: Warehouse, planned: list[PlannedExperiment]) -> Stage | None:
    """Makes the traces of all runs; None if no run has one."""
    workloads = sorted({each.workload for each in planned if each.workload is not None})
    if not workloads:
        return None

    def build(draft: Draft) -> None:
        for each in workloads:
            draft.write_file("traces", each.file, trace_to_bytes(each.make(), each.file))

    config = {"traces": [each.file for each in workloads]}
    return warehouse.get_or_build(WORKLOADS_STAGE, config, {}, build)


def with_traces(planned: list[PlannedExperiment], workloads: Stage | None) -> list[InfraRun]:
    """The runs with their trace files."""
    digests: dict[str, str] = {}
    runs = []
    for run, workload in planned:
        if workload is None or workloads is None:
            runs.append(run)
            continue
        file = f"{workloads.table_path('traces')}/{workload.file}"
        if file not in digests:
            digests[file] = content_digest(read_file(file))
        runs.append(replace(run, trace_file=file, trace_digest=digests[file]))
    return runs


def _build_metrics(
    spark: SparkSession,
    warehouse: Warehouse,
    runs: Stage,
    ended: list[str],
    sweep_result: SweepResult,
    preset: InfraPreset,
) -> Stage:
    """Builds the tables of the report."""
    from thyme.pipeline import metrics
    from thyme.pipeline.schemas import MEASURES

    def build(draft: Draft) -> None:
        tables = metrics.RunTables(spark, runs, ended)
        draft.write("runs", metrics.select_runs(tables), files=1)
        draft.write("measures", metrics.select_measures(tables), files=1)
        measured = draft.read(spark, "measures", MEASURES)
        points = metrics.aggregate_points(measured, metrics.select_runs(tables))
        draft.write("points", points, files=1)
        failures = [{"run_id": each.run_id, "error": each.error} for each in sweep_result.failures]
        draft.add_notes(preset=preset.name, planned=sweep_result.planned, failures=failures)

    config = {"preset": preset.name, "failed": [each.run_id for each in sweep_result.failures]}
    return warehouse.get_or_build(METRICS_STAGE, config, {"runs": digest_of_runs(ended)}, build)
