"""P5: what runs cost is known before they run, and better once some have."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.planned import planned
from tests.sim.runs import insert, trace
from thyme.pipeline.costs import Pace, Work, spread_s, work_of
from thyme.pipeline.planning import plan_evaluation
from thyme.pipeline.presets import PAPER, QUICK
from thyme.pipeline.progress import Watch
from thyme.pipeline.runs import FAILED, PlannedRun
from thyme.pipeline.sweep import in_order
from thyme.pipeline.warehouse import Warehouse
from thyme.sim.scenario import Kind, Substrate

LONG_US = 720_000_000


def work(substrate: Substrate, nodes: int = 100, kind: Kind = Kind.STATIC) -> Work:
    return Work(kind, substrate, nodes, LONG_US)


def ended(folder: Path, run: PlannedRun, times: float) -> None:
    """Leaves as much of a result as tells that the run took so many times what the laws say."""
    it = work_of(run.scenario)
    row = {"series": it.kind.value, "substrate": it.substrate.value, "nodes": it.nodes}
    spent = {"end_us": it.lasts_us, "wall_s": times * it.seconds, "cpu_s": 0.0}
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.Table.from_pylist([row | spent]), folder / f"{run.run_id}.parquet")


def test_the_longest_come_first_but_for_one_of_each_substrate(tmp_path: Path) -> None:
    def of(substrate: Substrate, nodes: int) -> PlannedRun:
        return planned(tmp_path, substrate, story=trace(nodes, insert(1, 0, "a")))

    small, middle, large = (of(Substrate.LS, nodes) for nodes in (4, 25, 64))
    other, another = (of(Substrate.ES, nodes) for nodes in (9, 16))

    runs = [middle, small, another, large, other]
    assert in_order(runs, known=False) == [small, other, large, middle, another]
    assert in_order(runs, known=True) == [large, middle, another, other, small]


def test_runs_that_ended_correct_the_estimate_for_their_substrate_first() -> None:
    pace = Pace()
    assert pace.seconds(work(Substrate.ES)) == work(Substrate.ES).seconds
    pace.learn(work(Substrate.LS, 16), 3 * work(Substrate.LS, 16).seconds)
    pace.learn(work(Substrate.DCS, 36), 5 * work(Substrate.DCS, 36).seconds)

    def slower(substrate: Substrate) -> float:
        return pace.seconds(work(substrate)) / work(substrate).seconds

    assert slower(Substrate.LS) == pytest.approx(3)
    assert slower(Substrate.DCS) == pytest.approx(5)
    assert 3 < slower(Substrate.ES) < 5


@given(st.lists(st.floats(0, 100)), st.integers(1, 5))
def test_cores_take_one_run_after_the_other(seconds: list[float], cores: int) -> None:
    found = spread_s(seconds, cores)
    even, longest = sum(seconds) / cores, max(seconds, default=0.0)
    assert max(even, longest) <= found + 1e-9
    assert found <= even + longest + 1e-9
    assert spread_s(seconds, 1) == pytest.approx(sum(seconds))


def test_the_time_left_goes_by_the_runs_that_have_ended(tmp_path: Path) -> None:
    folder, now_s = tmp_path / "runs", [0.0]
    old, *runs = [planned(tmp_path, topology=topology) for topology in (1, 2, 3, 4)]
    alone_s = work_of(old.scenario).seconds
    ended(folder, old, 1.0)
    watch = Watch(4, runs, folder, cores=1, clock=lambda: now_s[0])

    first = watch.look()
    now_s[0] = alone_s / 2
    later = watch.look()
    ended(folder, runs[0], 4.0)
    (folder / f"{runs[1].run_id}{FAILED}").write_text("")
    now_s[0] = 4 * alone_s
    then = watch.look()
    ended(folder, runs[2], 4.0)

    assert (first.found, first.done, first.total) == (1, 1, 4)
    assert first.left_s == pytest.approx(3 * alone_s)
    # The first of them has half its time behind it.
    assert later.left_s == pytest.approx(2.5 * alone_s)
    assert (then.done, then.failed) == (3, 1)
    # Two runs took five times what one was said to.
    assert then.left_s == pytest.approx(2.5 * alone_s)
    assert (watch.look().left_s, watch.look().done) == (0.0, 4)


def test_results_of_another_form_teach_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"run_id": ["old"]}), tmp_path / "old.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    run = planned(tmp_path / "traces")
    assert Watch(1, [run], tmp_path, 1).look().left_s > 0


def test_s16_the_paper_preset_is_planned_without_being_run(tmp_path: Path) -> None:
    plan = plan_evaluation(PAPER, Warehouse(tmp_path / "none"), cores=2)

    assert {name: each.runs for name, each in plan.series.items()} == {
        "static": 270, "crash": 180, "transient": 180, "mobile": 135,
    }  # fmt: skip
    assert (plan.runs, plan.done, plan.calibrated_by) == (765, 0, 0)
    assert plan.left_s == plan.all_s == pytest.approx(plan.core_s / 2, rel=0.01)
    assert not (tmp_path / "none").exists()
    assert plan.all_s > 50 * plan_evaluation(QUICK, Warehouse(tmp_path), cores=2).all_s
