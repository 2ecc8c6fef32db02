"""The evaluation of encounters: runs of every sweep, points, verdicts, figures (P5–P7, U8)."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from thyme.cli import main
from thyme.pipeline.encounters.evaluate import evaluate_encounters, plan_encounter_evaluation
from thyme.pipeline.encounters.presets import PAPER, PRESETS, QUICK, plan_encounters
from thyme.pipeline.sweep.runs.encounter_run import EncounterRun, simulate
from thyme.pipeline.sweep.runs.run_kinds import AnyRun
from thyme.pipeline.sweep.simulation_process import RunLimits, SimulationSlot
from thyme.pipeline.warehouse import Warehouse
from thyme.report.encounters.claims import judge_claims
from thyme.report.encounters.points import PROTOCOLS, read_points
from thyme.report.encounters.report import make_encounter_report
from thyme.sim.encounters.scenario import EncounterKind

TINY = replace(
    QUICK,
    name="tiny",
    nodes=24,
    side_m=60.0,
    time_hours=0.5,
    hours=0.5,
    sides_m=(60.0, 120.0),
    probabilities=(0.2, 0.6),
    recent_shares=(),
    seeds=2,
    areas_seeds=2,
)


def test_u9_the_paper_preset_has_the_points_of_the_paper() -> None:
    runs = plan_encounters(PAPER)
    by_series = {run.series: run.scenario for run in runs}

    assert {run.parameter for run in runs if run.series == "density"} == {
        450.0 * step for step in range(1, 11)
    }
    assert by_series["time"].duration_us == 24 * 3600 * 10**6
    assert by_series["density"].nodes == by_series["rare"].nodes == 1_000
    assert by_series["lists"].nodes == 100
    assert by_series["areas"].nodes == 10
    assert min(run.scenario.seed for run in runs) == 1


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_s16_every_point_has_five_seeds_or_more_and_every_run_its_own_id(preset: object) -> None:
    runs = plan_encounters(preset)  # type: ignore[arg-type]
    points: dict[tuple[str, str, float], set[int]] = {}
    for run in runs:
        points.setdefault((run.series, run.substrate, run.parameter), set()).add(run.scenario.seed)

    assert len({run.run_id for run in runs}) == len(runs)
    assert min(map(len, points.values())) >= 5


def test_p5_an_evaluation_continues_and_gives_the_same_points(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warehouse = Warehouse(tmp_path / "w")
    only = ("time", "areas")
    part = evaluate_encounters(spark, TINY, warehouse, only=only).sweep_result
    planned = plan_encounter_evaluation(TINY, warehouse, cores=2)
    whole = evaluate_encounters(spark, TINY, warehouse)
    again = evaluate_encounters(spark, TINY, warehouse)

    assert (part.found, part.failures) == (0, [])
    assert planned.done == part.ran
    assert planned.runs == whole.sweep_result.planned == len(plan_encounters(TINY))
    assert whole.sweep_result.found == part.ran
    assert again.sweep_result.ran == 0
    assert again.metrics.fingerprint == whole.metrics.fingerprint

    points = read_points(tmp_path / "w")
    assert all(points.has(series) for series in ("time", "density", "rare", "areas"))
    assert [len(points.line("density", name, "reliability")) for name in PROTOCOLS] == [2] * 3
    lines = judge_claims(points)
    assert [line.claim for line in lines] == [f"C{number}" for number in range(38, 45)]
    report = make_encounter_report(tmp_path / "w")
    assert {"fig2.svg", "fig3a.svg", "fig3b.svg", "fig5a.svg", "fig5b.svg"} <= set(report.figures)
    page = report.page.read_text()
    assert page.count("<img") == len(report.figures)
    assert "C44" in page
    assert report.tables["points"] > 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "w"), "--json"]) == 0
    again_drawn = json.loads(capsys.readouterr().out)
    assert again_drawn["page"] == str(report.page)
    assert [line["claim"] for line in again_drawn["scorecard"]] == [line.claim for line in lines]


def test_p5_a_run_in_a_process_of_its_own_gives_the_same_row_and_a_bad_one_fails_alone() -> None:
    run = plan_encounters(TINY, ("areas",))[0]
    broken = replace(run, scenario=replace(run.scenario, kind=EncounterKind.CONTACTS))
    limits, slot = RunLimits(seconds_max=600), SimulationSlot()
    try:
        [failed] = slot.run(msgspec.json.encode(broken), "broken", None, limits).to_pylist()
        [row] = slot.run(msgspec.json.encode(run), run.run_id, None, limits).to_pylist()
    finally:
        slot.close()

    assert failed["state"] == "failed"
    assert "need a trace" in failed["error"]
    assert row["state"] == "ended"
    assert row["measures"] == simulate(run)["measures"]


def test_p5_an_encounter_run_is_one_of_the_kinds_that_a_worker_reads() -> None:
    run = plan_encounters(TINY)[0]

    assert msgspec.json.decode(msgspec.json.encode(run), type=AnyRun) == run
    assert isinstance(run, EncounterRun)


def test_the_plan_is_printed_without_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["evaluate", "--preset", "mobuser", "--plan", "--out", str(tmp_path / "w")]
    assert main(options) == 0
    assert "370 runs: about" in capsys.readouterr().out
    assert main([*options, "--json", "--only", "areas,lists"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert {name: each["runs"] for name, each in plan["series"].items()} == {
        "lists": 45, "areas": 60,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--only", "static"], "there is lists, time"),
        (["--profile", "robust"], "--profile is not for"),
        (["--posts", "w"], "--posts"),
        (["--run-timeout", "soon"], "--run-timeout is a time"),
    ],
)
def test_options_of_other_presets_are_refused(
    options: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--preset", "mobuser", "--plan", "--out", "unused", *options]) == 2
    assert problem in capsys.readouterr().err
