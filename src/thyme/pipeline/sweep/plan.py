"""Plan: the number of runs of an evaluation and its estimated duration, without running it.

Entry points: `plan_evaluation`, and `make_plan` for runs of any kind. They neither simulate nor
start Spark. Runs with a result in the warehouse count as done and calibrate the estimate for this
machine.
Clauses: P5, S16.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from thyme.pipeline.evaluate import plan_runs
from thyme.pipeline.evaluation_traces import (
    SYNTHETIC,
    PostsInput,
    TraceSource,
    find_traces,
    fitting_scenarios,
    prepare_posts,
)
from thyme.pipeline.sweep.presets import Preset, make_scenarios
from thyme.pipeline.sweep.progress import calibrated_speed
from thyme.pipeline.sweep.results import RunDuration, RunResults
from thyme.pipeline.sweep.runs.cost_model import MachineSpeed, RunCost, estimate_cost, makespan_s
from thyme.pipeline.warehouse import Warehouse
from thyme.sim.scenario import Profile, Scenario, Series
from thyme.traces.retrieve_behaviour import LECTURE_RETRIEVES, RetrieveBehaviour


class SeriesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one series."""

    runs: int
    done: int
    core_s: float
    """Total duration of its runs on one core."""


class EvaluationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of an evaluation."""

    series: dict[str, SeriesPlan]
    cores: int
    all_s: float
    """Duration of all runs on `cores` cores."""
    left_s: float
    """Duration of the runs that are not done."""
    calibrated_by: int
    """Number of finished runs behind the estimate; 0: it assumes the machine of COST_LAWS."""

    @property
    def runs(self) -> int:
        """Number of runs."""
        return sum(each.runs for each in self.series.values())

    @property
    def done(self) -> int:
        """Number of runs with a result."""
        return sum(each.done for each in self.series.values())

    @property
    def core_s(self) -> float:
        """Total duration of all runs on one core."""
        return sum(each.core_s for each in self.series.values())


class PlannedCost(NamedTuple):
    """A run of a plan: its series, its estimated cost, and whether it has a result."""

    series: str
    cost: RunCost
    done: bool


def make_plan(
    runs: Sequence[PlannedCost],
    series: Sequence[str],
    durations: Mapping[str, RunDuration],
    cores: int,
) -> EvaluationPlan:
    """Plans runs of any kind; finished runs in the warehouse calibrate the estimate."""
    speed = calibrated_speed(durations)
    return EvaluationPlan(
        series={
            name: _plan_series([run for run in runs if run.series == name], speed)
            for name in series
        },
        cores=cores,
        all_s=_makespan_s(runs, speed, cores),
        left_s=_makespan_s([run for run in runs if not run.done], speed, cores),
        calibrated_by=speed.runs,
    )


def plan_evaluation(
    preset: Preset,
    warehouse: Warehouse,
    cores: int,
    *,
    only: Sequence[Series] = tuple(Series),
    profiles: Sequence[Profile] = (Profile.PAPER,),
    source: TraceSource = SYNTHETIC,
    reaction: RetrieveBehaviour = LECTURE_RETRIEVES,
) -> EvaluationPlan:
    """Plans the runs that `evaluate` would carry out. Imported posts are counted by `evaluate`:
    before its first run, the plan also has the networks that it will leave out."""
    posts = prepare_posts(warehouse, source, None)
    posts = posts and posts.thin(preset, source.one_in)
    wanted = fitting_scenarios(make_scenarios(preset, only, profiles, reaction), posts)
    durations = RunResults(warehouse).durations()
    counted = source.posts is None or posts is not None
    done = (
        _have_results(warehouse, durations.keys(), preset, wanted, posts, source)
        if counted
        else [False] * len(wanted)
    )
    runs = [
        PlannedCost(each.kind.value, estimate_cost(each), ended)
        for each, ended in zip(wanted, done, strict=True)
    ]
    return make_plan(runs, [kind.value for kind in Series if kind in only], durations, cores)


def _have_results(
    warehouse: Warehouse,
    there: Collection[str],
    preset: Preset,
    wanted: Sequence[Scenario],
    posts: PostsInput | None,
    source: TraceSource,
) -> list[bool]:
    """Whether each run has a result. Run ids depend on the traces: without traces, none has."""
    traces = find_traces(warehouse, preset, wanted, posts, source)
    if traces is None:
        return [False] * len(wanted)
    return [run.run_id in there for run in plan_runs(wanted, traces.table_path("traces"))]


def _plan_series(runs: Sequence[PlannedCost], speed: MachineSpeed) -> SeriesPlan:
    return SeriesPlan(
        runs=len(runs),
        done=sum(run.done for run in runs),
        core_s=sum(speed.estimate_s(run.cost) for run in runs),
    )


def _makespan_s(runs: Sequence[PlannedCost], speed: MachineSpeed, cores: int) -> float:
    """Duration of runs in the order of the sweep, longest first."""
    costs = sorted((run.cost for run in runs), key=lambda cost: -cost.seconds)
    return makespan_s(map(speed.estimate_s, costs), cores)
