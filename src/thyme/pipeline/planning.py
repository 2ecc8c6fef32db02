"""Planning: how large an evaluation is and how long it will take, without running it.

Nothing is simulated and Spark is not started. Runs that have a result in the warehouse are counted,
and correct the estimate for this machine.
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
    """A series of an evaluation."""

    runs: int
    done: int
    core_s: float
    """What all of its runs take, one after the other."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """An evaluation before it is run."""

    series: dict[str, SeriesPlan]
    cores: int
    all_s: float
    """How long all runs take on so many cores."""
    left_s: float
    """How long those take that are not done."""
    calibrated_by: int
    """How many ended runs the estimate goes by; without any, by the machine of costs.LAWS."""

    @property
    def runs(self) -> int:
        """How many there are."""
        return sum(each.runs for each in self.series.values())

    @property
    def done(self) -> int:
        """How many have ended well."""
        return sum(each.done for each in self.series.values())

    @property
    def core_s(self) -> float:
        """What all runs take, one after the other."""
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
    """What `evaluate` would do."""
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
    """Which runs have results. A run is known by its trace, too: without traces, none has."""
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
    """In the order in which the sweep takes them."""
    works = sorted(map(work_of, runs), key=lambda work: -work.seconds)
    return spread_s(map(pace.seconds, works), cores)
