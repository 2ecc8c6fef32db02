"""P4, S15: the oracle on Spark equals the oracle of one process and the naive one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.pipeline.test_traces import POSTED
from tests.traces.strategies import USERS, traces
from tests.traces.twin_oracle import plain_notifications
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag, as_tag
from thyme.pipeline import oracle
from thyme.pipeline.oracle import expected_notifications
from thyme.pipeline.traces import trace_to_table
from thyme.query.query import query_from_conjunctions
from thyme.traces import oracle as pure
from thyme.traces.operations import DeleteOperation, InsertOperation, Operation, SubscribeOperation
from thyme.traces.oracle import Expected
from thyme.traces.posts_to_trace import TraceRules, trace_from_posts
from thyme.traces.trace import Trace, merge_users

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def due(spark: SparkSession, trace: Trace, asking: int | None = None) -> list[Expected]:
    rows = expected_notifications(trace_to_table(spark, trace), asking).collect()
    return sorted(Expected(*row) for row in rows)


def apart(number: int, trace: Trace) -> list[Operation]:
    """A trace with names, tags and users of its own, so that one job computes many traces."""

    def renamed(tags: tuple[Tag, ...]) -> tuple[Tag, ...]:
        return tuple(as_tag(f"{tag}{number}") for tag in tags)

    made: list[Operation] = []
    for each in trace.operations:
        user = each.user + number * USERS
        match each:
            case InsertOperation():
                name = f"{each.oid}-{number}"
                rest = each.size, each.summary_size, each.text, each.life_us
                made.append(InsertOperation(each.at_us, user, name, renamed(each.tags), *rest))
            case SubscribeOperation():
                parts = [
                    Conjunction(renamed(part.positive), renamed(part.negative))
                    for part in each.conjunctions
                ]
                name, query = f"{each.sid}-{number}", str(query_from_conjunctions(parts))
                made.append(SubscribeOperation(each.at_us, user, name, query, each.frame))
            case DeleteOperation():
                made.append(DeleteOperation(each.at_us, user, f"{each.oid}-{number}"))
            case _:
                made.append(type(each)(each.at_us, user, f"{each.sid}-{number}"))
    return made


@settings(
    max_examples=2,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.data_too_large,
                           HealthCheck.too_slow],
)  # fmt: skip
@given(st.lists(traces(), min_size=12, max_size=20))
def test_the_oracle_equals_its_twins_on_any_traces(spark: SparkSession, many: list[Trace]) -> None:
    operations = [each for number, trace in enumerate(many) for each in apart(number, trace)]
    trace = merge_users(USERS * len(many), operations)

    found = due(spark, trace)

    assert found == plain_notifications(trace)
    assert found == pure.expected_notifications(trace)
    # A small number of subscriptions is sent to all tasks.
    assert found == due(spark, trace, asking=len(trace.operations))


def test_the_oracle_equals_that_of_one_process_on_a_match_cut_into_small_pieces(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: a tag with much work is split, and nothing is lost or counted twice."""
    monkeypatch.setattr(oracle, "PIECE_OBJECTS", 7)
    monkeypatch.setattr(oracle, "PIECE_PAIRS", 50)
    trace = trace_from_posts(5, POSTED, 30, TraceRules(boolean_share=0.5, subscribes_early=9.0))

    found = due(spark, trace)

    assert len(found) > 500
    assert found == pure.expected_notifications(trace)


def test_a_tag_in_a_tenth_of_the_objects_is_cut_into_even_pieces(spark: SparkSession) -> None:
    """P4: no part of a popular tag is larger than its share."""
    asking = spark.createDataFrame([("hot",), ("hot",), ("cold",)], "tag string")
    counts = [("hot", 1_000_000), ("cold", 10), ("unasked", 500_000)]
    frame = spark.createDataFrame(counts, "tag string, objects long")
    found = {row["tag"]: row["pieces"] for row in oracle._split_tags(asking, frame).collect()}
    assert found == {
        "hot": 1_000_000 // oracle.PIECE_OBJECTS,
        "unasked": 500_000 // oracle.PIECE_OBJECTS,
    }
