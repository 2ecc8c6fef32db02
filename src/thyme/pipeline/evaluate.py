"""The evaluation: makes traces, runs the sweep and computes metrics, stored in a warehouse.

Entry point: `evaluate`. Stage `match` holds the traces, one file each, and their statistics;
`runs/` the results of single runs, which stay valid when the plan changes; stage `metrics` the
tables for the report (`thyme.report`).
Clauses: P3, P5, P6, P10, C21.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from thyme.model.errors import ThymeError
from thyme.pipeline.presets import Preset, scenarios
from thyme.pipeline.progress import Progress
from thyme.pipeline.runs import SUFFIX, PlannedRun, digest_of, done_in
from thyme.pipeline.sweep import Swept, sweep, warm_up
from thyme.pipeline.warehouse import Draft, Stage, Warehouse, fingerprint_of
from thyme.sim.scenario import PUBLISHERS_SHARE, Kind, Profile, Scenario
from thyme.traces.match import Match, MatchConfig
from thyme.traces.posts import Post
from thyme.traces.rules import Rules, match_trace
from thyme.traces.table import write_trace
from thyme.traces.trace import Trace, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

C21_USERS = 100
BIN_S = 10
TRACE_COUNTS = pa.schema(
    [
        pa.field("users", pa.int32(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),
    ]
)
TIMELINE = pa.schema(
    [
        pa.field("seed", pa.int64(), nullable=False),
        pa.field("at_s", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("operations", pa.int64(), nullable=False),
    ]
)
TRACES, RUNS, METRICS = "match", "runs", "metrics"


class EvaluationError(ThymeError):
    """No run has a result, so there are no metrics."""

    code = "no_results"


class TraceOf(msgspec.Struct, frozen=True, order=True):
    """Identifies the trace of a run: the seed, the number of users, their roles, the duration."""

    seed: int
    users: int
    split: bool
    """Whether each user is either a publisher or a subscriber (S7)."""
    lasts_us: int

    @property
    def file(self) -> str:
        """Name of the trace file."""
        roles = "split" if self.split else "both"
        lasts_s = self.lasts_us // 1_000_000
        return f"seed-{self.seed}-users-{self.users:03}-{roles}-{lasts_s}s.parquet"


def trace_of(scenario: Scenario) -> TraceOf:
    """The trace of a scenario; it does not depend on topology and substrate."""
    lasts_us = scenario.timeline.operations_us
    return TraceOf(scenario.seed, scenario.nodes, scenario.kind is Kind.CRASH, lasts_us)


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of an evaluation."""

    traces: Stage
    swept: Swept
    metrics: Stage


def evaluate(
    spark: SparkSession,
    preset: Preset,
    warehouse: Warehouse,
    *,
    only: Sequence[Kind] = tuple(Kind),
    profiles: Sequence[Profile] = (Profile.PAPER,),
    posts: Warehouse | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    on_stage: Callable[[str], None] = lambda text: None,
) -> Evaluation:
    """Carries out the missing runs of a preset and computes the metrics of all its runs."""
    wanted = scenarios(preset, only, profiles)
    on_stage("making traces")
    warm_up(spark)
    traces = make_traces(warehouse, preset, wanted, spark, posts)
    runs = plan(wanted, Path(traces.table("traces")))
    folder = warehouse.path / RUNS
    on_stage(f"simulating {len(runs)} runs")
    swept = sweep(spark, runs, folder, on_progress)
    ended = sorted({run.run_id for run in runs} & done_in(folder))
    if not ended:
        raise EvaluationError(
            f"every run failed; the first with {swept.failures[0].error}"
            if swept.failures
            else "there are no runs: the simulator supports none of the selected scenarios"
        )
    on_stage("measuring")
    return Evaluation(
        traces=traces,
        swept=swept,
        metrics=_metrics(spark, warehouse, traces, folder, ended, swept, preset),
    )


def plan(wanted: Iterable[Scenario], traces: Path) -> list[PlannedRun]:
    """Pairs each scenario with its trace file (P5)."""
    digests: dict[str, str] = {}
    runs = []
    for scenario in wanted:
        file = traces / trace_of(scenario).file
        digest = digests.get(file.name)
        if digest is None:
            digest = digests[file.name] = digest_of(file)
        runs.append(
            PlannedRun(
                scenario=scenario,
                trace=str(file.resolve()),
                trace_digest=digest,
                version=version("thyme"),
            )
        )
    return runs


# Traces


Tracer = Callable[[TraceOf], Trace]


def _synthetic(posts: int) -> Tracer:
    """Makes traces of the synthetic match; generates the posts of each seed once."""
    made: dict[int, list[Post]] = {}

    def trace(which: TraceOf) -> Trace:
        if which.seed not in made:
            made[which.seed] = list(Match(which.seed, MatchConfig(posts=posts)))
        return match_trace(which.seed, made[which.seed], which.users, *_how(which))

    return trace


def _imported(spark: SparkSession, stage: Stage) -> Tracer:
    """Makes traces of imported posts; the seed determines the drawn operations only."""
    from thyme.pipeline.schemas import POSTS
    from thyme.pipeline.traces import match_operations
    from thyme.pipeline.traces import trace_of as trace_in

    def trace(which: TraceOf) -> Trace:
        posts = spark.read.schema(POSTS).parquet(stage.table("posts"))
        operations = match_operations(posts, which.users, which.seed, *_how(which))
        return trace_in(operations, which.users)

    return trace


def _how(which: TraceOf) -> tuple[Rules, float | None]:
    return Rules(lasts_us=which.lasts_us), PUBLISHERS_SHARE if which.split else None


def make_traces(
    warehouse: Warehouse,
    preset: Preset,
    wanted: Iterable[Scenario],
    spark: SparkSession,
    posts: Warehouse | None,
) -> Stage:
    """Makes the traces of all runs, and statistics of the full-length trace of 100 users."""
    which = sorted({trace_of(scenario) for scenario in wanted})
    seeds = _seeds(preset)
    full = [TraceOf(seed, C21_USERS, False, Rules().lasts_us) for seed in seeds]
    stage = None if posts is None else posts.open("posts")

    def build(draft: Draft) -> None:
        make = _synthetic(preset.posts) if stage is None else _imported(spark, stage)
        make_full = _synthetic(MatchConfig().posts) if stage is None else make
        for each in which:
            write_trace(make(each), draft.path("traces") / each.file)
        references = {each.seed: make_full(each) for each in full}
        counts, bins = trace_counts(references), timeline(references)
        pq.write_table(counts, draft.path("trace_counts") / "part-0.parquet")
        pq.write_table(bins, draft.path("timeline") / "part-0.parquet")

    return warehouse.stage(TRACES, *_made_from(preset, which, stage), build)


def found_traces(
    warehouse: Warehouse, preset: Preset, wanted: Iterable[Scenario], posts: Warehouse | None
) -> Stage | None:
    """The stage with the traces of all runs; None if it has not been built."""
    which = sorted({trace_of(scenario) for scenario in wanted})
    made_from = _made_from(preset, which, None if posts is None else posts.open("posts"))
    if TRACES not in warehouse.stages():
        return None
    stage = warehouse.open(TRACES)
    return stage if stage.fingerprint == fingerprint_of(TRACES, *made_from) else None


def _made_from(
    preset: Preset, which: Sequence[TraceOf], posts: Stage | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """Configuration and inputs of the stage `match`."""
    files = [each.file for each in which]
    config = {"posts": preset.posts, "full": list(_seeds(preset)), "traces": files}
    return config, {} if posts is None else {"posts": posts.fingerprint}


def _seeds(preset: Preset) -> range:
    return range(1, preset.repetitions + 1)


def trace_counts(traces: dict[int, Trace]) -> pa.Table:
    """Number of operations by kind and seed (C21)."""
    rows = [
        {"users": trace.users, "seed": seed, "kind": kind, "operations": count}
        for seed, trace in traces.items()
        for kind, count in trace.counts().items()
    ]
    return pa.Table.from_pylist(rows, TRACE_COUNTS)


def timeline(traces: dict[int, Trace]) -> pa.Table:
    """Number of operations over time, by kind and seed (Thyme, journal article, Fig. 9)."""
    rows = [
        {"seed": seed, "at_s": at_s, "kind": kind, "operations": count}
        for seed, trace in traces.items()
        for (at_s, kind), count in sorted(_binned(trace).items())
    ]
    return pa.Table.from_pylist(rows, TIMELINE)


def _binned(trace: Trace) -> Counter[tuple[int, str]]:
    width_us = BIN_S * 1_000_000
    return Counter((op.at_us // width_us * BIN_S, kind_of(op)) for op in trace.operations)


# Metrics


def _metrics(
    spark: SparkSession,
    warehouse: Warehouse,
    traces: Stage,
    folder: Path,
    ended: Sequence[str],
    swept: Swept,
    preset: Preset,
) -> Stage:
    """Builds the stage `metrics`, the tables for the report."""
    from thyme.pipeline import metrics
    from thyme.pipeline.metrics_devices import cell_work
    from thyme.pipeline.schemas import MEASURES

    def build(draft: Draft) -> None:
        files = [str(folder / f"{run_id}{SUFFIX}") for run_id in ended]
        results = metrics.read_results(spark, files)
        draft.write("runs", metrics.runs(results), files=1)
        draft.write("measures", metrics.measures(results), files=1)
        measured = spark.read.schema(MEASURES).parquet(str(draft.path("measures")))
        draft.write("points", metrics.points(measured, metrics.runs(results)), files=1)
        draft.write("cell_work", cell_work(results), files=1)
        draft.note(**dict(_facts(preset, swept)))

    config = {"preset": preset.name, "failed": [each.run_id for each in swept.failures]}
    named = blake2b("\n".join(ended).encode(), digest_size=16).hexdigest()
    inputs = {"traces": traces.fingerprint, "runs": named}
    return warehouse.stage(METRICS, config, inputs, build)


def _facts(preset: Preset, swept: Swept) -> Iterator[tuple[str, Any]]:
    yield "preset", preset.name
    yield "planned", swept.planned
    yield "operations_s", preset.timeline.operations_us // 1_000_000
    yield "failures", [{"run_id": each.run_id, "error": each.error} for each in swept.failures]
