"""The evaluation: makes traces, runs the sweep and computes metrics, stored in a warehouse.

Entry point: `evaluate`. Stage `match` holds the traces (`evaluation_traces`), `runs/` the results
of single runs, which stay valid when the plan changes, and stage `metrics` the tables for the
report (`thyme.report`).
Clauses: P5, P6, P10.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
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
from thyme.pipeline.sweep.presets import Preset, make_scenarios
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.runner import SweepResult, sweep, warm_up
from thyme.pipeline.sweep.task import (
    MEASURES_SUFFIX,
    RESULT_SUFFIX,
    PlannedRun,
    completed_runs,
    file_digest,
)
from thyme.pipeline.warehouse import Draft, Stage, Warehouse
from thyme.sim.scenario import Profile, Scenario, Series

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS_FOLDER, METRICS_STAGE = "runs", "metrics"


class EvaluationError(ThymeError):
    """No run has a result, so there are no metrics."""

    code = "no_results"


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation."""

    traces: Stage
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
    on_progress: Callable[[SweepProgress], None] | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
    on_posts: Callable[[PostsInput], None] = lambda posts: None,
) -> Evaluation:
    """Carries out the missing runs of a preset and computes the metrics of all its runs."""
    planned = make_scenarios(preset, only, profiles)
    on_stage("making traces")
    warm_up(spark)
    posts = prepare_posts(warehouse, source, spark)
    wanted = fitting_scenarios(planned, posts)
    if posts is not None:
        on_posts(posts)
    if left_out := sorted({each.nodes for each in planned} - {each.nodes for each in wanted}):
        on_stage(f"leaving out networks of {', '.join(map(str, left_out))} nodes: too few users")
    traces = make_traces(warehouse, preset, wanted, spark, posts, source.rules)
    runs = plan_runs(wanted, Path(traces.table_path("traces")))
    folder = warehouse.path / RUNS_FOLDER
    on_stage(f"simulating {len(runs)} runs")
    sweep_result = sweep(spark, runs, folder, on_progress)
    ended = sorted({run.run_id for run in runs} & completed_runs(folder))
    if not ended:
        raise EvaluationError(
            f"every run failed; the first with {sweep_result.failures[0].error}"
            if sweep_result.failures
            else "there are no runs: the simulator supports none of the selected scenarios"
        )
    on_stage("measuring")
    return Evaluation(
        traces=traces,
        sweep_result=sweep_result,
        metrics=_build_metrics(
            spark, warehouse, traces, folder, ended, sweep_result, preset, left_out
        ),
    )


def plan_runs(wanted: Iterable[Scenario], traces: Path) -> list[PlannedRun]:
    """Pairs each scenario with its trace file (P5)."""
    digests: dict[str, str] = {}
    runs = []
    for scenario in wanted:
        file = traces / trace_spec(scenario).file
        digest = digests.get(file.name)
        if digest is None:
            digest = digests[file.name] = file_digest(file)
        runs.append(
            PlannedRun(
                scenario=scenario,
                trace_file=str(file.resolve()),
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
    folder: Path,
    ended: Sequence[str],
    sweep_result: SweepResult,
    preset: Preset,
    left_out: Sequence[int],
) -> Stage:
    """Builds the stage `metrics`, the tables for the report."""
    from thyme.pipeline import metrics
    from thyme.pipeline.schemas import MEASURES

    def build(draft: Draft) -> None:
        results = metrics.read_results(spark, _run_files(folder, ended, RESULT_SUFFIX))
        measures = metrics.read_measures(spark, _run_files(folder, ended, MEASURES_SUFFIX))
        draft.write("runs", metrics.select_runs(results), files=1)
        draft.write("measures", measures, files=1)
        measured = spark.read.schema(MEASURES).parquet(str(draft.path("measures")))
        draft.write(
            "points", metrics.aggregate_points(measured, metrics.select_runs(results)), files=1
        )
        draft.write("cell_work", metrics.measure_cell_work(results), files=1)
        draft.add_notes(left_out=list(left_out), **dict(_manifest_notes(preset, sweep_result)))

    config = {"preset": preset.name, "failed": [each.run_id for each in sweep_result.failures]}
    named = blake2b("\n".join(ended).encode(), digest_size=16).hexdigest()
    inputs = {"traces": traces.fingerprint, "runs": named}
    return warehouse.get_or_build(METRICS_STAGE, config, inputs, build)


def _run_files(folder: Path, run_ids: Sequence[str], suffix: str) -> list[str]:
    return [str(folder / f"{run_id}{suffix}") for run_id in run_ids]


def _manifest_notes(preset: Preset, sweep_result: SweepResult) -> Iterator[tuple[str, Any]]:
    yield "preset", preset.name
    yield "planned", sweep_result.planned
    yield "operations_s", preset.timeline.operations_us // 1_000_000
    yield (
        "failures",
        [{"run_id": each.run_id, "error": each.error} for each in sweep_result.failures],
    )
