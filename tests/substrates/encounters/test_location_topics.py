"""U5: places are topics, cells of a multilevel grid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.model.tags import Tag, as_tag
from thyme.substrates.encounters.location_topics import (
    LEVELS,
    cell_at_degrees,
    cell_at_metres,
    has_semantic_topic,
    location_topic,
    parse_location_topic,
    topics_of,
)

steps = st.integers(-8_999_999, 8_999_999)


def test_u5_coordinates_are_truncated_and_lose_their_dot() -> None:
    assert cell_at_degrees(38.736762, -9.139343) == (3873676, -913934)


@given(steps, steps)
def test_u5_a_coordinate_with_five_decimals_is_its_cell(x: int, y: int) -> None:
    assert cell_at_degrees(x / 100_000, y / 100_000) == (x, y)


@given(steps, steps, st.integers(0, LEVELS - 2))
def test_u5_each_level_covers_ten_by_ten_cells_of_the_level_below(
    x: int, y: int, level: int
) -> None:
    side = 10**level
    corner = x * 10 * side, y * 10 * side
    inside = {
        location_topic((corner[0] + i * side, corner[1] + j * side), level + 1)
        for i in range(10)
        for j in range(10)
    }

    assert inside == {location_topic(corner, level + 1)}
    assert location_topic((corner[0] + 10 * side, corner[1]), level + 1) not in inside


def test_u5_an_event_has_the_topics_of_all_levels_around_its_place() -> None:
    topics = topics_of((as_tag("café"), location_topic((3873676, -913934))))

    assert {"café", "geo:0:3873676:-913934", "geo:1:387367:-91394"} <= topics
    assert len(topics) == 1 + LEVELS


@given(steps, steps, st.integers(0, LEVELS - 1))
def test_a_location_topic_is_a_tag_and_is_read_back(x: int, y: int, level: int) -> None:
    topic = location_topic((x, y), level)

    assert as_tag(topic) == topic
    assert parse_location_topic(topic) == (level, (x // 10**level, y // 10**level))


def test_positions_in_metres_have_cells_of_one_metre() -> None:
    assert cell_at_metres((12.9, -0.5)) == (12, -1)


@pytest.mark.parametrize("place", [(91.0, 0.0), (0.0, 181.0), (float("nan"), 0.0)])
def test_coordinates_off_the_earth_are_refused(place: tuple[float, float]) -> None:
    with pytest.raises(InputError, match="latitude"):
        cell_at_degrees(*place)


@pytest.mark.parametrize("level", [-1, LEVELS])
def test_a_level_that_does_not_exist_is_refused(level: int) -> None:
    with pytest.raises(InputError, match="level"):
        location_topic((0, 0), level)


def test_words_that_look_like_places_are_semantic() -> None:
    assert has_semantic_topic((Tag("geo:9:1:1"),))
    assert not has_semantic_topic((Tag("geo:0:1:1"),))
