"""Traces of an evaluation: one file for each seed, size, split of roles and duration.

Entry points: `make_traces`, which builds the stage `match`, and `find_traces`. A `TraceSource` says
where the operations come from: a synthetic match, or imported posts with a window, and the rules
by which posts become operations. Networks with more nodes than the posts have users are left out.
Clauses: P3, P10, C21.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from thyme.pipeline.sweep.presets import Preset
from thyme.pipeline.warehouse import Draft, Stage, Warehouse, stage_fingerprint
from thyme.sim.scenario import PUBLISHERS_SHARE, Scenario, Series
from thyme.traces.posts import Post
from thyme.traces.posts_to_trace import JOURNAL_RULES, TraceRules, trace_from_posts
from thyme.traces.synthetic.football_match import (
    DEFAULT_MATCH,
    FITTED_MATCHES,
    FootballMatch,
    FootballMatchConfig,
)
from thyme.traces.timetable import TimetableChoice
from thyme.traces.trace import Trace, operation_kind
from thyme.traces.trace_files import trace_to_bytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REFERENCE_USERS = 100
BIN_S = 10
TRACES_STAGE = "match"


class TraceSource(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of the traces: posts (None: a synthetic match), their window, and the rules."""

    posts: Warehouse | None = None
    match: str = DEFAULT_MATCH
    """The synthetic match, a name in FITTED_MATCHES."""
    choice: TimetableChoice = TimetableChoice()
    rules: TraceRules = JOURNAL_RULES
    """The duration and, for imported posts, the timetable are replaced for each trace."""
    one_in: int | None = None
    """One in how many imported posts is simulated; None: the preset decides."""


SYNTHETIC = TraceSource()


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


class PostsInput(msgspec.Struct, frozen=True, kw_only=True):
    """Imported posts as input of traces."""

    posts: Stage
    window: Stage | None
    """The stage `window`; None for posts of a synthetic match, whose timetable is known."""
    rules: TraceRules
    """The rules with the timetable of the window."""
    users: int | None
    """Users with posts in the window; None: not counted."""

    def thin(self, preset: Preset, one_in: int | None) -> PostsInput:
        """Chooses one in how many posts is simulated: as given, else by the limit of the preset."""
        from thyme.pipeline.window import window_facts

        if one_in is None:
            one_in = 1
            if preset.tags_max is not None and self.window is not None:
                largest = max(*preset.sizes, preset.nodes)
                one_in = window_facts(self.window).one_in(largest, preset.tags_max)
        rules = msgspec.structs.replace(self.rules, one_in=one_in)
        return msgspec.structs.replace(self, rules=rules)


def prepare_posts(
    warehouse: Warehouse, source: TraceSource, spark: SparkSession | None
) -> PostsInput | None:
    """Finds the window of imported posts; None for the synthetic match. Without Spark, only a
    window that has been found before; else None, too."""
    from thyme.pipeline.window import find_window, find_window_stage, known_timetable

    if source.posts is None:
        return None
    posts = source.posts.open_stage("posts")
    known = known_timetable(posts, source.choice)
    if known is not None:
        rules = msgspec.structs.replace(source.rules, timetable=known)
        return PostsInput(posts=posts, window=None, rules=rules, users=None)
    window = (
        find_window_stage(warehouse, posts, source.choice)
        if spark is None
        else find_window(spark, warehouse, posts, source.choice)
    )
    return None if window is None else _with_window(posts, window, source)


def _with_window(posts: Stage, window: Stage, source: TraceSource) -> PostsInput:
    from thyme.pipeline.window import window_facts

    facts = window_facts(window)
    return PostsInput(
        posts=posts,
        window=window,
        rules=msgspec.structs.replace(source.rules, timetable=facts.timetable),
        users=facts.window_users,
    )


def fitting_scenarios(wanted: Sequence[Scenario], posts: PostsInput | None) -> list[Scenario]:
    """The scenarios with at most as many nodes as the posts have users; none left is an error."""
    from thyme.pipeline.window import check_users, window_facts

    if posts is None or posts.window is None or posts.users is None or not wanted:
        return list(wanted)
    check_users(window_facts(posts.window), min(each.nodes for each in wanted))
    return [each for each in wanted if each.nodes <= posts.users]


# Making traces

TraceFactory = Callable[[TraceSpec], Trace]


def _synthetic_factory(config: FootballMatchConfig, rules: TraceRules) -> TraceFactory:
    """Makes traces of a synthetic match; generates the posts of each seed once."""
    made: dict[int, list[Post]] = {}

    def trace(which: TraceSpec) -> Trace:
        if which.seed not in made:
            made[which.seed] = list(FootballMatch(which.seed, config))
        settings = _rules_for(which, rules)
        return trace_from_posts(which.seed, made[which.seed], which.users, *settings)

    return trace


def _imported_factory(
    spark: SparkSession, posts: PostsInput, one_in: int | None = None
) -> TraceFactory:
    """Makes traces of imported posts, of one in so many (default: by the rules); the seed
    determines the drawn operations only."""
    from thyme.pipeline.schemas import POSTS
    from thyme.pipeline.traces import operations_from_posts, table_to_trace

    rules = posts.rules if one_in is None else msgspec.structs.replace(posts.rules, one_in=one_in)

    def trace(which: TraceSpec) -> Trace:
        table = posts.posts.read(spark, "posts", POSTS)
        settings = _rules_for(which, rules)
        return table_to_trace(
            operations_from_posts(table, which.users, which.seed, *settings), which.users
        )

    return trace


def _rules_for(spec: TraceSpec, rules: TraceRules) -> tuple[TraceRules, float | None]:
    share = PUBLISHERS_SHARE if spec.roles_split else None
    return msgspec.structs.replace(rules, lasts_us=spec.lasts_us), share


def make_traces(
    warehouse: Warehouse,
    preset: Preset,
    wanted: Iterable[Scenario],
    spark: SparkSession,
    posts: PostsInput | None = None,
    source: TraceSource = SYNTHETIC,
) -> Stage:
    """Makes the traces of all runs, and statistics of the full-length trace of 100 users (or of all
    users, if the posts have fewer)."""
    specs = sorted({trace_spec(scenario) for scenario in wanted})
    users = min(REFERENCE_USERS, posts.users or REFERENCE_USERS) if posts else REFERENCE_USERS
    full = [TraceSpec(seed, users, False, JOURNAL_RULES.lasts_us) for seed in _seeds(preset)]

    def build(draft: Draft) -> None:
        from thyme.pipeline.schemas import HISTOGRAM

        if posts is None:
            match = FITTED_MATCHES[source.match]
            short = msgspec.structs.replace(match, posts=preset.posts)
            make = _synthetic_factory(short, source.rules)
            make_full = _synthetic_factory(match, source.rules)
        else:
            make = _imported_factory(spark, posts)
            make_full = _imported_factory(spark, posts, one_in=1)
        for each in specs:
            draft.write_file("traces", each.file, trace_to_bytes(make(each), each.file))
        references = {each.seed: make_full(each) for each in full}
        counts, bins = count_operations(references), count_operations_over_time(references)
        draft.write_file("trace_counts", "part-0.parquet", table_to_parquet(counts))
        draft.write_file("timeline", "part-0.parquet", table_to_parquet(bins))
        draft.add_notes(imported=posts is not None, one_in=posts.rules.one_in if posts else 1)
        if posts is not None and posts.window is not None:
            histogram = posts.window.read(spark, "histogram", HISTOGRAM)
            draft.write("histogram", histogram, files=1)
            draft.add_notes(window=posts.window.manifest.notes)

    inputs = _stage_inputs(preset, specs, posts, source)
    return warehouse.get_or_build(TRACES_STAGE, *inputs, build)


def find_traces(
    warehouse: Warehouse,
    preset: Preset,
    wanted: Iterable[Scenario],
    posts: PostsInput | None = None,
    source: TraceSource = SYNTHETIC,
) -> Stage | None:
    """The stage with the traces of all runs; None if it has not been built."""
    specs = sorted({trace_spec(scenario) for scenario in wanted})
    made_from = _stage_inputs(preset, specs, posts, source)
    if TRACES_STAGE not in warehouse.stage_names():
        return None
    stage = warehouse.open_stage(TRACES_STAGE)
    return stage if stage.fingerprint == stage_fingerprint(TRACES_STAGE, *made_from) else None


def _stage_inputs(
    preset: Preset, specs: Sequence[TraceSpec], posts: PostsInput | None, source: TraceSource
) -> tuple[dict[str, Any], dict[str, str]]:
    """Configuration and inputs of the stage `match`."""
    config = {
        "posts": preset.posts,
        "full": list(_seeds(preset)),
        "traces": [each.file for each in specs],
        "rules": msgspec.to_builtins(source.rules if posts is None else posts.rules),
        "match": source.match if posts is None else None,
    }
    return config, {} if posts is None else {"posts": posts.posts.fingerprint}


def _seeds(preset: Preset) -> range:
    return range(1, preset.repetitions + 1)


# Statistics


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
