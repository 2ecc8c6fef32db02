"""Evaluation of encounters: sweeps the runs of a preset and aggregates their measures.

Entry points: `evaluate_encounters` and `plan_encounter_evaluation`. The runs are those of every
sweep: in processes of their own, with limits, resumed after an interruption. The stage
`encounter_metrics` has the tables for the report (`thyme.report.encounters`).
Clauses: P5, P6, P10, U8, S16.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from thyme.pipeline.encounters.presets import SERIES, EncounterPreset, plan_encounters
from thyme.pipeline.evaluate import Evaluation, build_points, sweep_runs
from thyme.pipeline.sweep.plan import EvaluationPlan, PlannedCost, make_plan
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.runner import SweepLimits, warm_up
from thyme.pipeline.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENCOUNTER_METRICS_STAGE = "encounter_metrics"


def evaluate_encounters(
    spark: SparkSession,
    preset: EncounterPreset,
    warehouse: Warehouse,
    *,
    only: Sequence[str] = SERIES,
    limits: SweepLimits = SweepLimits(),  # noqa: B008 (immutable)
    on_progress: Callable[[SweepProgress], None] | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Carries out the missing runs of a preset and computes the metrics of all its runs."""
    warm_up(spark)
    runs = plan_encounters(preset, only)
    swept = sweep_runs(
        spark, warehouse, runs, limits=limits, on_progress=on_progress, on_stage=on_stage
    )
    return Evaluation(
        traces=None,
        runs=swept.stage,
        sweep_result=swept.result,
        metrics=build_points(spark, warehouse, ENCOUNTER_METRICS_STAGE, preset.name, swept),
    )


def plan_encounter_evaluation(
    preset: EncounterPreset, warehouse: Warehouse, cores: int, *, only: Sequence[str] = SERIES
) -> EvaluationPlan:
    """Plans the runs that `evaluate_encounters` would carry out, without Spark."""
    durations = RunResults(warehouse).durations()
    runs = [
        PlannedCost(run.series, run.cost, run.run_id in durations)
        for run in plan_encounters(preset, only)
    ]
    return make_plan(runs, only, durations, cores)
