"""P3: a trace made by Spark equals the trace of the rules, operation for operation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from thyme.model.errors import InputError
from thyme.pipeline.schemas import POSTS
from thyme.pipeline.traces import operations_from_posts, table_to_trace, trace_to_table
from thyme.traces.football_match import FootballMatch, FootballMatchConfig
from thyme.traces.posts import Post
from thyme.traces.posts_to_trace import TraceRules, trace_from_posts
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


def frame_of(spark: SparkSession, posts: list[Post]) -> DataFrame:
    rows = [(each.post_id, each.user, each.at_us, each.text, list(each.tags)) for each in posts]
    return spark.createDataFrame(rows, POSTS)


def test_the_trace_is_that_of_the_rules_in_whatever_partitions_posts_come(
    spark: SparkSession,
) -> None:
    posts = frame_of(spark, POSTED).repartition(5, "text")
    made = operations_from_posts(posts, 20, 11, BOOLEAN, publishers_share=0.7)
    # Rows come in order of the files they will be written to.
    rows = [row["number"] for row in made.collect()]
    assert rows == list(range(len(rows)))
    assert table_to_trace(made, 20) == trace_from_posts(
        11, POSTED, 20, BOOLEAN, publishers_share=0.7
    )


def test_a_trace_in_memory_becomes_a_table_and_again_a_trace(spark: SparkSession) -> None:
    trace = trace_from_posts(1, POSTED, 5)
    assert table_to_trace(trace_to_table(spark, trace), 5) == trace


def test_too_few_users_are_refused_with_their_number(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="posts of 1 users only, not of 3"):
        operations_from_posts(frame_of(spark, ODD), 3, 1)
