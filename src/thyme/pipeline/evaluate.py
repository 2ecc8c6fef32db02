"""The evaluation: makes traces, runs the sweep and computes metrics, stored in a warehouse.

Entry points: `evaluate`, and `sweep_runs` for runs of any kind. Stage `match` holds the traces
(`evaluation_traces`), `runs/` the results of single runs, which stay valid when the plan changes,
and stage `metrics` the tables for the report (`thyme.report`).
Clauses: P5, P6, P10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thyme.distribution import VERSION
from thyme.model.errors import ThymeError
from thyme.pipeline.evaluation_traces import (
    SYNTHETIC,
    PostsInput,
    TraceSource,
    fitting_scenarios,
    make_traces,
    prepare_posts,
    trace_spec,
)
from thyme.pipeline.storage import read_file
from thyme.pipeline.sweep.presets import Preset, make_scenarios
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.results import RunResults, digest_of_runs
from thyme.pipeline.sweep.runner import SweepLimits, SweepResult, sweep, warm_up
from thyme.pipeline.sweep.runs.planned_run import PlannedRun, SweepRun, content_digest
from thyme.pipeline.warehouse import Draft, Stage, Warehouse
from thyme.sim.scenario import Profile, Scenario, Series
from thyme.traces.retrieve_behaviour import LECTURE_RETRIEVES, RetrieveBehaviour

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

METRICS_STAGE = "metrics"


class EvaluationError(ThymeError):
    """No run has a result, so there are no metrics."""

    code = "no_results"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation."""

    traces: Stage | None
    """None: the runs have no traces."""
    runs: Stage
    sweep_result: SweepResult
    metrics: Stage


def evaluate(
    spark: SparkSession,
    preset: Preset,
    warehouse: Warehouse,
    *,
    only: Sequence[Series] = tuple(Series),
    profiles: Sequence[Profile] = (Profile.PAPER,),
    source: TraceSource = SYNTHETIC,
    reaction: RetrieveBehaviour = LECTURE_RETRIEVES,
    limits: SweepLimits = SweepLimits(),  # noqa: B008 (immutable)
    on_progress: Callable[[SweepProgress], None] | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
    on_posts: Callable[[PostsInput], None] = lambda posts: None,
) -> Evaluation:
    """Carries out the missing runs of a preset and computes the metrics of all its runs."""
    planned = make_scenarios(preset, only, profiles, reaction)
    on_stage("making traces")
    warm_up(spark)
    posts = prepare_posts(warehouse, source, spark)
    posts = posts and posts.thin(preset, source.one_in)
    wanted = fitting_scenarios(planned, posts)
    if posts is not None:
        on_posts(posts)
    if left_out := sorted({each.nodes for each in planned} - {each.nodes for each in wanted}):
        on_stage(f"leaving out networks of {', '.join(map(str, left_out))} nodes: too few users")
    traces = make_traces(warehouse, preset, wanted, spark, posts, source)
    runs = plan_runs(wanted, traces.table_path("traces"))
    swept = sweep_runs(
        spark, warehouse, runs, limits=limits, on_progress=on_progress, on_stage=on_stage
    )
    return Evaluation(
        traces=traces,
        runs=swept.stage,
        sweep_result=swept.result,
        metrics=_build_metrics(spark, warehouse, traces, swept, preset, left_out),
    )


class SweptRuns(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a sweep in the stage `runs`."""

    stage: Stage
    ended: list[str]
    """The ids of the planned runs that have a result."""
    result: SweepResult


def sweep_runs(
    spark: SparkSession,
    warehouse: Warehouse,
    runs: Sequence[SweepRun],
    *,
    limits: SweepLimits = SweepLimits(),  # noqa: B008 (immutable)
    on_progress: Callable[[SweepProgress], None] | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
) -> SweptRuns:
    """Carries out the missing runs of any kind, and stores the results of all."""
    results = RunResults(warehouse)
    on_stage(f"simulating {len(runs)} runs")
    sweep_result = sweep(spark, runs, results, on_progress, limits)
    on_stage("measuring")
    stored = results.compact(spark)
    ended = sorted({run.run_id for run in runs} & results.completed())
    if stored is None or not ended:
        raise EvaluationError(
            f"every run failed; the first with {sweep_result.failures[0].error}"
            if sweep_result.failures
            else "there are no runs: the simulator supports none of the selected scenarios"
        )
    return SweptRuns(stage=stored, ended=ended, result=sweep_result)


def plan_runs(wanted: Iterable[Scenario], traces: str) -> list[PlannedRun]:
    """Pairs each scenario with its trace file, in a folder given by its path or URI (P5)."""
    digests: dict[str, str] = {}
    runs = []
    for scenario in wanted:
        file = f"{traces}/{trace_spec(scenario).file}"
        digest = digests.get(file)
        if digest is None:
            digest = digests[file] = content_digest(read_file(file))
        runs.append(
            PlannedRun(
                scenario=scenario,
                trace_file=file,
                trace_digest=digest,
                version=VERSION,
            )
        )
    return runs


# Metrics


def _build_metrics(
    spark: SparkSession,
    warehouse: Warehouse,
    traces: Stage,
    swept: SweptRuns,
    preset: Preset,
    left_out: Sequence[int],
) -> Stage:
    """Builds the stage `metrics`, the tables for the report."""
    from thyme.pipeline import metrics

    def build(draft: Draft) -> None:
        tables = metrics.RunTables(spark, swept.stage, swept.ended)
        metrics.write_points(spark, draft, tables)
        draft.write("cell_work", metrics.measure_cell_work(tables), files=1)
        seconds = preset.timeline.operations_us // 1_000_000
        draft.add_notes(
            operations_s=seconds, left_out=list(left_out), **sweep_notes(preset.name, swept.result)
        )

    config = {"preset": preset.name, "failed": [each.run_id for each in swept.result.failures]}
    inputs = {"traces": traces.fingerprint, "runs": digest_of_runs(swept.ended)}
    return warehouse.get_or_build(METRICS_STAGE, config, inputs, build)


def build_points(
    spark: SparkSession, warehouse: Warehouse, stage: str, preset: str, swept: SweptRuns
) -> Stage:
    """Builds a stage with the runs of a sweep, their measures, and the points of the report."""
    from thyme.pipeline import metrics

    def build(draft: Draft) -> None:
        tables = metrics.RunTables(spark, swept.stage, swept.ended)
        metrics.write_points(spark, draft, tables)
        draft.add_notes(**sweep_notes(preset, swept.result))

    config = {"preset": preset, "failed": [each.run_id for each in swept.result.failures]}
    inputs = {"runs": digest_of_runs(swept.ended)}
    return warehouse.get_or_build(stage, config, inputs, build)


def sweep_notes(preset: str, sweep_result: SweepResult) -> dict[str, Any]:
    """What the manifest of a stage of metrics says about its sweep."""
    failures = [{"run_id": each.run_id, "error": each.error} for each in sweep_result.failures]
    return {"preset": preset, "planned": sweep_result.planned, "failures": failures}
