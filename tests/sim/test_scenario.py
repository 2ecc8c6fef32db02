"""S11, S12: the timeline, the areas, the default trace of a scenario, and invalid scenarios."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from tests.sim.runs import SHORT, insert, scenario, subscribe, trace
from thyme.model.errors import InputError
from thyme.model.time_frames import INSTANT_MAX_US, SECOND_US
from thyme.sim.scenario import (
    NODES_MAX,
    Scenario,
    ScenarioError,
    Series,
    Substrate,
    Timeline,
    check_trace,
    synthetic_trace,
)
from thyme.traces.operations import InsertOperation, SubscribeOperation, TraceError


def test_a_run_takes_720_seconds_and_its_operations_begin_after_60() -> None:
    """S11."""
    timeline = Timeline()

    assert timeline.origin_us == 60 * SECOND_US
    assert timeline.end_us == 720 * SECOND_US


@pytest.mark.parametrize(
    ("nodes", "width_m", "height_m"),
    [
        (16, 160, 80),
        (36, 240, 120),
        (64, 320, 160),
        (100, 400, 200),
        (144, 480, 240),
        (196, 560, 280),
    ],
)
def test_the_area_grows_with_the_nodes(nodes: int, width_m: float, height_m: float) -> None:
    """S12."""
    area = Scenario(substrate=Substrate.LS, nodes=nodes).area

    assert (area.width_m, area.height_m) == pytest.approx((width_m, height_m))


def test_an_area_of_its_own_is_kept() -> None:
    area = scenario(area_m=(70.0, 30.0)).area

    assert (area.width_m, area.height_m) == (70.0, 30.0)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": -3}, "nodes"),
        ({"nodes": NODES_MAX + 1}, "nodes"),
        ({"area_m": (0.0, 10.0)}, "area"),
        ({"area_m": (10.0, -1.0)}, "area"),
        ({"area_m": (math.nan, 10.0)}, "area"),
        ({"area_m": (math.inf, 10.0)}, "area"),
        ({"area_m": (10.0, 1e12)}, "area: sides are at most 10,000,000 m"),
        ({"failing": 1.1}, "failing"),
        ({"failing": -0.1}, "failing"),
        ({"failing": math.nan}, "failing"),
        ({"speed_m_s": 0.0}, "speed"),
        ({"speed_m_s": -1.0}, "speed"),
        ({"speed_m_s": math.nan}, "speed"),
        ({"speed_m_s": math.inf}, "speed"),
    ],
)
def test_an_impossible_scenario_is_refused_by_name(settings: dict[str, object], word: str) -> None:
    with pytest.raises(InputError, match=word):
        replace(scenario(), **settings)


@pytest.mark.parametrize("part", ["starts_us", "joins_us", "operations_us", "quiet_us"])
def test_no_part_of_the_timeline_is_negative(part: str) -> None:
    with pytest.raises(ScenarioError, match=part):
        Timeline(**{part: -1})


# Traces


def test_a_scenario_without_a_trace_gets_one_that_fits() -> None:
    wanted = scenario(nodes=6)
    found = synthetic_trace(wanted)

    check_trace(wanted, found)
    assert found.counts()["insert"] > 0
    assert found.operations[-1].at_us <= SHORT.operations_us


def test_the_trace_depends_on_the_seed_and_not_on_the_substrate() -> None:
    one = synthetic_trace(scenario(nodes=6))

    assert synthetic_trace(scenario(Substrate.ES, nodes=6)) == one
    assert synthetic_trace(scenario(nodes=6, seed=2)) != one


def test_where_publishers_crash_nobody_both_publishes_and_subscribes() -> None:
    """S7."""
    operations = synthetic_trace(scenario(nodes=12, kind=Series.CRASH)).operations
    publishers = {each.user for each in operations if isinstance(each, InsertOperation)}
    subscribers = {each.user for each in operations if isinstance(each, SubscribeOperation)}

    assert publishers
    assert subscribers
    assert not publishers & subscribers


@pytest.mark.parametrize("users", [3, 5])
def test_there_are_as_many_users_as_nodes(users: int) -> None:
    with pytest.raises(ScenarioError, match=rf"nodes: .* {users} users .* 4 nodes"):
        check_trace(scenario(nodes=4), trace(users, insert(1, 0, "o")))


def test_an_operation_may_come_at_the_very_end_of_the_operations_but_not_later() -> None:
    check_trace(scenario(nodes=1), trace(1, insert(20, 0, "o")))

    with pytest.raises(TraceError, match=r"operation 1, at_us: 20\.5 s is later"):
        check_trace(scenario(nodes=1), trace(1, insert(1, 0, "o"), insert(20.5, 0, "p")))


@pytest.mark.parametrize("field", ["size", "summary_size"])
def test_objects_that_no_node_would_take_are_refused_before_the_run(field: str) -> None:
    huge = replace(insert(1, 0, "o"), **{field: 2**40})

    with pytest.raises(TraceError, match=f"operation 0, {field}: a node takes at most"):
        check_trace(scenario(nodes=1), trace(1, huge))


def test_instants_that_no_clock_shows_in_the_run_are_refused_before_it() -> None:
    """The instants of a trace count from the start of the operations, which is later than 0."""
    late = subscribe(1, 0, "s", frame_s=(0, 1))
    late = replace(late, frame=replace(late.frame, end_us=INSTANT_MAX_US))
    lasting = replace(insert(1, 0, "o"), life_us=INSTANT_MAX_US - SECOND_US)

    with pytest.raises(TraceError, match="operation 0, end_us"):
        check_trace(scenario(nodes=1), trace(1, late))
    with pytest.raises(TraceError, match="operation 0, life_us"):
        check_trace(scenario(nodes=1), trace(1, lasting))
