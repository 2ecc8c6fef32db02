"""P3: a trace made by Spark equals the trace of the rules, operation for operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from thyme.model.errors import InputError
from thyme.model.tags import as_tag
from thyme.pipeline.schemas import POSTS
from thyme.pipeline.traces import (
    assign_parts,
    operations_from_posts,
    table_to_trace,
    trace_to_table,
)
from thyme.traces.operations import InsertOperation
from thyme.traces.posts import Post
from thyme.traces.posts_to_trace import (
    TraceRules,
    draw_deletes,
    trace_from_posts,
    wants_to_delete,
)
from thyme.traces.query_tags import QueryTags
from thyme.traces.synthetic.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.timetable import FINAL_2016

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START_US = FINAL_2016.starts_us
ODD = [  # no tags, before and after the hours, one instant for two posts, no text
    Post("no-tags", "fan1", START_US + 5, "hello", ()),
    Post("early", "fan1", START_US - 1, "#goal", ("goal",)),
    Post("late", "fan1", START_US + FINAL_2016.length_us, "#goal", ("goal",)),
    Post("b", "fan1", START_US + 17, "é #goal", ("goal",)),
    Post("a", "fan1", START_US + 17, "", ("goal",)),
    Post("c", "fan1", START_US + 1, "#x", ("x",)),
]
POSTED = [*FootballMatch(3, FootballMatchConfig(posts=900, users=60, tags=120)), *ODD]
BOOLEAN = TraceRules(boolean_share=0.5, deletes=4.0, unsubscribes=3.0, summary_size=7)
THINNED = structs.replace(BOOLEAN, one_in=3)
COMMON = structs.replace(BOOLEAN, query_tags=QueryTags.COMMON)
USED = structs.replace(BOOLEAN, query_tags=QueryTags.USED)


def frame_of(spark: SparkSession, posts: list[Post]) -> DataFrame:
    rows = [(each.post_id, each.user, each.at_us, each.text, list(each.tags)) for each in posts]
    return spark.createDataFrame(rows, POSTS)


@pytest.mark.parametrize(
    "rules",
    [BOOLEAN, THINNED, COMMON, USED],
    ids=["all posts", "one in three", "common tags", "tags as used"],
)
def test_the_trace_is_that_of_the_rules_in_whatever_partitions_posts_come(
    spark: SparkSession, rules: TraceRules
) -> None:
    posts = frame_of(spark, POSTED).repartition(5, "text")
    made = operations_from_posts(posts, 20, 11, rules, publishers_share=0.7)
    # Rows come in order of the files they will be written to.
    rows = [row["number"] for row in made.collect()]
    assert rows == list(range(len(rows)))
    assert table_to_trace(made, 20) == trace_from_posts(11, POSTED, 20, rules, publishers_share=0.7)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30), st.integers(1, 30))
def test_parts_are_consecutive_and_of_about_the_same_size(sizes: list[int], rows: int) -> None:
    """P8: no part has more rows than asked for, but for one span that it may have too many of."""
    parts = assign_parts(sizes, rows)
    assert parts == sorted(parts)
    assert {*parts} == {*range(parts[-1] + 1)}
    totals = [sum(size for part, size in zip(parts, sizes, strict=True) if part == n)
              for n in {*parts}]  # fmt: skip
    assert max(totals) <= rows + max(sizes)


def test_p3_a_user_who_does_not_want_to_delete_deletes_nothing() -> None:
    many = [InsertOperation(1, 0, f"o{number}", (as_tag("x"),), 1, 0, "") for number in range(9)]
    wanted = [user for user in range(300) if draw_deletes(1, user, many)]
    assert wanted == [user for user in range(300) if wants_to_delete(1, user)]
    assert 50 < len(wanted) < 250


def test_a_trace_in_memory_becomes_a_table_and_again_a_trace(spark: SparkSession) -> None:
    trace = trace_from_posts(1, POSTED, 5)
    assert table_to_trace(trace_to_table(spark, trace), 5) == trace


def test_too_few_users_are_refused_with_their_number(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="posts of 1 users only, not of 3"):
        operations_from_posts(frame_of(spark, ODD), 3, 1)
