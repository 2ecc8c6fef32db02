"""The evaluation of encounters on Spark: runs as tasks, points, verdicts, figures (P5–P7, U8)."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from thyme.cli import main
from thyme.pipeline.encounters import evaluate as evaluation
from thyme.pipeline.encounters.evaluate import (
    FAILURE_SUFFIX,
    RUNS_FOLDER,
    evaluate_encounters,
    run_task,
)
from thyme.pipeline.encounters.presets import PAPER, PRESETS, QUICK, plan_encounters
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


def test_an_evaluation_continues_and_gives_the_same_points(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = evaluate_encounters(spark, TINY, tmp_path)
    before = (tmp_path / evaluation.POINTS_FILE).read_bytes()
    assert (found.found, found.failures) == (0, {})
    files = sorted((tmp_path / RUNS_FOLDER).glob("*.json"))
    assert len(files) == found.planned
    again = evaluate_encounters(spark, TINY, tmp_path)

    assert again.found == again.planned
    assert (tmp_path / evaluation.POINTS_FILE).read_bytes() == before

    points = read_points(tmp_path)
    assert all(points.has(series) for series in ("time", "density", "rare", "areas"))
    assert [len(points.line("density", name, "reliability")) for name in PROTOCOLS] == [2] * 3
    verdicts = judge_claims(points)
    assert [verdict.claim for verdict in verdicts] == [f"C{number}" for number in range(38, 45)]
    report = make_encounter_report(tmp_path)
    assert {"fig2", "fig3a", "fig3b", "fig5a", "fig5b"} <= set(report.figures)
    page = report.page.read_text()
    assert page.count("<svg") == len(report.figures)
    assert "C44" in page


def test_a_run_that_fails_leaves_its_error_and_a_later_success_removes_it(tmp_path: Path) -> None:
    run = plan_encounters(replace(TINY, probabilities=(), sides_m=()))[-1]
    broken = replace(run, scenario=replace(run.scenario, kind=EncounterKind.CONTACTS))
    run_task(broken, str(tmp_path))
    [error] = tmp_path.iterdir()
    assert error.name == f"{broken.run_id}{FAILURE_SUFFIX}"
    assert "need a trace" in error.read_text()

    (tmp_path / f"{run.run_id}{FAILURE_SUFFIX}").write_text("an earlier error")
    run_task(run, str(tmp_path))
    assert (tmp_path / f"{run.run_id}.json").exists()
    assert not (tmp_path / f"{run.run_id}{FAILURE_SUFFIX}").exists()


def test_the_plan_is_printed_without_spark(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--preset", "mobuser", "--plan", "--out", "unused"]) == 0
    assert "370 runs" in capsys.readouterr().out


def test_options_of_other_presets_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--preset", "mobuser", "--plan", "--out", "unused", "--only", "static"]
    assert main(["evaluate", *options]) == 2
    assert "--only" in capsys.readouterr().err
