"""Plan: the number of runs of an evaluation and its estimated duration, without running it.

Entry point: `plan_evaluation`. It neither simulates nor starts Spark. Runs with a result in the
warehouse count as done and calibrate the estimate for this machine.
Clauses: P5, S16.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from thyme.pipeline.costs import Pace, spread_s, work_of
from thyme.pipeline.evaluate import RUNS, found_traces, plan
from thyme.pipeline.presets import Preset, scenarios
from thyme.pipeline.progress import learnt
from thyme.pipeline.runs import done_in
from thyme.pipeline.warehouse import Warehouse
from thyme.sim.scenario import Kind, Profile, Scenario


class SeriesPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The plan of one series."""

    runs: int
    done: int
    core_s: float
    """Total duration of its runs on one core."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
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


def plan_evaluation(
    preset: Preset,
    warehouse: Warehouse,
    cores: int,
    *,
    only: Sequence[Kind] = tuple(Kind),
    profiles: Sequence[Profile] = (Profile.PAPER,),
    posts: Warehouse | None = None,
) -> Plan:
    """Plans the runs that `evaluate` would carry out."""
    wanted = scenarios(preset, only, profiles)
    pace = learnt(warehouse.path / RUNS)
    done = _done(warehouse, preset, wanted, posts)
    left = [each for each, ended in zip(wanted, done, strict=True) if not ended]
    return Plan(
        series={kind.value: _series(kind, wanted, done, pace) for kind in Kind if kind in only},
        cores=cores,
        all_s=_spread_s(wanted, pace, cores),
        left_s=_spread_s(left, pace, cores),
        calibrated_by=pace.runs,
    )


def _done(
    warehouse: Warehouse, preset: Preset, wanted: Sequence[Scenario], posts: Warehouse | None
) -> list[bool]:
    """Whether each run has a result. Run ids depend on the traces: without traces, none has."""
    traces = found_traces(warehouse, preset, wanted, posts)
    if traces is None:
        return [False] * len(wanted)
    there = done_in(warehouse.path / RUNS)
    return [run.run_id in there for run in plan(wanted, Path(traces.table("traces")))]


def _series(kind: Kind, wanted: Sequence[Scenario], done: Sequence[bool], pace: Pace) -> SeriesPlan:
    mine = [(each, ended) for each, ended in zip(wanted, done, strict=True) if each.kind is kind]
    return SeriesPlan(
        runs=len(mine),
        done=sum(ended for _, ended in mine),
        core_s=sum(pace.seconds(work_of(each)) for each, _ in mine),
    )


def _spread_s(runs: Sequence[Scenario], pace: Pace, cores: int) -> float:
    """Duration of runs in the order of the sweep, longest first."""
    works = sorted(map(work_of, runs), key=lambda work: -work.seconds)
    return spread_s(map(pace.seconds, works), cores)
