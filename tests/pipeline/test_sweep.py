"""The sweep: every run is executed once, also after failures and interruptions (P5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.pipeline.planned import STORY, a_few, planned, result, timeless
from tests.sim.runs import insert, trace
from thyme.pipeline.sweep.presets import (
    PAPER,
    QUICK,
    make_scenario_or_none,
    make_scenarios,
    parse_series,
)
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.runner import sweep
from thyme.pipeline.sweep.task import (
    FAILURE_SUFFIX,
    MEASURES_SUFFIX,
    PlannedRun,
    ResultRow,
    completed_runs,
    simulate,
)
from thyme.pipeline.warehouse import WarehouseError
from thyme.sim.scenario import Series, Substrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kept(folder: Path, run: PlannedRun) -> ResultRow:
    [row] = pq.read_table(folder / f"{run.run_id}.parquet").to_pylist()
    return timeless(row)


def measures_in(folder: Path, run: PlannedRun) -> dict[str, float]:
    """The measures of a run in their file."""
    lines = (folder / f"{run.run_id}{MEASURES_SUFFIX}").read_bytes().splitlines()
    rows = [msgspec.json.decode(line) for line in lines]
    assert {row["run_id"] for row in rows} == {run.run_id}
    return {row["measure"]: row["value"] for row in rows}


def test_p5_each_run_leaves_what_it_comes_to_and_is_not_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    runs, seen = a_few(tmp_path / "traces"), list[SweepProgress]()
    folder = tmp_path / "runs"

    first = sweep(spark, runs, folder, seen.append)
    again = sweep(spark, runs, folder)

    assert (first.found, first.ran, first.failures) == (0, 7, [])
    assert [kept(folder, run) for run in runs] == [result(run) for run in runs]
    assert [measures_in(folder, run) for run in runs] == [simulate(run).measures for run in runs]
    assert (seen[-1].done, seen[-1].total, seen[-1].remaining_s) == (7, 7, 0.0)
    assert first.simulating_s > 0
    assert first.overhead is not None
    assert (again.found, again.ran, again.overhead) == (7, 0, None)


def test_p5_a_run_that_raises_is_written_down_and_stops_nobody(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The trace has an operation after the end of the scenario's operations."""
    late = trace(4, *STORY.operations, insert(25, 0, "z"))
    bad = planned(tmp_path / "bad", story=late)
    good = planned(tmp_path / "good")
    folder = tmp_path / "runs"

    swept = sweep(spark, [bad, good], folder)

    [failure] = swept.failures
    assert failure.run_id == bad.run_id
    assert "later than the operations" in failure.error
    assert "Traceback" in failure.trace_back
    assert completed_runs(folder) == {good.run_id}
    # Failed runs are executed again; completed ones are not.
    again = sweep(spark, [bad, good], folder)
    assert (again.found, again.ran, len(again.failures)) == (1, 1, 1)
    assert len(list(folder.glob(f"*{FAILURE_SUFFIX}"))) == 1


def test_a_folder_that_cannot_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")

    with pytest.raises(WarehouseError, match="cannot be written"):
        sweep(spark, [], file / "runs")


def test_a_half_written_result_is_not_taken_for_one(tmp_path: Path) -> None:
    (tmp_path / ".some-run.parquet.1234").write_bytes(b"half")
    (tmp_path / "whole.parquet").write_bytes(b"")
    (tmp_path / "whole.measures.jsonl").write_bytes(b"")
    (tmp_path / "without-measures.parquet").write_bytes(b"")
    (tmp_path / "without-result.measures.jsonl").write_bytes(b"")

    assert completed_runs(tmp_path) == {"whole"}


def test_a_name_says_what_the_run_is_and_changes_with_its_inputs(tmp_path: Path) -> None:
    run = planned(tmp_path / "a")
    moved = planned(tmp_path / "b")
    other = planned(tmp_path / "c", story=trace(4, insert(1, 0, "a")))

    assert run.run_id.startswith("static-004-ls-paper-4-t1-r1-")
    assert moved.run_id == run.run_id
    assert other.run_id != run.run_id


def test_s16_the_paper_preset_has_270_static_runs_of_15_per_point() -> None:
    static = make_scenarios(PAPER, [Series.STATIC])

    assert len(static) == 6 * 3 * 15
    assert {(each.topology, each.seed) for each in static} == {
        (topology, seed) for topology in range(1, 6) for seed in range(1, 4)
    }
    assert {each.kind for each in make_scenarios(PAPER)} == set(Series)
    assert {each.substrate for each in make_scenarios(QUICK)} == set(Substrate)


def test_what_the_simulator_refuses_is_left_out() -> None:
    assert make_scenario_or_none(substrate=Substrate.LS, nodes=0) is None
    assert make_scenario_or_none(substrate=Substrate.LS, nodes=4) is not None


def test_series_are_chosen_by_name() -> None:
    assert parse_series("crash, static") == (Series.STATIC, Series.CRASH)
    assert parse_series(None) == tuple(Series)
    with pytest.raises(ValueError, match="walking"):
        parse_series("walking")
