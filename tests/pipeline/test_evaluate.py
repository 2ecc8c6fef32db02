"""A small evaluation, from traces to a report (P3, P5–P7, P10, C21)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import structs
from pyarrow import parquet

from tests.golden.frozen import Frozen
from tests.golden.tables import digests_of_tables
from tests.pipeline.planned import STORY
from tests.sim.runs import SHORT
from thyme.cli import main
from thyme.cli.pipeline.evaluate import local_cores
from thyme.model.errors import InputError
from thyme.pipeline.evaluate import evaluate, plan_runs
from thyme.pipeline.evaluation_traces import (
    TraceSource,
    TraceSpec,
    count_operations,
    count_operations_over_time,
    fitting_scenarios,
    make_traces,
    prepare_posts,
)
from thyme.pipeline.schemas import POSTS
from thyme.pipeline.sweep.plan import plan_evaluation
from thyme.pipeline.sweep.presets import Preset, make_scenarios
from thyme.pipeline.warehouse import Stage, Warehouse
from thyme.report.report import make_report
from thyme.sim.scenario import Series, Substrate
from thyme.traces.posts import Post
from thyme.traces.posts_to_trace import TraceRules, trace_from_posts
from thyme.traces.query_tags import QueryTags
from thyme.traces.retrieve_behaviour import RetrieveBehaviour
from thyme.traces.synthetic.football_match import FITTED_MATCHES, FootballMatch, FootballMatchConfig
from thyme.traces.trace_files import read_trace

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
        spark, TINY, Warehouse(tmp_path), only=[Series.STATIC, Series.CRASH], on_stage=stages.append
    )
    again = evaluate(spark, TINY, Warehouse(tmp_path), only=[Series.STATIC, Series.CRASH])
    report = make_report(tmp_path)
    planned = plan_evaluation(TINY, Warehouse(tmp_path), 2, only=[Series.STATIC, Series.CRASH])

    assert stages == ["making traces", "simulating 6 runs", "measuring"]
    assert (
        found.sweep_result.ran,
        found.sweep_result.failures,
        found.metrics.row_count("runs"),
    ) == (6, [], 6)
    assert found.metrics.built_now
    assert (again.sweep_result.found, again.sweep_result.ran, again.metrics.built_now) == (
        6,
        0,
        False,
    )
    assert (planned.runs, planned.done, planned.left_s, planned.calibrated_by) == (6, 6, 0.0, 6)
    lines = {line.claim: line for line in report.lines}
    assert lines["C21"].verdict == "agrees"
    assert report.tables["points"] == found.metrics.row_count("points")
    frozen.check("pipeline.json", "evaluation", digests_of_tables(tmp_path))


def test_p3_traces_may_come_from_posts_in_a_warehouse(spark: SparkSession, tmp_path: Path) -> None:
    posts = list(FootballMatch(1, FootballMatchConfig(posts=TINY.posts, users=120)))
    rows = [(post.post_id, post.user, post.at_us, post.text, list(post.tags)) for post in posts]
    frame = spark.createDataFrame(rows, POSTS)
    theirs = Warehouse(tmp_path / "posts")
    theirs.get_or_build("posts", {}, {}, lambda draft: draft.write("posts", frame))

    found = prepare_posts(Warehouse(tmp_path), TraceSource(posts=theirs), spark)
    assert found is not None
    made = make_traces(
        Warehouse(tmp_path), TINY, make_scenarios(TINY, [Series.STATIC]), spark, found
    )

    [file] = Path(made.table_path("traces")).glob("*.parquet")
    rules = TraceRules(lasts_us=SHORT.operations_us, timetable=found.rules.timetable)
    assert read_trace(file, 4) == trace_from_posts(1, posts, 4, rules)
    assert made.manifest.inputs == {"posts": theirs.open_stage("posts").fingerprint}
    assert sum(row["posts"] for row in rows_of(made, "histogram")) == len(posts)
    assert (
        made.manifest.notes["window"]["window_users"]
        == found.users
        == len({post.user for post in posts if rules.timetable.contains(post.at_us)})
    )


def test_p3_networks_with_more_nodes_than_users_are_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    preset = structs.replace(TINY, sizes=(4, 9))
    wanted = make_scenarios(preset, [Series.STATIC])
    for users, sizes in ((12, {4, 9}), (5, {4})):
        theirs = Warehouse(tmp_path / f"of {users}")
        posts = [(f"p{n}", f"u{n % users}", n * 10**6, "#t", ["t"]) for n in range(60)]
        frame = spark.createDataFrame(posts, POSTS)
        theirs.get_or_build("posts", {}, {}, lambda draft, rows=frame: draft.write("posts", rows))
        found = prepare_posts(theirs, TraceSource(posts=theirs), spark)
        assert {each.nodes for each in fitting_scenarios(wanted, found)} == sizes
    with pytest.raises(InputError, match=r"tags of 5 users, not of 9\n(?s:.*)type --users 5"):
        fitting_scenarios([each for each in wanted if each.nodes == 9], found)


def test_p3_a_quick_evaluation_simulates_a_share_of_many_posts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The most active users stay, and their posts are thinned; all posts are there on request."""
    theirs = Warehouse(tmp_path)
    posts = [Post(f"p{n}", f"u{n % 12}", n * 10**6, "#s #t", ("s", "t")) for n in range(600)]
    rows = [(each.post_id, each.user, each.at_us, each.text, list(each.tags)) for each in posts]
    frame = spark.createDataFrame(rows, POSTS)
    theirs.get_or_build("posts", {}, {}, lambda draft: draft.write("posts", frame))
    found = prepare_posts(theirs, TraceSource(posts=theirs), spark)
    assert found is not None
    assert found.thin(TINY, None).rules.one_in == 1
    few = structs.replace(TINY, tags_max=100)
    thinned = found.thin(few, None)
    assert thinned.rules.one_in == 4  # four users have 400 tags
    assert found.thin(few, 1).rules.one_in == 1

    made = make_traces(theirs, few, make_scenarios(few, [Series.STATIC]), spark, thinned)
    [file] = Path(made.table_path("traces")).glob("*.parquet")
    trace = read_trace(file, 4)
    rules = structs.replace(thinned.rules, lasts_us=SHORT.operations_us)
    assert trace == trace_from_posts(1, posts, 4, rules)
    assert 25 < trace.counts()["insert"] < 75
    [inserts] = [row for row in rows_of(made, "trace_counts") if row["kind"] == "insert"]
    assert inserts["operations"] == 600  # the trace of the reference has all posts
    assert made.manifest.notes["one_in"] == 4


def test_d28_match_queries_and_retrieves_are_parameters_of_an_evaluation(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules = TraceRules(query_tags=QueryTags.USED)
    source = TraceSource(match="swansea-everton", rules=rules)
    never = RetrieveBehaviour(probability=0.0)
    arguments: dict[str, Any] = {"only": [Series.STATIC], "source": source, "reaction": never}
    found = evaluate(spark, TINY, Warehouse(tmp_path), **arguments)

    assert found.traces is not None
    [file] = Path(found.traces.table_path("traces")).glob("*.parquet")
    match = FootballMatch(1, structs.replace(FITTED_MATCHES["swansea-everton"], posts=TINY.posts))
    lasting = structs.replace(rules, lasts_us=SHORT.operations_us)
    assert read_trace(file, 4) == trace_from_posts(1, match, 4, lasting)
    operations = rows_of(found.metrics, "runs")
    assert len(operations) == len(Substrate)
    kinds = {row["kind"] for row in rows_of(found.runs, "operations")}
    assert "insert" in kinds
    assert "retrieve" not in kinds
    assert plan_evaluation(TINY, Warehouse(tmp_path), 2, **arguments).done == len(Substrate)
    again = plan_evaluation(TINY, Warehouse(tmp_path), 2, only=[Series.STATIC])
    assert again.done == 0


def rows_of(stage: Stage, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(stage.table_path(table)).to_pylist()
    return rows


def test_runs_of_one_size_and_repetition_have_one_trace(tmp_path: Path) -> None:
    """S16: topologies and substrates differ, the operations of users do not; except that publishers
    that are going to crash do not subscribe (S7)."""
    both, split = TraceSpec(1, 4, False, 20_000_000), TraceSpec(1, 4, True, 20_000_000)
    for number, which in enumerate((both, split)):
        (tmp_path / which.file).write_bytes(bytes([number]))

    runs = plan_runs(make_scenarios(TINY), str(tmp_path))

    assert {(run.scenario.kind, Path(run.trace_file).name) for run in runs} == {
        (Series.STATIC, both.file),
        (Series.CRASH, split.file),
    }
    assert len({run.run_id for run in runs}) == len(runs) == 6


def test_c21_operations_are_counted_by_kind_and_time() -> None:
    counts = count_operations({7: STORY}).to_pylist()
    bins = count_operations_over_time({7: STORY}).to_pylist()

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
        (["--preset", "quick", "--run-memory", "much"], "--run-memory is a size such as 800m"),
        (["--preset", "quick", "--run-timeout", "0s"], "--run-timeout is a time such as 90s"),
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
    assert local_cores(master) == cores
    assert local_cores(None) == local_cores("local[*]") >= 1
