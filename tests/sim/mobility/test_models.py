"""Mobility: continuous paths, nodes inside their areas, and the known statistics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.model.sampling import sample_nodes
from thyme.model.time_frames import SECOND_US
from thyme.model.worlds import Area
from thyme.sim.mobility.manhattan import ManhattanGrid
from thyme.sim.mobility.models import (
    MOBILE_SHARE,
    MOVE_PROBABILITY,
    PAUSE_US,
    SPEEDS_MAX_M_S,
    AreasOfInterest,
    ConstantPosition,
    Leg,
    MobilityError,
    MobilityModel,
    PathCursor,
    RandomWaypoint,
    Rect,
    crowd_paths,
    position_at,
    random_positions,
    random_waypoint_at_pace,
)

HALL = Area(400.0, 200.0)
HOUR_US = 3600 * SECOND_US
SPOTS = (Rect(0.0, 0.0, 20.0, 20.0), Rect(90.0, 90.0, 30.0, 30.0))

MODELS: dict[str, MobilityModel] = {
    "static": ConstantPosition(HALL),
    "random waypoint": random_waypoint_at_pace("jog", HALL),
    "random waypoint without pauses": RandomWaypoint(
        area=HALL, speed_m_s_max=2.0, pause_us=0, move_probability=0.5
    ),
    "streets": ManhattanGrid(),
    "streets of whole blocks": ManhattanGrid(side_m=100.0, speed_change_every_m=10.0),
    "one block": ManhattanGrid(side_m=20.0),
    "areas of interest": AreasOfInterest(
        area=Area(120.0, 120.0), spots=SPOTS, phase_us=60 * SECOND_US, pause_us=SECOND_US
    ),
}


def walked(model: MobilityModel, seed: int, until_us: int = HOUR_US) -> list[Leg]:
    """The legs of one node."""
    return list(model.path(derive_rng(seed, "mobility", 0), until_us))


def assert_continuous(path: Sequence[Leg], until_us: int) -> None:
    """Checks that a path begins at 0, has no gaps or jumps, and covers the run."""
    assert path[0].start_us == 0
    for before, after in pairwise(path):
        assert after.start_us == before.end_us
        assert after.start == before.end
    assert path[-1].end_us >= until_us
    assert path[-1].start_us <= until_us


# Paths


def test_s6_a_node_is_along_its_leg_in_proportion_to_time() -> None:
    path = [Leg(0, 10, 0.0, 0.0, 4.0, 8.0), Leg(10, 20, 4.0, 8.0, 4.0, 8.0)]
    found = [position_at(path, at_us) for at_us in (0, 5, 10, 15, 20, 99)]
    assert found == [(0.0, 0.0), (2.0, 4.0), *[(4.0, 8.0)] * 4]


def test_s6_a_leg_knows_its_length_speed_and_whether_it_moves() -> None:
    leg = Leg(0, 2 * SECOND_US, 0.0, 0.0, 3.0, 4.0)
    assert (leg.length_m, leg.speed_m_s, leg.is_moving) == (5.0, 2.5, True)
    assert not Leg(0, 1, 3.0, 4.0, 3.0, 4.0).is_moving


@pytest.mark.parametrize(
    "leg",
    [
        (5, 5, 0.0, 0.0, 1.0, 1.0),
        (5, 4, 0.0, 0.0, 1.0, 1.0),
        (-1, 4, 0.0, 0.0, 1.0, 1.0),
        (0, 1, math.nan, 0.0, 1.0, 1.0),
        (0, 1, 0.0, 0.0, math.inf, 1.0),
    ],
)
def test_s6_a_leg_that_takes_no_time_or_leads_nowhere_is_refused(
    leg: tuple[int, int, float, float, float, float],
) -> None:
    with pytest.raises(InputError, match="a leg"):
        Leg(*leg)


def test_s6_a_path_has_legs_and_no_place_before_them() -> None:
    with pytest.raises(InputError, match="without legs"):
        position_at([], 0)
    with pytest.raises(InputError, match="without legs"):
        PathCursor([])
    with pytest.raises(InputError, match="begins at 5 µs"):
        position_at([Leg(5, 6, 0.0, 0.0, 0.0, 0.0)], 4)


@pytest.mark.parametrize("name", MODELS)
def test_s6_a_walk_passes_the_places_of_the_whole_path(name: str) -> None:
    path = walked(MODELS[name], 3)
    walk = PathCursor(iter(path))
    for at_us in range(0, HOUR_US + 100 * SECOND_US, 7_654_321):
        assert walk.position_at(at_us) == position_at(path, at_us)


# All models


@given(name=st.sampled_from(list(MODELS)), seed=st.integers(0, 2**32), until_s=st.integers(1, 900))
def test_s6_every_path_is_continuous_and_covers_the_run(name: str, seed: int, until_s: int) -> None:
    assert_continuous(walked(MODELS[name], seed, until_s * SECOND_US), until_s * SECOND_US)


@given(name=st.sampled_from(list(MODELS)), seed=st.integers(0, 2**32))
def test_s6_a_longer_run_begins_like_a_shorter_one(name: str, seed: int) -> None:
    short = walked(MODELS[name], seed, 200 * SECOND_US)
    long = walked(MODELS[name], seed, 900 * SECOND_US)
    if name == "static":
        assert short[0].start == long[0].start
    else:
        assert long[: len(short)] == short


def test_s6_paths_are_made_as_they_are_walked() -> None:
    endless = random_waypoint_at_pace("walk", HALL).path(derive_rng(1, "mobility", 0), 10**18)
    assert len(list(islice(endless, 5))) == 5


@pytest.mark.parametrize("name", MODELS)
def test_s6_the_same_stream_gives_the_same_path(name: str) -> None:
    assert walked(MODELS[name], 7) == walked(MODELS[name], 7)
    assert walked(MODELS[name], 7) != walked(MODELS[name], 8)


@pytest.mark.parametrize("name", ["static", "random waypoint", "areas of interest", "streets"])
def test_s6_a_node_starts_where_it_was_placed(name: str) -> None:
    [first] = islice(MODELS[name].path(derive_rng(1, "mobility", 0), HOUR_US, (0.0, 0.0)), 1)
    assert first.start == (0.0, 0.0)


# Random waypoint


def mean_distance_m(area: Area) -> float:
    """The mean distance of two random positions in a rectangle, in closed form."""
    a, b = area.width_m, area.height_m
    d = math.hypot(a, b)
    arcs = b * b / a * math.acosh(d / b) + a * a / b * math.acosh(d / a)
    square = d * (3 - a * a / (b * b) - b * b / (a * a))
    return (a**3 / (b * b) + b**3 / (a * a) + square + 2.5 * arcs) / 15


def test_the_mean_distance_in_a_unit_square_is_the_known_one() -> None:
    assert mean_distance_m(Area(1.0, 1.0)) == pytest.approx(0.521405, abs=1e-6)


def test_s6_the_presets_are_those_of_the_documents() -> None:
    assert list(SPEEDS_MAX_M_S.values()) == [0.6, 1.4, 2.5]
    assert (MOBILE_SHARE, MOVE_PROBABILITY, PAUSE_US) == (0.6, 0.8, 120 * SECOND_US)
    walk = random_waypoint_at_pace("walk", HALL)
    assert (walk.speed_m_s_max, walk.pause_us, walk.move_probability) == (1.4, PAUSE_US, 0.8)


@pytest.mark.parametrize("pace", SPEEDS_MAX_M_S)
def test_s6_random_waypoint_nodes_keep_to_their_speeds_pauses_and_area(pace: str) -> None:
    model = random_waypoint_at_pace(pace, HALL)
    first, *path = walked(model, 1, 50 * HOUR_US)
    assert not first.is_moving
    assert first.end_us <= PAUSE_US
    for leg in path:
        assert 0 <= leg.x1 <= HALL.width_m
        assert 0 <= leg.y1 <= HALL.height_m
        if leg.is_moving:
            # A leg of a few metres takes whole microseconds, hence the tolerance.
            assert 0.1 * (1 - 1e-6) <= leg.speed_m_s <= model.speed_m_s_max * (1 + 1e-12)
        else:
            assert leg.end_us - leg.start_us == PAUSE_US


def test_s6_before_each_way_a_node_pauses_one_time_in_p_on_average() -> None:
    path = walked(random_waypoint_at_pace("jog", HALL), 2, 600 * HOUR_US)
    pauses = sum(not leg.is_moving for leg in path)
    ways = len(path) - pauses
    assert ways > 5_000
    # Geometric: 1/p pauses for each leg, with variance (1−p)/p² (hence 5 deviations of the mean).
    spread = 5 * math.sqrt(0.2 / 0.64 / ways)
    assert pauses / ways == pytest.approx(1 / MOVE_PROBABILITY, abs=spread)


def test_s6_random_waypoint_nodes_move_for_the_share_of_time_that_theory_says() -> None:
    model = random_waypoint_at_pace("jog", HALL)
    path = walked(model, 3, 1000 * HOUR_US)
    moving_us = sum(leg.end_us - leg.start_us for leg in path if leg.is_moving)
    # A cycle is 1/p pauses of 120 s, and a leg at a speed uniform from 0.1 to 2.5 m/s.
    way_s = mean_distance_m(HALL) * math.log(2.5 / 0.1) / (2.5 - 0.1)
    expected = way_s / (way_s + 120 / 0.8)
    assert expected == pytest.approx(0.590, abs=0.001)
    assert moving_us / path[-1].end_us == pytest.approx(expected, abs=0.02)
    ways = [leg.length_m for leg in path if leg.is_moving]
    assert sum(ways) / len(ways) == pytest.approx(mean_distance_m(HALL), rel=0.03)


def test_s6_a_node_with_probability_0_never_moves() -> None:
    model = RandomWaypoint(area=HALL, speed_m_s_max=1.0, move_probability=0.0)
    assert not any(leg.is_moving for leg in walked(model, 1))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"speed_m_s_max": 0.05}, "speeds must be at least"),
        ({"speed_m_s_max": math.nan}, "speeds must be at least"),
        ({"speed_m_s_max": math.inf}, "speeds must be at least"),
        ({"speed_m_s_max": 1.0, "speed_m_s_min": 0.0}, "speeds must be at least"),
        ({"speed_m_s_max": 1.0, "pause_us": -1}, "a pause must last"),
        ({"speed_m_s_max": 1.0, "move_probability": 1.1}, "between 0 and 1"),
        ({"speed_m_s_max": 1.0, "move_probability": math.nan}, "between 0 and 1"),
        ({"speed_m_s_max": 1.0, "move_probability": 0.0, "pause_us": 0}, "needs pauses"),
    ],
)
def test_s6_settings_of_random_waypoint_that_make_no_sense_are_refused(
    settings: dict[str, float], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        RandomWaypoint(area=HALL, **settings)  # type: ignore[arg-type]


def test_s6_an_unknown_pace_and_a_start_outside_are_refused() -> None:
    with pytest.raises(MobilityError, match="stroll, walk, jog, not 'fly'"):
        random_waypoint_at_pace("fly", HALL)
    with pytest.raises(MobilityError, match="outside"):
        next(random_waypoint_at_pace("walk", HALL).path(derive_rng(1), HOUR_US, (401.0, 0.0)))


# Streets


def test_u9_the_streets_are_those_of_the_documents() -> None:
    grid = ManhattanGrid()
    assert (grid.side_m, grid.block_m, grid.blocks) == (450.0, 20.0, 22)
    assert (grid.speed_m_s_min, grid.speed_m_s_mean) == (0.5, 1.5)
    assert (grid.speed_change_probability, grid.turn_probability) == (0.2, 0.5)
    assert grid.street_m(22) == 450.0
    assert ManhattanGrid(side_m=2.1, block_m=0.7).blocks == 3


def on_a_street(grid: ManhattanGrid, coordinate_m: float) -> bool:
    streets = (grid.street_m(number) for number in range(grid.blocks + 1))
    return any(math.isclose(coordinate_m, street, abs_tol=1e-9) for street in streets)


@pytest.mark.parametrize(
    "grid", [ManhattanGrid(), ManhattanGrid(side_m=100.0, speed_change_every_m=10.0)]
)
def test_u9_nodes_stay_on_streets_inside_the_square(grid: ManhattanGrid) -> None:
    for seed in range(20):
        for leg in walked(grid, seed):
            assert leg.x0 == leg.x1 or leg.y0 == leg.y1
            assert (leg.x0 == leg.x1 and on_a_street(grid, leg.x0)) or on_a_street(grid, leg.y0)
            assert all(0 <= coordinate <= grid.side_m for coordinate in leg.end)


def test_u9_nodes_in_the_streets_never_stop_and_keep_to_their_speeds() -> None:
    grid = ManhattanGrid()
    path = walked(grid, 1, 60 * HOUR_US)
    assert all(leg.is_moving for leg in path)
    assert min(leg.speed_m_s for leg in path) >= grid.speed_m_s_min * (1 - 1e-3)
    # By distance, since speeds are drawn by distance: the mean of the normal distribution.
    length_m = sum(leg.length_m for leg in path)
    mean = sum(leg.length_m * leg.speed_m_s for leg in path) / length_m
    assert mean == pytest.approx(grid.speed_m_s_mean, abs=0.01)
    spread = sum(leg.length_m * (leg.speed_m_s - mean) ** 2 for leg in path) / length_m
    assert math.sqrt(spread) == pytest.approx(grid.speed_m_s_deviation, abs=0.01)


def test_u9_a_speed_below_the_minimum_becomes_the_minimum() -> None:
    grid = ManhattanGrid(speed_m_s_mean=0.5)
    assert min(leg.speed_m_s for leg in walked(grid, 1)) == pytest.approx(0.5, rel=1e-3)


def test_u9_nodes_turn_at_half_of_the_crossings() -> None:
    grid = ManhattanGrid(side_m=10_000.0, speed_change_probability=0.0)
    turns = crossings = 0
    for seed in range(10):
        path = walked(grid, seed, 10 * HOUR_US)
        # Without changes of speed a leg goes from turn to turn; the first begins anywhere.
        turns += len(path) - 1
        crossings += sum(round(leg.length_m / grid.block_m) for leg in path[1:])
    assert turns > 10_000
    assert turns / crossings == pytest.approx(grid.turn_probability, abs=0.02)


def test_u9_speeds_change_after_every_fifth_stretch_on_average() -> None:
    grid = ManhattanGrid(side_m=10_000.0, block_m=10_000.0)
    changes = length_m = 0.0
    for seed in range(20):
        path = walked(grid, seed, 10 * HOUR_US)
        length_m += sum(leg.length_m for leg in path)
        changes += len(path) - 1
    assert changes / (length_m / grid.speed_change_every_m) == pytest.approx(0.2, abs=0.01)


def test_u9_nodes_are_spread_evenly_over_the_streets() -> None:
    grid = ManhattanGrid(side_m=100.0)
    until_us = 600 * SECOND_US
    places = [position_at(walked(grid, seed, until_us), until_us) for seed in range(600)]
    # Halves of 600 nodes, five standard deviations wide.
    west = sum(x < 50 for x, _ in places)
    south = sum(y < 50 for _, y in places)
    assert west == pytest.approx(300, abs=62)
    assert south == pytest.approx(300, abs=62)


def test_u9_a_start_beside_the_streets_is_refused() -> None:
    with pytest.raises(MobilityError, match="not on a street"):
        next(ManhattanGrid().path(derive_rng(1), HOUR_US, (10.0, 10.0)))


@pytest.mark.parametrize(
    "settings",
    [
        {"side_m": 10.0},
        {"side_m": math.inf},
        {"block_m": 0.0},
        {"speed_m_s_min": 2.0},
        {"speed_m_s_deviation": -1.0},
        {"speed_m_s_deviation": math.nan},
        {"speed_change_probability": 2.0},
        {"speed_change_every_m": 0.0},
        {"turn_probability": -0.1},
    ],
)
def test_u9_streets_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(InputError):
        ManhattanGrid(**settings)


# Areas of interest


def test_u9_nodes_divide_their_time_between_the_whole_area_and_their_spots() -> None:
    area = Area(1000.0, 1000.0)
    spot = Rect(100.0, 100.0, 20.0, 20.0)
    model = AreasOfInterest(area=area, spots=(spot,), phase_us=HOUR_US)
    path = walked(model, 1, 300 * HOUR_US)
    assert all(0 <= coordinate <= 1000.0 for leg in path for coordinate in leg.end)
    inside_us = sum(
        leg.end_us - leg.start_us
        for leg in path
        if spot.contains(leg.start) and spot.contains(leg.end)
    )
    # In seconds: about 3607 inside, and outside 3600 and the rest of the last leg there (317), and
    # the legs there and back (some 610 m each at a mean of 0.805 s/m make 490).
    expected = 3607 / (3607 + 3600 + 317 + 2 * 490)
    assert inside_us / path[-1].end_us == pytest.approx(expected, abs=0.015)


def test_u9_a_node_visits_all_of_its_spots() -> None:
    model = AreasOfInterest(area=Area(120.0, 120.0), spots=SPOTS)
    path = walked(model, 1, 20 * HOUR_US)
    for spot in SPOTS:
        assert sum(spot.contains(leg.start) and spot.contains(leg.end) for leg in path) > 100


@pytest.mark.parametrize(
    "spots",
    [
        (),
        (Rect(110.0, 0.0, 20.0, 20.0),),
        (Rect(-1.0, 0.0, 20.0, 20.0),),
        (Rect(0.0, 0.0, 0.0, 20.0),),
        (Rect(math.nan, 0.0, 20.0, 20.0),),
    ],
)
def test_u9_spots_outside_the_area_are_refused(spots: tuple[Rect, ...]) -> None:
    with pytest.raises(MobilityError):
        AreasOfInterest(area=Area(120.0, 120.0), spots=spots)


# Shares of nodes, and positions


def test_s6_of_a_crowd_the_chosen_share_moves() -> None:
    starts = random_positions(derive_rng(1, "places"), 100, HALL)
    paths = [
        list(path)
        for path in crowd_paths(random_waypoint_at_pace("jog", HALL), 1, starts, 5 * HOUR_US)
    ]
    assert [path[0].start for path in paths] == starts
    assert sum(any(leg.is_moving for leg in path) for path in paths) == 60


def test_s6_a_node_moves_the_same_way_whoever_else_is_there() -> None:
    starts = random_positions(derive_rng(1, "places"), 20, HALL)
    model = random_waypoint_at_pace("jog", HALL)
    few = [list(path) for path in crowd_paths(model, 1, starts[:10], HOUR_US, mobile_share=1.0)]
    many = [list(path) for path in crowd_paths(model, 1, starts, HOUR_US, mobile_share=1.0)]
    assert many[:10] == few


@given(st.integers(0, 2**32), st.integers(1, 60), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_contains_a_smaller_one(
    seed: int, nodes: int, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    few, many = (sample_nodes(seed, "test", range(nodes), share) for share in (low, high))
    assert set(few) <= set(many)
    assert len(many) == int(high * nodes + 0.5)
    assert many == sorted(many)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        sample_nodes(1, "test", range(3), share)


@given(st.integers(0, 2**32), st.integers(0, 200))
def test_s6_no_two_nodes_are_placed_at_the_same_place(seed: int, nodes: int) -> None:
    # 0.02 m × 0.02 m have 21 × 21 positions: a draw of the same one is likely.
    places = random_positions(derive_rng(seed, "places"), nodes, Area(0.02, 0.02))
    assert len(set(places)) == len(places) == nodes
    assert all(0 <= x <= 0.02 and 0 <= y <= 0.02 for x, y in places)


def test_s6_places_are_uniform_and_survive_a_file_with_three_decimals() -> None:
    places = random_positions(derive_rng(1, "places"), 10_000, HALL)
    assert sum(x for x, _ in places) / 10_000 == pytest.approx(200, abs=6)
    assert sum(y for _, y in places) / 10_000 == pytest.approx(100, abs=3)
    assert sum(x < 100 and y < 50 for x, y in places) == pytest.approx(625, abs=125)
    assert all((float(f"{x:.3f}"), float(f"{y:.3f}")) == (x, y) for x, y in places)


@pytest.mark.parametrize("nodes", [-1, 300])
def test_s6_nodes_need_room(nodes: int) -> None:
    with pytest.raises(MobilityError, match="no room"):
        random_positions(derive_rng(1), nodes, Area(0.02, 0.02))


def test_s6_a_path_is_the_same_in_every_process_and_version() -> None:
    path = walked(random_waypoint_at_pace("walk", HALL), 5)
    assert [leg.end_us for leg in path[:4]] == [44740960, 249991587, 369991587, 777302711]
