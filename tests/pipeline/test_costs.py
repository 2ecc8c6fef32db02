"""P5: the costs of runs are estimated before they run, and better once some have ended."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.planned import planned
from tests.sim.runs import insert, trace
from thyme.pipeline.sweep.cost_model import MachineSpeed, RunSize, makespan_s, run_size
from thyme.pipeline.sweep.plan import plan_evaluation
from thyme.pipeline.sweep.presets import PAPER, QUICK
from thyme.pipeline.sweep.progress import ProgressMonitor
from thyme.pipeline.sweep.runner import longest_first
from thyme.pipeline.sweep.task import FAILURE_SUFFIX, MEASURES_SUFFIX, PlannedRun
from thyme.pipeline.warehouse import Warehouse
from thyme.sim.scenario import Series, Substrate

LONG_US = 720_000_000


def work(substrate: Substrate, nodes: int = 100, kind: Series = Series.STATIC) -> RunSize:
    return RunSize(kind, substrate, nodes, LONG_US)


def ended(folder: Path, run: PlannedRun, times: float) -> None:
    """Writes a part of a result, with a given ratio of the measured to the estimated time."""
    it = run_size(run.scenario)
    row = {"series": it.kind.value, "substrate": it.substrate.value, "nodes": it.nodes}
    spent = {"end_us": it.lasts_us, "wall_s": times * it.seconds, "cpu_s": 0.0}
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([row | spent]), folder / f"{run.run_id}.parquet")
    (folder / f"{run.run_id}{MEASURES_SUFFIX}").touch()


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
    folder, now_s = tmp_path / "runs", [0.0]
    old, *runs = [planned(tmp_path, topology=topology) for topology in (1, 2, 3, 4)]
    alone_s = run_size(old.scenario).seconds
    ended(folder, old, 1.0)
    watch = ProgressMonitor(4, runs, folder, cores=1, clock=lambda: now_s[0])

    first = watch.poll()
    now_s[0] = alone_s / 2
    later = watch.poll()
    ended(folder, runs[0], 4.0)
    (folder / f"{runs[1].run_id}{FAILURE_SUFFIX}").write_text("")
    now_s[0] = 4 * alone_s
    then = watch.poll()
    ended(folder, runs[2], 4.0)

    assert (first.found, first.done, first.total) == (1, 1, 4)
    assert first.remaining_s == pytest.approx(3 * alone_s)
    # The first run has half its time behind it.
    assert later.remaining_s == pytest.approx(2.5 * alone_s)
    assert (then.done, then.failed) == (3, 1)
    # Two runs took five times the estimate.
    assert then.remaining_s == pytest.approx(2.5 * alone_s)
    assert (watch.poll().remaining_s, watch.poll().done) == (0.0, 4)


def test_results_of_another_form_teach_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"run_id": ["old"]}), tmp_path / "old.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    for name in ("old", "broken"):
        (tmp_path / f"{name}{MEASURES_SUFFIX}").touch()
    run = planned(tmp_path / "traces")
    assert ProgressMonitor(1, [run], tmp_path, 1).poll().remaining_s > 0


def test_s16_the_paper_preset_is_planned_without_being_run(tmp_path: Path) -> None:
    plan = plan_evaluation(PAPER, Warehouse(tmp_path / "none"), cores=2)

    assert {name: each.runs for name, each in plan.series.items()} == {
        "static": 270, "crash": 180, "transient": 180, "mobile": 135,
    }  # fmt: skip
    assert (plan.runs, plan.done, plan.calibrated_by) == (765, 0, 0)
    assert plan.left_s == plan.all_s == pytest.approx(plan.core_s / 2, rel=0.01)
    assert not (tmp_path / "none").exists()
    assert plan.all_s > 50 * plan_evaluation(QUICK, Warehouse(tmp_path), cores=2).all_s
