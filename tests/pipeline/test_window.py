"""P3: the window of any event, found from posts by Spark, shown, and chosen by options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.instants import PostInstants
from thyme.cli import main
from thyme.cli.pipeline.histogram import COLUMNS_MAX, ROWS, render_histogram
from thyme.model.errors import InputError
from thyme.pipeline.schemas import POSTS
from thyme.pipeline.timetable_files import parse_timetable, read_timetable
from thyme.pipeline.warehouse import Warehouse
from thyme.pipeline.window import MinuteCounts, WindowFacts, check_users, measure_window
from thyme.sim.encounters.mobuser_trace import MobUserPopulation, mobuser_trace
from thyme.traces.files import InputFileError
from thyme.traces.synthetic.lecture_trace import LectureConfig, lecture_trace
from thyme.traces.timetable import MINUTE_US, TimetableChoice, complete_timetable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DAY_US = 24 * 60 * MINUTE_US
MATCH_US = 16_697 * DAY_US + (11 * 60 + 32) * MINUTE_US  # 2015-09-19 11:32 UTC


def frame_of(spark: SparkSession, instants: Sequence[int], users: int = 7) -> DataFrame:
    rows = [(str(n), f"u{n % users}", at_us, "#t", ["t"]) for n, at_us in enumerate(instants)]
    return spark.createDataFrame(rows, POSTS)


def some_days() -> list[int]:
    """Five days with a match on the third, over the ends of days and pieces."""
    quiet = [MATCH_US + n * 17 * MINUTE_US for n in range(-160, 160)]
    match = [MATCH_US + n * MINUTE_US // 4 for n in range(4 * 131)]
    late = [MATCH_US + DAY_US // 2 + n * MINUTE_US for n in range(400)]
    return [*quiet, *match, *late]


@pytest.mark.parametrize("hours", [None, 0.25, 3, 7, 30, 200])
def test_p3_spark_finds_the_window_that_a_comparison_of_all_spans_finds(
    spark: SparkSession, hours: float | None
) -> None:
    choice = TimetableChoice(hours=hours)
    posts = frame_of(spark, some_days()).repartition(5)
    facts, histogram = measure_window(posts, choice)
    assert facts.timetable == complete_timetable(choice, PostInstants(some_days()))
    bins = histogram.collect()
    assert sum(row["posts"] for row in bins) == facts.posts == len(some_days())
    assert [row["at_us"] for row in bins] == sorted(row["at_us"] for row in bins)
    inside = [at_us for at_us in some_days() if facts.timetable.contains(at_us)]
    assert (facts.window_tagged, facts.window_users, facts.users) == (len(inside), 7, 7)


def test_p3_posts_without_tags_do_not_count_and_no_tags_at_all_is_an_error(
    spark: SparkSession,
) -> None:
    tagged = [("a", "u", MATCH_US, "#t", ["t"])]
    untagged = [(f"b{n}", "v", 5 * n, "", []) for n in range(50)]
    facts, _ = measure_window(spark.createDataFrame(tagged + untagged, POSTS), TimetableChoice())
    assert facts.timetable.starts_us == MATCH_US
    assert (facts.posts, facts.tagged, facts.users) == (51, 1, 1)
    with pytest.raises(InputError, match="none of the 50 posts has a tag"):
        measure_window(spark.createDataFrame(untagged, POSTS), TimetableChoice())
    with pytest.raises(InputError, match="there are no posts"):
        measure_window(spark.createDataFrame([], POSTS), TimetableChoice())


def test_p3_no_counted_minutes_stay_in_memory(spark: SparkSession) -> None:
    before = spark.sparkContext._jsc.getPersistentRDDs().size()  # type: ignore[union-attr]
    measure_window(frame_of(spark, [MATCH_US]), TimetableChoice())
    assert spark.sparkContext._jsc.getPersistentRDDs().size() == before  # type: ignore[union-attr]


def test_p3_a_last_post_is_found_from_a_start_within_its_minute(spark: SparkSession) -> None:
    minutes = spark.createDataFrame([(10, 1, 1)], "minute long, posts long, tagged long")
    counts = MinuteCounts(minutes)
    assert counts.last_post_us(10 * MINUTE_US + 5, 20 * MINUTE_US) == 10 * MINUTE_US + 5
    assert counts.last_post_us(11 * MINUTE_US, 20 * MINUTE_US) is None


def facts_of(**changes: Any) -> WindowFacts:
    table = complete_timetable(TimetableChoice(start_us=MATCH_US, hours=2), PostInstants([]))
    given = {
        "timetable": table, "posts": 1_234, "tagged": 1_000, "users": 99, "window_users": 40,
        "first_us": MATCH_US, "last_us": MATCH_US + DAY_US, "window_tagged": 500, "bin_s": 60,
    }  # fmt: skip
    return WindowFacts(**{**given, **changes})


def test_p3_too_few_users_is_explained_with_words_to_type() -> None:
    check_users(facts_of(), 40)
    with pytest.raises(InputError) as failure:
        check_users(facts_of(), 100, timezone(timedelta(hours=1)))
    assert str(failure.value).splitlines() == [
        "the window 2015-09-19 12:32 to 14:32 UTC+01:00 has posts with tags of 40 users, "
        "not of 100",
        "the 1,234 posts (1,000 with tags, of 99 users) are from 2015-09-19 12:32 to "
        "2015-09-20 12:33 UTC+01:00",
        "type --users 40 for the users of this window, or --start 2015-09-19T12:32+0100 "
        "--hours 25 for all posts (99 users)",
    ]


# The timetable as a file

TIMETABLE = b"""
zone = "Europe/London"
start = 2015-09-19T12:30:00           # local time of the zone
end = 2015-09-19T14:00:00Z
first_half = [2015-09-19T12:45:00, 2015-09-19T13:32:00]
second_half = [2015-09-19T13:47:00, 2015-09-19T14:35:00]
"""


def test_p3_a_timetable_is_a_small_file() -> None:
    found = complete_timetable(parse_timetable(TIMETABLE), PostInstants([]))
    assert found.starts_us == MATCH_US - 2 * MINUTE_US
    assert found.length_s == 150 * 60
    assert (found.first_half_s, found.second_half_s) == ((900, 3_720), (4_620, 7_500))
    assert parse_timetable(b"") == TimetableChoice()


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"start = ", "Invalid"),
        (b"begin = 3", "unknown field `begin`"),
        (b'start = "noon"', "Expected `datetime.*write times without quotes"),
        (b"hours = -1", "hours must be above 0"),
        (b'zone = "Mars"', "no time zone 'Mars'"),
        (b"\xff\xfe", "can't decode"),
        (b"first_half = [2015-09-19T12:45:00]", "length 2"),
    ],
)
def test_p3_a_bad_timetable_is_refused_with_its_name(
    data: bytes, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "t.toml").write_bytes(data)
    with pytest.raises(InputFileError, match=f"t.toml: is not a timetable: .*{problem}"):
        read_timetable(tmp_path / "t.toml")


# The histogram in a terminal


def test_p3_the_histogram_marks_the_window_below_the_posts() -> None:
    bins = [(MATCH_US + n * MINUTE_US, n) for n in range(1, 21)]
    window = MATCH_US + 11 * MINUTE_US, MATCH_US + 16 * MINUTE_US
    assert render_histogram(bins, 60, window, UTC) == [
        "posts per 1 min",
        "20                 ▂▄▆█",
        "               ▂▄▆█████"[:23],
        "           ▂▄▆█████████"[:23],
        "       ▂▄▆█████████████"[:23],
        "   ▂▄▆█████████████████"[:23],
        " 0 ──────────━━━━━─────",
        "   2015-09-19 11:33 2015-09-19 11:53",
    ]


@given(
    st.dictionaries(st.integers(0, 5_000), st.integers(1, 10**9), min_size=1, max_size=60),
    st.sampled_from([60, 3_600, 86_400]),
    st.integers(-(10**4), 10**4),
)
def test_p3_every_histogram_fits_and_shows_every_bar(
    counts: dict[int, int], bin_s: int, offset: int
) -> None:
    bins = [(MATCH_US + n * bin_s * 10**6, count) for n, count in sorted(counts.items())]
    window = MATCH_US + offset * bin_s * 10**6, MATCH_US + (offset + 3) * bin_s * 10**6
    lines = render_histogram(bins, bin_s, window, UTC)
    label = len(f"{0:,}")
    assert len(lines) == ROWS + 3
    assert all(len(line) <= COLUMNS_MAX + 22 for line in lines)
    assert "━" in lines[-2]
    assert lines[-3].strip()[label - 1 :]


# Commands


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    status = main([str(word) for word in argv])
    out, err = capsys.readouterr()
    return status, out, err


def write_csv(path: Path) -> Path:
    """A match of another day, as a new user has it: times without a zone, other column names."""
    lines = ["text,author,created_at"]
    quiet = [MATCH_US + n * 17 * MINUTE_US for n in range(-160, 160)]
    match = [MATCH_US + n * MINUTE_US // 4 for n in range(4 * 200)]
    for number, at_us in enumerate([*quiet, *match]):
        moment = datetime.fromtimestamp(at_us // 10**6, UTC)
        lines.append(f"goal #tag{number % 9},fan{number % 30},{moment:%Y-%m-%d %H:%M:%S}")
    path.write_text("\n".join(lines))
    return path


def test_p3_a_csv_of_any_event_becomes_a_trace_without_options(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, w = write_csv(tmp_path / "match.csv"), tmp_path / "w"
    columns = "user=author,time=created_at"
    status, out, err = run(capsys, "posts", "import", file, "--columns", columns, "--out", w)
    assert (status, err) == (0, "")
    assert "times have no time zone and are read as UTC" in out

    status, out, _ = run(capsys, "trace", "build", "--posts", w, "--users", 20, "--out", w)
    assert status == 0
    assert "window: 2015-09-19 11:32 to 14:32 UTC (3 h, compressed 18 times into 600 s)" in out
    assert "first half 11:52 to 12:39, second half 12:54 to 13:39" in out
    stage = Warehouse(w).open_stage("trace")
    assert stage.manifest.notes["operations"]["insert"] > 300
    assert stage.manifest.config["rules"]["timetable"]["starts_us"] == MATCH_US

    status, _, err = run(capsys, "trace", "build", "--posts", w, "--users", 99, "--out", w)
    assert status == 2
    assert "tags of 30 users, not of 99" in err
    assert "type --users 30" in err

    words = ["--start", "2015-09-19T12:32", "--hours", 1, "--zone", "+01:00", "--compress", 36]
    rates = ["--deletes", 0, "--unsubscribes", 0, "--subscribes-early", 9, "--always", 1]
    build = ["trace", "build", "--posts", w, "--users", 9, "--out", w, *words, *rates, "--json"]
    status, out, _ = run(capsys, *build)
    facts = json.loads(out)
    assert facts["operations"]["delete"] == facts["operations"]["unsubscribe"] == 0
    rules = Warehouse(w).open_stage("trace").manifest.config["rules"]
    assert rules["timetable"]["starts_us"] == MATCH_US
    assert (rules["timetable"]["length_s"], rules["lasts_us"]) == (3_600, 100 * 10**6)
    assert (rules["always_share"], rules["subscribes_early"]) == (1.0, 9.0)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--start", "noon"], "--start 'noon' is not a time; write it as 2015-09-19T11:30"),
        (["--hours", "0"], "hours must be above 0"),
        (["--zone", "Mars"], "there is no time zone 'Mars'"),
        (["--timetable", "none.toml"], "none.toml: cannot be read"),
        (["--timetable", "x", "--start", "2015-01-01"], "leave out --start"),
        (["--deletes", "-1"], "a rate is 0 to 10,000"),
        (["--candidates", "0"], "the share of candidate tags"),
        (["--boolean", "2"], "boolean_share"),
        (["--query-tags", "all"], "--query-tags 'all' is unknown; there is distinct, common, used"),
    ],
)
def test_p3_options_that_make_no_sense_are_refused(
    words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Warehouse(tmp_path).get_or_build("posts", {}, {}, lambda draft: None)
    status, _, err = run(capsys, "trace", "build", "--posts", tmp_path, "--out", tmp_path, *words)
    assert status == 2
    assert problem in err


def test_p3_a_window_is_for_imported_posts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["evaluate", "--preset", "quick", "--out", tmp_path, "--plan"]
    for more in (["--hours", 2], ["--one-in", 2]):
        status, _, err = run(capsys, *words, *more)
        assert status == 2
        assert "a window and --one-in are for imported posts" in err
    status, _, err = run(capsys, *words, "--one-in", 0)
    assert (status, "--one-in 0 must be at least 1" in err) == (2, True)


@pytest.mark.parametrize(
    ("preset", "words", "problem"),
    [
        ("quick", ["--match", "cup"], "--match 'cup' is unknown; there is final-2016, chelsea-ars"),
        ("quick", ["--match", "final-2016", "--posts", "posts"], "not with --posts"),
        ("quick", ["--retrieve", "1.5"], "a probability"),
        ("quick", ["--within", "-1"], "--within -1: 0 to 3,600 seconds"),
        ("mobuser-quick", ["--retrieve", "0.5"], "not for the preset mobuser-quick"),
        ("infra-quick", ["--match", "final-2016"], "not for the preset infra-quick"),
        ("infra-quick", ["--query-tags", "used"], "the rules of traces are not for the preset"),
    ],
)
def test_p5_options_of_a_match_that_make_no_sense_are_refused(
    preset: str, words: list[str], problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--out", tmp_path, "--plan"]
    status, _, err = run(capsys, "evaluate", "--preset", preset, *out, *words)
    assert status == 2
    assert problem in err


def test_s13_a_lecture_is_a_trace_stage(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = run(
        capsys, "trace", "lecture", "--users", 12, "--seed", 3, "--out", tmp_path, "--json"
    )
    assert status == 0
    pure = lecture_trace(3, LectureConfig(users=12))
    assert json.loads(out)["operations"] == pure.counts()
    status, out, _ = run(capsys, "oracle", "--trace", tmp_path, "--out", tmp_path, "--json")
    assert status == 0
    assert json.loads(out)["rows"]["notifications"] > 0


def test_u9_mobusers_workload_is_a_trace_stage_that_the_simulator_runs(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--users", 20, "--seed", 3, "--publishers", 0.2]
    status, out, _ = run(capsys, "trace", "mobuser", *options, "--out", tmp_path, "--json")
    assert status == 0
    pure = mobuser_trace(3, MobUserPopulation(users=20, publishers_share=0.2))
    assert json.loads(out)["operations"] == pure.counts()

    [table] = [each for each in tmp_path.rglob("*.parquet") if each.stat().st_size]
    command = ["sim", "run", "--substrate", "mobuser", "--trace", table]
    status, out, _ = run(capsys, *command, "--side", 60, "--hours", 1, "--json")
    assert status == 0
    found = json.loads(out)
    assert (found["nodes"], found["events"]["published"]) == (20, 4)
    assert found["events"]["due"] == 4 * 19
    assert found["events"]["delivered"] > 0
