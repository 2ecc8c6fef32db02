"""The evaluation: makes traces, runs the sweep and computes metrics, stored in a warehouse.

Entry point: `evaluate`. Stage `match` holds the traces, one file each, and their statistics;
`runs/` the results of single runs, which stay valid when the plan changes; stage `metrics` the
tables for the report (`thyme.report`).
Clauses: P3, P5, P6, P10, C21.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from thyme.distribution import VERSION
from thyme.model.errors import ThymeError
from thyme.pipeline.storage import read_file
from thyme.pipeline.sweep.planned_run import PlannedRun, content_digest
from thyme.pipeline.sweep.presets import Preset, make_scenarios
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.results import RunResults, digest_of_runs
from thyme.pipeline.sweep.runner import SweepLimits, SweepResult, sweep, warm_up
from thyme.pipeline.warehouse import Draft, Stage, Warehouse, stage_fingerprint
from thyme.sim.scenario import PUBLISHERS_SHARE, Profile, Scenario, Series
from thyme.traces.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.posts import Post
from thyme.traces.posts_to_trace import TraceRules, trace_from_posts
from thyme.traces.trace import Trace, operation_kind
from thyme.traces.trace_files import trace_to_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFERENCE_USERS = 100
BIN_S = 10
TRACES_STAGE, METRICS_STAGE = "match", "metrics"


class EvaluationError(ThymeError):
    """No run has a result, so there are no metrics."""

    code = "no_results"


class TraceSpec(msgspec.Struct, frozen=True, order=True):
    """Identifies the trace of a run: the seed, the number of users, their roles, the duration."""

    seed: int
    users: int
    roles_split: bool
    """Whether each user is either a publisher or a subscriber (S7)."""
    lasts_us: int

    @property
    def file(self) -> str:
        """Name of the trace file."""
        roles = "split" if self.roles_split else "both"
        lasts_s = self.lasts_us // 1_000_000
        return f"seed-{self.seed}-users-{self.users:03}-{roles}-{lasts_s}s.parquet"


def trace_spec(scenario: Scenario) -> TraceSpec:
    """The trace of a scenario; it does not depend on topology and substrate."""
    lasts_us = scenario.timeline.operations_us
    return TraceSpec(scenario.seed, scenario.nodes, scenario.kind is Series.CRASH, lasts_us)


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation."""

    traces: Stage
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
    posts: Warehouse | None = None,
    limits: SweepLimits = SweepLimits(),  # noqa: B008 (immutable)
    on_progress: Callable[[SweepProgress], None] | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Carries out the missing runs of a preset and computes the metrics of all its runs."""
    wanted = make_scenarios(preset, only, profiles)
    on_stage("making traces")
    warm_up(spark)
    traces = make_traces(warehouse, preset, wanted, spark, posts)
    runs = plan_runs(wanted, traces.table_path("traces"))
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
    return Evaluation(
        traces=traces,
        runs=stored,
        sweep_result=sweep_result,
        metrics=_build_metrics(spark, warehouse, traces, stored, ended, sweep_result, preset),
    )


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


# Traces


TraceFactory = Callable[[TraceSpec], Trace]


def _synthetic_factory(posts: int) -> TraceFactory:
    """Makes traces of the synthetic match; generates the posts of each seed once."""
    made: dict[int, list[Post]] = {}

    def trace(which: TraceSpec) -> Trace:
        if which.seed not in made:
            made[which.seed] = list(FootballMatch(which.seed, FootballMatchConfig(posts=posts)))
        return trace_from_posts(which.seed, made[which.seed], which.users, *_rules_for(which))

    return trace


def _imported_factory(spark: SparkSession, stage: Stage) -> TraceFactory:
    """Makes traces of imported posts; the seed determines the drawn operations only."""
    from thyme.pipeline.schemas import POSTS
    from thyme.pipeline.traces import operations_from_posts
    from thyme.pipeline.traces import table_to_trace as trace_in

    def trace(which: TraceSpec) -> Trace:
        posts = stage.read(spark, "posts", POSTS)
        operations = operations_from_posts(posts, which.users, which.seed, *_rules_for(which))
        return trace_in(operations, which.users)

    return trace


def _rules_for(spec: TraceSpec) -> tuple[TraceRules, float | None]:
    return TraceRules(lasts_us=spec.lasts_us), PUBLISHERS_SHARE if spec.roles_split else None


def make_traces(
    warehouse: Warehouse,
    preset: Preset,
    wanted: Iterable[Scenario],
    spark: SparkSession,
    posts: Warehouse | None,
) -> Stage:
    """Makes the traces of all runs, and statistics of the full-length trace of 100 users."""
    specs = sorted({trace_spec(scenario) for scenario in wanted})
    seeds = _seeds(preset)
    full = [TraceSpec(seed, REFERENCE_USERS, False, TraceRules().lasts_us) for seed in seeds]
    stage = None if posts is None else posts.open_stage("posts")

    def build(draft: Draft) -> None:
        make = (
            _synthetic_factory(preset.posts) if stage is None else _imported_factory(spark, stage)
        )
        make_full = _synthetic_factory(FootballMatchConfig().posts) if stage is None else make
        for each in specs:
            draft.write_file("traces", each.file, trace_to_bytes(make(each), each.file))
        references = {each.seed: make_full(each) for each in full}
        counts, bins = count_operations(references), count_operations_over_time(references)
        draft.write_file("trace_counts", "part-0.parquet", table_to_parquet(counts))
        draft.write_file("timeline", "part-0.parquet", table_to_parquet(bins))

    return warehouse.get_or_build(TRACES_STAGE, *_stage_inputs(preset, specs, stage), build)


def find_traces(
    warehouse: Warehouse, preset: Preset, wanted: Iterable[Scenario], posts: Warehouse | None
) -> Stage | None:
    """The stage with the traces of all runs; None if it has not been built."""
    specs = sorted({trace_spec(scenario) for scenario in wanted})
    made_from = _stage_inputs(preset, specs, None if posts is None else posts.open_stage("posts"))
    if TRACES_STAGE not in warehouse.stage_names():
        return None
    stage = warehouse.open_stage(TRACES_STAGE)
    return stage if stage.fingerprint == stage_fingerprint(TRACES_STAGE, *made_from) else None


def _stage_inputs(
    preset: Preset, specs: Sequence[TraceSpec], posts: Stage | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Configuration and inputs of the stage `match`."""
    files = [each.file for each in specs]
    config = {"posts": preset.posts, "full": list(_seeds(preset)), "traces": files}
    return config, {} if posts is None else {"posts": posts.fingerprint}


def _seeds(preset: Preset) -> range:
    return range(1, preset.repetitions + 1)


def table_to_parquet(table: pa.Table) -> bytes:
    """Encodes a small table as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    return data


def count_operations(traces: dict[int, Trace]) -> pa.Table:
    """Number of operations by kind and seed (C21)."""
    from thyme.pipeline.schemas import TRACE_COUNTS

    rows = [
        {"users": trace.users, "seed": seed, "kind": kind, "operations": count}
        for seed, trace in traces.items()
        for kind, count in trace.counts().items()
    ]
    return pa.Table.from_pylist(rows, TRACE_COUNTS)


def count_operations_over_time(traces: dict[int, Trace]) -> pa.Table:
    """Number of operations over time, by kind and seed (Thyme, journal article, Fig. 9)."""
    from thyme.pipeline.schemas import TIMELINE

    rows = [
        {"seed": seed, "at_s": at_s, "kind": kind, "operations": count}
        for seed, trace in traces.items()
        for (at_s, kind), count in sorted(_count_by_bin(trace).items())
    ]
    return pa.Table.from_pylist(rows, TIMELINE)


def _count_by_bin(trace: Trace) -> Counter[tuple[int, str]]:
    width_us = BIN_S * 1_000_000
    return Counter((op.at_us // width_us * BIN_S, operation_kind(op)) for op in trace.operations)


# Metrics


def _build_metrics(
    spark: SparkSession,
    warehouse: Warehouse,
    traces: Stage,
    runs: Stage,
    ended: Sequence[str],
    sweep_result: SweepResult,
    preset: Preset,
) -> Stage:
    """Builds the stage `metrics`, the tables for the report."""
    from thyme.pipeline import metrics
    from thyme.pipeline.schemas import MEASURES

    def build(draft: Draft) -> None:
        tables = metrics.RunTables(spark, runs, ended)
        draft.write("runs", metrics.select_runs(tables), files=1)
        draft.write("measures", metrics.select_measures(tables), files=1)
        measured = draft.read(spark, "measures", MEASURES)
        draft.write(
            "points", metrics.aggregate_points(measured, metrics.select_runs(tables)), files=1
        )
        draft.write("cell_work", metrics.measure_cell_work(tables), files=1)
        draft.add_notes(**dict(_manifest_notes(preset, sweep_result)))

    config = {"preset": preset.name, "failed": [each.run_id for each in sweep_result.failures]}
    inputs = {"traces": traces.fingerprint, "runs": digest_of_runs(ended)}
    return warehouse.get_or_build(METRICS_STAGE, config, inputs, build)


def _manifest_notes(preset: Preset, sweep_result: SweepResult) -> Iterator[tuple[str, Any]]:
    yield "preset", preset.name
    yield "planned", sweep_result.planned
    yield "operations_s", preset.timeline.operations_us // 1_000_000
    yield (
        "failures",
        [{"run_id": each.run_id, "error": each.error} for each in sweep_result.failures],
    )
