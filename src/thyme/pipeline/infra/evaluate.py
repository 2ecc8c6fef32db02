"""Evaluation of Thyme-Infrastructure: simulates the experiments of the thesis on Spark.

Entry point: `evaluate_infra`. The runs are carried out by the sweep of the other presets, and their
results are stored with those; the stage `infra-metrics` has the tables of the report.
Clauses: P5, P6, P10, S16, C23–C37.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from thyme.model.errors import OptionError, safe_repr
from thyme.pipeline.evaluate import Evaluation, build_points, sweep_runs
from thyme.pipeline.infra.presets import SERIES, InfraPreset, PlannedExperiment, plan_infra
from thyme.pipeline.storage import read_file
from thyme.pipeline.sweep.plan import EvaluationPlan, PlannedCost, make_plan
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.runner import SweepLimits, warm_up
from thyme.pipeline.sweep.runs.infra_run import InfraRun
from thyme.pipeline.sweep.runs.planned_run import content_digest
from thyme.pipeline.warehouse import Draft, Stage, Warehouse
from thyme.traces.trace_files import trace_to_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORKLOADS_STAGE, METRICS_STAGE = "infra-workloads", "infra-metrics"


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
    only: Sequence[str] = SERIES,
    limits: SweepLimits = SweepLimits(),  # noqa: B008 (immutable)
    on_progress: Callable[[SweepProgress], None] | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Carries out the missing runs of a preset and computes the points of all its runs."""
    planned = plan_infra(preset, tuple(only))
    on_stage("making traces")
    warm_up(spark)
    workloads = make_workloads(warehouse, planned)
    runs = with_traces(planned, workloads)
    swept = sweep_runs(
        spark, warehouse, runs, limits=limits, on_progress=on_progress, on_stage=on_stage
    )
    return Evaluation(
        traces=workloads,
        runs=swept.stage,
        sweep_result=swept.result,
        metrics=build_points(spark, warehouse, METRICS_STAGE, preset.name, swept),
    )


def plan_infra_evaluation(
    preset: InfraPreset, warehouse: Warehouse, cores: int, *, only: Sequence[str] = SERIES
) -> EvaluationPlan:
    """Plans the runs that `evaluate_infra` would carry out, without Spark."""
    durations = RunResults(warehouse).durations()
    planned = plan_infra(preset, tuple(only))
    workloads = warehouse.find_stage(WORKLOADS_STAGE)
    current = workloads is not None and workloads.manifest.config == _workload_config(planned)
    runs = with_traces(planned, workloads) if current else [each.run for each in planned]
    costs = [PlannedCost(run.series, run.cost, run.run_id in durations) for run in runs]
    return make_plan(costs, only, durations, cores)


def make_workloads(warehouse: Warehouse, planned: list[PlannedExperiment]) -> Stage | None:
    """Makes the traces of all runs; None if no run has one."""
    workloads = sorted({each.workload for each in planned if each.workload is not None})
    if not workloads:
        return None

    def build(draft: Draft) -> None:
        for each in workloads:
            draft.write_file("traces", each.file, trace_to_bytes(each.make(), each.file))

    return warehouse.get_or_build(WORKLOADS_STAGE, _workload_config(planned), {}, build)


def _workload_config(planned: list[PlannedExperiment]) -> dict[str, object]:
    workloads = sorted({each.workload for each in planned if each.workload is not None})
    return {"traces": [each.file for each in workloads]}


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
