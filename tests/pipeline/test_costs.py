"""P5: the costs of runs are estimated before they run, and better once some have ended."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.planned import planned
from tests.sim.runs import insert, trace
from thyme.pipeline.sweep.plan import plan_evaluation
from thyme.pipeline.sweep.presets import PAPER, QUICK
from thyme.pipeline.sweep.progress import ProgressMonitor
from thyme.pipeline.sweep.results import JobNews, RunDuration
from thyme.pipeline.sweep.runner import SweepLimits, longest_first
from thyme.pipeline.sweep.runs.cost_model import MachineSpeed, RunCost, estimate_cost, makespan_s
from thyme.pipeline.sweep.runs.planned_run import PlannedRun
from thyme.pipeline.warehouse import Warehouse
from thyme.sim.scenario import Scenario, Substrate


def work(substrate: Substrate, nodes: int = 100) -> RunCost:
    return estimate_cost(Scenario(substrate=substrate, nodes=nodes))


def ended(run: PlannedRun, times: float) -> dict[str, RunDuration]:
    """The duration of a run, with a given ratio of the measured to the estimated time."""
    cost = run.cost
    took = RunDuration(cost=cost, wall_s=times * cost.seconds, cpu_s=0.0, compiled=True)
    return {run.run_id: took}


def test_the_longest_come_first_but_for_one_of_each_substrate(tmp_path: Path) -> None:
    def of(substrate: Substrate, nodes: int) -> PlannedRun:
        return planned(tmp_path, substrate, story=trace(nodes, insert(1, 0, "a")))

    small, middle, large = (of(Substrate.LS, nodes) for nodes in (4, 25, 64))
    other, another = (of(Substrate.ES, nodes) for nodes in (9, 16))

    runs = [middle, small, another, large, other]
    assert longest_first(runs, calibrated=False) == [small, other, large, middle, another]
    assert longest_first(runs, calibrated=True) == [large, middle, another, other, small]


def test_runs_that_ended_correct_the_estimate_for_their_substrate_first() -> None:
    pace = MachineSpeed()
    assert pace.estimate_s(work(Substrate.ES)) == work(Substrate.ES).seconds
    pace.calibrate(work(Substrate.LS, 16), 3 * work(Substrate.LS, 16).seconds)
    pace.calibrate(work(Substrate.DCS, 36), 5 * work(Substrate.DCS, 36).seconds)

    def slower(substrate: Substrate) -> float:
        return pace.estimate_s(work(substrate)) / work(substrate).seconds

    assert slower(Substrate.LS) == pytest.approx(3)
    assert slower(Substrate.DCS) == pytest.approx(5)
    assert 3 < slower(Substrate.ES) < 5


@given(st.lists(st.floats(0, 100)), st.integers(1, 5))
def test_cores_take_one_run_after_the_other(seconds: list[float], cores: int) -> None:
    found = makespan_s(seconds, cores)
    even, longest = sum(seconds) / cores, max(seconds, default=0.0)
    assert max(even, longest) <= found + 1e-9
    assert found <= even + longest + 1e-9
    assert makespan_s(seconds, 1) == pytest.approx(sum(seconds))


def test_the_time_left_goes_by_the_runs_that_have_ended(tmp_path: Path) -> None:
    now_s = [0.0]
    old, *runs = [planned(tmp_path, topology=topology) for topology in (1, 2, 3, 4)]
    alone_s = old.cost.seconds
    news = JobNews({}, set())

    def poll_job(known: Collection[str]) -> JobNews:
        left = {name: took for name, took in news.ended.items() if name not in known}
        return JobNews(left, news.failed - set(known))

    watch = ProgressMonitor(4, runs, poll_job, 1, ended(old, 1.0), clock=lambda: now_s[0])

    first = watch.poll()
    now_s[0] = alone_s / 2
    later = watch.poll()
    news.ended.update(ended(runs[0], 4.0))
    news.failed.add(runs[1].run_id)
    now_s[0] = 4 * alone_s
    then = watch.poll()
    news.ended.update(ended(runs[2], 4.0))

    assert (first.found, first.done, first.total) == (1, 1, 4)
    assert first.remaining_s == pytest.approx(3 * alone_s)
    # The first run has half its time behind it.
    assert later.remaining_s == pytest.approx(2.5 * alone_s)
    assert (then.done, then.failed) == (3, 1)
    # Two runs took five times the estimate.
    assert then.remaining_s == pytest.approx(2.5 * alone_s)
    assert (watch.poll().remaining_s, watch.poll().done) == (0.0, 4)


def test_a_run_may_take_many_times_its_estimate_before_it_is_stopped(tmp_path: Path) -> None:
    run = planned(tmp_path)
    estimate_s = run.cost.seconds

    limits = SweepLimits().for_run(run)
    assert limits.cpu_seconds_max == pytest.approx(600 + 20 * estimate_s)
    assert limits.seconds_max == pytest.approx(10 * (600 + 20 * estimate_s))
    assert SweepLimits(seconds_max=7).for_run(run).seconds_max == 7


def test_s16_the_paper_preset_is_planned_without_being_run(tmp_path: Path) -> None:
    plan = plan_evaluation(PAPER, Warehouse(tmp_path / "none"), cores=2)

    assert {name: each.runs for name, each in plan.series.items()} == {
        "static": 270, "crash": 180, "transient": 180, "mobile": 135,
    }  # fmt: skip
    assert (plan.runs, plan.done, plan.calibrated_by) == (765, 0, 0)
    assert plan.left_s == plan.all_s == pytest.approx(plan.core_s / 2, rel=0.01)
    assert not (tmp_path / "none").exists()
    assert plan.all_s > 50 * plan_evaluation(QUICK, Warehouse(tmp_path), cores=2).all_s
