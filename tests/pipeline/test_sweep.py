"""The sweep: every run is executed once, also after failures and interruptions (P5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.buckets import bucket_settings
from tests.pipeline.planned import STORY, TIMES, a_few, in_order, planned, result
from tests.pipeline.test_evaluate import TINY
from tests.sim.runs import insert, trace
from thyme.pipeline.evaluate import evaluate
from thyme.pipeline.sweep.presets import (
    PAPER,
    QUICK,
    make_scenario_or_none,
    make_scenarios,
    parse_series,
)
from thyme.pipeline.sweep.progress import SweepProgress
from thyme.pipeline.sweep.results import RunResults
from thyme.pipeline.sweep.run_schemas import RUN_PART, RUN_TABLES
from thyme.pipeline.sweep.runner import (
    TASK_S_MAX,
    TASKS_PER_CORE_LEFT,
    SweepError,
    group_runs,
    sweep,
)
from thyme.pipeline.sweep.runs.planned_run import (
    ENDED,
    FAILED,
    PlannedRun,
    ResultRow,
    failed_run,
)
from thyme.pipeline.sweep.simulation_process import RunLimits
from thyme.pipeline.sweep.spark_task import PackedRun, write_part
from thyme.pipeline.warehouse import Stage, Warehouse
from thyme.pipeline.warehouse_copy import local_copy
from thyme.report.tables import STAGES, read_tables
from thyme.sim.scenario import Series, Substrate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def kept(stage: Stage, runs: list[PlannedRun]) -> list[dict[str, list[ResultRow]]]:
    """The flat tables of each run, as `result` has them."""
    found: dict[str, dict[str, list[ResultRow]]] = {
        run.run_id: {name: [] for name in RUN_TABLES} for run in runs
    }
    for name, schema in RUN_TABLES.items():
        tables = [pq.read_table(file) for file in stage.table_files(name)]
        assert {tuple(table.column_names) for table in tables} == {tuple(schema.names)}
        for row in (row for table in tables for row in table.to_pylist()):
            found[row.pop("run_id")][name].append(
                {column: value for column, value in row.items() if column not in TIMES}
            )
    return [in_order(found[run.run_id]) for run in runs]


def test_p5_each_run_leaves_its_tables_and_is_not_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    """P10: the tables are flat and have few files; the files of single runs do not stay."""
    runs, seen = a_few(tmp_path / "traces"), list[SweepProgress]()
    results = RunResults(Warehouse(tmp_path / "w"))

    first = sweep(spark, runs, results, seen.append)
    parts = results.parts(ENDED)
    stage = results.compact(spark)
    again = sweep(spark, runs, results)

    assert (first.found, first.ran, first.failures) == (0, 7, [])
    assert parts.keys() == results.completed() == {run.run_id for run in runs}
    assert stage is not None
    assert kept(stage, runs) == [result(run) for run in runs]
    assert {len(facts.files) for facts in stage.manifest.tables.values()} == {1}
    assert list((tmp_path / "w" / "sweep").iterdir()) == []
    assert (seen[-1].done, seen[-1].total, seen[-1].remaining_s) == (7, 7, 0.0)
    assert first.simulating_s > 0
    assert first.overhead is not None
    assert (again.found, again.ran, again.overhead) == (7, 0, None)


def test_p10_new_runs_join_those_that_were_there(spark: SparkSession, tmp_path: Path) -> None:
    runs = [planned(tmp_path / "traces", topology=topology) for topology in (1, 2, 3)]
    results = RunResults(Warehouse(tmp_path / "w"))
    sweep(spark, runs[:1], results)
    results.compact(spark)

    more = sweep(spark, runs, results)
    stage = results.compact(spark)

    assert (more.found, more.ran) == (1, 2)
    assert stage is not None
    assert stage.row_count("runs") == len(results.durations()) == 3
    assert kept(stage, runs) == [result(run) for run in runs]
    # Nothing is new: the stage stays.
    unchanged = results.compact(spark)
    assert unchanged is not None
    assert unchanged.manifest == stage.manifest


def test_p5_a_run_that_raises_is_written_down_and_stops_nobody(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The trace has an operation after the end of the scenario's operations."""
    late = trace(4, *STORY.operations, insert(25, 0, "z"))
    bad = planned(tmp_path / "bad", story=late)
    good = planned(tmp_path / "good")
    results = RunResults(Warehouse(tmp_path / "w"))

    swept = sweep(spark, [bad, good], results)

    [failure] = swept.failures
    assert failure.run_id == bad.run_id
    assert "later than the operations" in failure.error
    assert "Traceback" in failure.trace_back
    assert results.completed() == {good.run_id}
    # Failed runs are executed again; completed ones are not.
    again = sweep(spark, [bad, good], results)
    assert (again.found, again.ran, len(again.failures)) == (1, 1, 1)
    assert results.parts(FAILED).keys() == {bad.run_id}
    results.compact(spark)
    assert (results.completed(), len(results.failures())) == ({good.run_id}, 1)


def test_a_folder_that_cannot_be_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    run = planned(tmp_path / "traces")
    (tmp_path / "w").write_text("in the way")

    with pytest.raises(SweepError, match="the sweep stopped"):
        sweep(spark, [run], RunResults(Warehouse(tmp_path / "w")))


def test_a_half_written_result_is_not_taken_for_one(tmp_path: Path) -> None:
    job = tmp_path / "sweep" / "a-job"
    for name in (
        "_temporary/0/state=ended/run=c/part-0.parquet",
        "state=ended/run=a/part-0.parquet",
        "state=ended/run=b/.part-0.parquet.crc",
        "state=failed/run=d/part-0.parquet",
    ):
        (job / name).parent.mkdir(parents=True)
        (job / name).write_bytes(b"")
    results = RunResults(Warehouse(tmp_path))

    assert results.parts(ENDED).keys() == {"a"}
    assert results.parts(FAILED).keys() == {"d"}


def test_p5_a_task_that_is_repeated_leaves_the_result_that_is_there(tmp_path: Path) -> None:
    """Spark repeats a task whose executor died, even if it had written its result."""
    job, results = tmp_path / "sweep" / "a-job", RunResults(Warehouse(tmp_path))

    for error in ("first", "second"):
        write_part(job, pa.Table.from_pylist([failed_run("a-run", error)], RUN_PART))
    write_part(job, pa.Table.from_pylist([failed_run("another", "none of both")], RUN_PART))

    assert [each.error for each in results.failures()] == ["first", "none of both"]
    assert [file.name for file in job.rglob("*") if file.is_file()] == 2 * ["part-0.parquet"]


@given(st.lists(st.floats(0.01, 100.0), max_size=60), st.integers(1, 16))
def test_p5_short_runs_share_a_task_and_cores_have_work_to_the_end(
    costs: list[float], cores: int
) -> None:
    packed = [PackedRun(str(n), b"", None, RunLimits(), cost) for n, cost in enumerate(costs)]
    groups = group_runs(packed, cores)
    assert [run for group in groups for run in group] == packed
    for number, group in enumerate(groups):
        took_s = sum(run.estimated_s for run in group)
        left_s = sum(run.estimated_s for later in groups[number:] for run in later)
        if len(group) > 1:
            assert took_s <= TASK_S_MAX
            assert took_s <= left_s / (TASKS_PER_CORE_LEFT * cores) + 1e-6


def test_p5_runs_of_a_second_do_not_have_a_task_each() -> None:
    packed = [PackedRun(str(n), b"", None, RunLimits(), 1.0) for n in range(1000)]
    assert len(group_runs(packed, 2)) < 150


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


def test_p11_executors_write_to_any_file_system_and_a_report_can_be_drawn_from_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The warehouse is a bucket, the traces are in it, and the default file system is another."""
    (tmp_path / "bucket").mkdir()
    with bucket_settings(spark, "runs", tmp_path / "bucket") as uri:
        found = evaluate(spark, TINY, Warehouse(f"{uri}/w"), only=[Series.STATIC])
        again = evaluate(spark, TINY, Warehouse(f"{uri}/w"), only=[Series.STATIC])
        folder = local_copy(Warehouse(f"{uri}/w"), STAGES, tmp_path / "report")

    assert found.sweep_result.failures == []
    assert (found.runs.row_count("runs"), again.sweep_result.found) == (3, 3)
    assert found.runs.folder == f"{uri}/w/runs"
    assert read_tables(folder).tables["runs"].num_rows == 3
