"""The evaluation of Thyme-Infrastructure on Spark, by the sweep of the other presets (P5–P7)."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from thyme.cli import main
from thyme.cli.pipeline.infra_presets import INFRA_SERIES, InfraPresets
from thyme.model.errors import OptionError
from thyme.pipeline.infra.evaluate import evaluate_infra, parse_infra_series
from thyme.pipeline.infra.presets import INFRA, PRESETS, QUICK, SERIES, InfraPreset, plan_infra
from thyme.pipeline.sweep.runs.run_kinds import AnyRun
from thyme.pipeline.warehouse import Warehouse
from thyme.report.infra.points import read_points
from thyme.report.infra.report import make_infra_report

TINY = replace(
    QUICK,
    name="tiny",
    nodes=6,
    consumption_nodes=6,
    operations_s=60,
    ranking_nodes=6,
    seeds=2,
    address_shares=(0.0, 0.5, 1.0),
    nodes_per_cell=(2,),
    sizes=(5_000, 1_000_000),
    traffic_nodes=6,
    goal_nodes=6,
)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_s16_every_point_has_three_seeds_or_more_and_every_run_its_own_id(
    preset: InfraPreset,
) -> None:
    planned = plan_infra(preset)
    points: dict[tuple[str, str, float], set[int]] = {}
    for run, _ in planned:
        points.setdefault((run.series, run.variant, run.parameter), set()).add(run.seed)

    assert {run.series for run, _ in planned} == set(SERIES)
    assert len({run.run_id for run, _ in planned}) == len(planned)
    assert min(map(len, points.values())) >= 3


def test_the_preset_has_the_sizes_of_the_thesis() -> None:
    planned = plan_infra(INFRA)
    nodes = {run.series: run.experiment.nodes for run, _ in planned}

    assert nodes["addresses"] == nodes["ranking"] == nodes["traffic"] == 100
    assert nodes["consumption"] == 200
    rates = {workload.rates for run, workload in planned if run.series == "worlds" and workload}
    assert rates == {(1.0, 1.0, 1.0), (2.0, 1.0, 1.0), (5.0, 1.0, 1.0)}


def test_p5_a_run_survives_the_way_to_its_worker() -> None:
    for run, _ in plan_infra(QUICK):
        arrived = msgspec.json.decode(msgspec.json.encode(run), type=AnyRun)
        assert arrived == run
        assert arrived.run_id == run.run_id


def test_the_command_names_the_series_that_there_are() -> None:
    assert INFRA_SERIES == SERIES
    assert set(InfraPresets.presets) == set(PRESETS)
    assert parse_infra_series(None) == SERIES
    with pytest.raises(OptionError, match="'static' is unknown; there is addresses"):
        parse_infra_series("static")


def test_p5_the_sweep_runs_each_experiment_once_and_the_report_judges_all_claims(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = Warehouse(tmp_path)
    only = ("addresses", "worlds", "failover", "move", "operations", "downloads", "goal")
    found = evaluate_infra(spark, TINY, warehouse, only=only)
    assert found.sweep_result.failures == []
    assert found.sweep_result.ran == len(plan_infra(TINY, only))
    ids = {run.run_id for run, _ in plan_infra(TINY, only)}
    assert found.metrics.row_count("runs") == len(ids)

    again = evaluate_infra(spark, TINY, warehouse, only=only)
    assert (again.sweep_result.found, again.sweep_result.ran) == (found.sweep_result.planned, 0)

    points = read_points(tmp_path)
    assert [point.x for point in points.line("addresses", "infra", "station.routed")] == [0, 0.5, 1]
    report = make_infra_report(tmp_path)
    assert [line.claim for line in report.lines] == [f"C{number}" for number in range(23, 38)]
    by_claim = {line.claim: line for line in report.lines}
    assert by_claim["C24"].verdict.value == "not measured"
    assert by_claim["C30"].verdict.value == "agrees"
    assert by_claim["C33"].verdict.value == "not measured", "a line has two points or more"
    assert by_claim["C37"].verdict.value != "not measured"
    page = report.page.read_text(encoding="utf-8")
    assert "Thyme-Infrastructure" in page
    assert "V Fig. 5.14" in page
    wanted = {f"fig5-{number}.svg" for number in (3, 14, 15, 20, 23)}
    assert wanted <= set(report.figures)


def test_the_plan_counts_runs_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["evaluate", "--preset", "infra-quick", "--plan", "--out", "w", "--json"]
    assert main([*command, "--only", "move,downloads"]) == 0

    plan = json.loads(capsys.readouterr().out)
    assert set(plan["series"]) == {"move", "downloads"}
    assert plan["runs"] == sum(series["runs"] for series in plan["series"].values())


def test_options_of_other_presets_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--preset", "infra", "--profile", "robust", "--out", "w"]) == 2
    assert "--profile is not for the preset infra" in capsys.readouterr().err
