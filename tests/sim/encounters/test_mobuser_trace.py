"""The populations of the MobUser paper as a trace (U8, U9, P3)."""

from __future__ import annotations

from pathlib import Path

import pytest

from thyme.model.errors import InputError
from thyme.sim.encounters.mobuser_trace import (
    EVENT_BYTES,
    NEWS,
    PUBLISH_US,
    MobUserPopulation,
    mobuser_trace,
    rare_topics,
)
from thyme.traces.operations import InsertOperation, SubscribeOperation
from thyme.traces.oracle import expected_notifications
from thyme.traces.trace_files import read_trace, write_trace


def test_u9_all_subscribe_to_one_topic_and_a_tenth_publishes() -> None:
    trace = mobuser_trace(1, MobUserPopulation(users=200))
    inserts = [each for each in trace.operations if isinstance(each, InsertOperation)]

    assert trace.counts() == {"insert": 20, "delete": 0, "subscribe": 200, "unsubscribe": 0}
    assert {each.tags for each in inserts} == {(NEWS,)}
    assert {each.size for each in inserts} == {EVENT_BYTES}
    assert max(each.at_us for each in inserts) < PUBLISH_US
    assert len(expected_notifications(trace)) == 20 * 200


def test_u9_who_subscribes_to_the_rarest_of_six_topics_publishes_in_it() -> None:
    trace = mobuser_trace(1, MobUserPopulation(users=500, rare_probability=0.2))
    queries = {
        each.user: each.query for each in trace.operations if isinstance(each, SubscribeOperation)
    }
    publishers = {each.user for each in trace.operations if isinstance(each, InsertOperation)}

    assert publishers == {user for user, query in queries.items() if "topic0" in query}
    assert 70 < len(publishers) < 130
    assert all("topic5" in query for query in queries.values())
    assert len(rare_topics()) == 6


def test_the_same_seed_gives_the_same_trace_and_a_file_keeps_it(tmp_path: Path) -> None:
    config = MobUserPopulation(users=30, publishers_share=0.5)
    trace = mobuser_trace(7, config)
    write_trace(trace, tmp_path / "t.csv")

    assert mobuser_trace(7, config) == trace == read_trace(tmp_path / "t.csv")
    assert mobuser_trace(8, config) != trace


@pytest.mark.parametrize(
    "settings", [{"users": 1}, {"publishers_share": 1.5}, {"rare_probability": -0.1}]
)
def test_impossible_populations_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        MobUserPopulation(**settings)  # type: ignore[arg-type]
