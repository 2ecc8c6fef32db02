"""The evaluation from traces to a report, in small (P3, P5–P7, P10, C21)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.golden.frozen import Frozen
from tests.golden.tables import digests_of_tables
from tests.pipeline.planned import STORY
from tests.sim.runs import SHORT
from thyme.cli import main
from thyme.cli.evaluate import cores_of
from thyme.pipeline.evaluate import TraceOf, evaluate, make_traces, plan, timeline, trace_counts
from thyme.pipeline.planning import plan_evaluation
from thyme.pipeline.presets import Preset, scenarios
from thyme.pipeline.schemas import POSTS
from thyme.pipeline.warehouse import Warehouse
from thyme.report.report import make_report
from thyme.sim.scenario import Kind
from thyme.traces.match import Match, MatchConfig
from thyme.traces.rules import Rules, match_trace
from thyme.traces.table import read_trace

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TINY = Preset(
    name="tiny",
    sizes=(4,),
    nodes=4,
    crashing=(0.5,),
    transient=(),
    speeds_m_s=(),
    topologies=1,
    repetitions=1,
    timeline=SHORT,
    posts=300,
)


def test_an_evaluation_leaves_tables_and_a_report_and_is_not_made_twice(
    spark: SparkSession, tmp_path: Path, frozen: Frozen
) -> None:
    stages: list[str] = []
    found = evaluate(
        spark, TINY, Warehouse(tmp_path), only=[Kind.STATIC, Kind.CRASH], on_stage=stages.append
    )
    again = evaluate(spark, TINY, Warehouse(tmp_path), only=[Kind.STATIC, Kind.CRASH])
    report = make_report(tmp_path)
    planned = plan_evaluation(TINY, Warehouse(tmp_path), 2, only=[Kind.STATIC, Kind.CRASH])

    assert stages == ["making traces", "simulating 6 runs", "measuring"]
    assert (found.swept.ran, found.swept.failures, found.metrics.rows("runs")) == (6, [], 6)
    assert found.metrics.made_now
    assert (again.swept.found, again.swept.ran, again.metrics.made_now) == (6, 0, False)
    assert (planned.runs, planned.done, planned.left_s, planned.calibrated_by) == (6, 6, 0.0, 6)
    lines = {line.claim: line for line in report.lines}
    assert lines["C21"].verdict == "agrees"
    assert report.tables["points"] == found.metrics.rows("points")
    frozen.check("pipeline.json", "evaluation", digests_of_tables(tmp_path))


def test_p3_traces_may_come_from_posts_in_a_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    posts = list(Match(1, MatchConfig(posts=TINY.posts, users=120)))
    rows = [(post.post_id, post.user, post.at_us, post.text, list(post.tags)) for post in posts]
    frame = spark.createDataFrame(rows, POSTS)
    theirs = Warehouse(tmp_path / "posts")
    theirs.stage("posts", {}, {}, lambda draft: draft.write("posts", frame))

    made = make_traces(Warehouse(tmp_path), TINY, scenarios(TINY, [Kind.STATIC]), spark, theirs)

    [file] = Path(made.table("traces")).glob("*.parquet")
    rules = Rules(lasts_us=SHORT.operations_us)
    assert read_trace(file, 4) == match_trace(1, posts, 4, rules)
    assert made.manifest.inputs == {"posts": theirs.open("posts").fingerprint}


def test_runs_of_one_size_and_repetition_have_one_trace(tmp_path: Path) -> None:
    """S16: topologies and substrates differ, what users do does not; but publishers who are going
    to crash do not subscribe (S7)."""
    both, split = TraceOf(1, 4, False, 20_000_000), TraceOf(1, 4, True, 20_000_000)
    for number, which in enumerate((both, split)):
        (tmp_path / which.file).write_bytes(bytes([number]))

    runs = plan(scenarios(TINY), tmp_path)

    assert {(run.scenario.kind, Path(run.trace).name) for run in runs} == {
        (Kind.STATIC, both.file),
        (Kind.CRASH, split.file),
    }
    assert len({run.run_id for run in runs}) == len(runs) == 6


def test_c21_operations_are_counted_by_kind_and_time() -> None:
    counts = trace_counts({7: STORY}).to_pylist()
    bins = timeline({7: STORY}).to_pylist()

    assert {row["kind"]: row["operations"] for row in counts} == {
        "insert": 5, "delete": 1, "subscribe": 3, "unsubscribe": 1,
    }  # fmt: skip
    assert {(row["at_s"], row["kind"]): row["operations"] for row in bins} == {
        (0, "insert"): 3, (0, "delete"): 1, (0, "subscribe"): 3, (0, "unsubscribe"): 1,
        (10, "insert"): 2,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--preset", "slow"], "--preset 'slow' is unknown; there is quick, paper"),
        (["--preset", "quick", "--profile", "x"], "--profile 'x' is unknown"),
        (["--preset", "quick", "--only", "static,walking"], "--only 'walking' is unknown"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", *words, "--out", str(tmp_path)]) == 2
    assert complaint in capsys.readouterr().err


def test_the_command_says_how_long_an_evaluation_takes_before_it_is_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", "--preset", "paper", "--plan", "--out", str(tmp_path / "w")]

    assert main([*words, "--master", "local[4]"]) == 0
    out = capsys.readouterr().out
    assert "static      270 runs" in out
    assert "h on 4 cores" in out
    assert main([*words, "--only", "crash", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["runs"], found["done"], list(found["series"])) == (180, 0, ["crash"])
    assert found["left_s"] == found["all_s"] > 0
    assert not (tmp_path / "w").exists()


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[2,4]", 2), ("spark://head:7077", 1)],
)
def test_a_master_says_how_many_cores_it_has(master: str, cores: int) -> None:
    assert cores_of(master) == cores
    assert cores_of(None) == cores_of("local[*]") >= 1
