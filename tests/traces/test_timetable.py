"""P3: the hours of any event are given, or found from its posts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.instants import PostInstants
from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US
from thyme.traces.timetable import (
    FINAL_2016,
    HOUR_S,
    MINUTE_S,
    MINUTE_US,
    Timetable,
    TimetableChoice,
    complete_timetable,
)

HOUR_US = HOUR_S * SECOND_US
DAY_US = 24 * HOUR_US


def completed(instants: Sequence[int], **choice: Any) -> Timetable:
    return complete_timetable(TimetableChoice(**choice), PostInstants(instants))


def evening(day: int, per_minute: int, minutes: int = 180) -> list[int]:
    """Posts from 20:00 of a day on."""
    start_us = day * DAY_US + 20 * HOUR_US
    return [
        start_us + minute * MINUTE_US + number
        for minute in range(minutes)
        for number in range(per_minute)
    ]


def test_p3_the_busiest_three_hours_are_the_window() -> None:
    posts = [*evening(1, 2), *evening(2, 5), *evening(3, 3)]
    found = completed(posts)
    assert found == Timetable(
        starts_us=2 * DAY_US + 20 * HOUR_US,
        length_s=3 * HOUR_S,
        first_half_s=FINAL_2016.first_half_s,
        second_half_s=FINAL_2016.second_half_s,
    )
    assert sum(map(found.contains, posts)) == 5 * 180


def test_p3_a_shorter_event_has_a_shorter_window_with_halves_in_proportion() -> None:
    found = completed(evening(1, 1, minutes=90))
    assert found.length_s == 90 * MINUTE_S
    assert found.first_half_s == (10 * MINUTE_S, 67 * MINUTE_S // 2)
    assert found.second_half_s == (41 * MINUTE_S, 127 * MINUTE_S // 2)


def test_p3_asked_hours_are_kept_even_if_the_posts_cover_less() -> None:
    assert completed(evening(1, 1, minutes=90), hours=2).length_s == 2 * HOUR_S
    assert completed([5], hours=0.5).length_s == HOUR_S // 2


def test_p3_start_end_and_hours_give_each_other() -> None:
    posts = evening(1, 1)
    start_us, end_us = DAY_US + 21 * HOUR_US, DAY_US + 22 * HOUR_US
    same = completed(posts, start_us=start_us, end_us=end_us)
    assert (same.starts_us, same.ends_us) == (start_us, end_us)
    assert completed(posts, start_us=start_us, hours=1) == same
    assert completed(posts, end_us=end_us, hours=1) == same
    # Without a length: three hours, or until the last post.
    assert completed(posts, start_us=start_us).length_s == 2 * HOUR_S
    assert completed(posts, end_us=end_us).length_s == 3 * HOUR_S


def test_p3_a_kick_off_places_the_halves_of_a_game() -> None:
    kick_off_us = DAY_US + 20 * HOUR_US + 20 * MINUTE_US
    found = completed(evening(1, 1), kick_off_us=kick_off_us)
    assert found.starts_us == kick_off_us - 20 * MINUTE_US
    assert (found.first_half_s, found.second_half_s) == (
        FINAL_2016.first_half_s,
        FINAL_2016.second_half_s,
    )
    cut = completed([], start_us=kick_off_us, kick_off_us=kick_off_us, hours=1)
    assert cut.first_half_s == (0, 47 * MINUTE_S)
    assert cut.second_half_s == (60 * MINUTE_S, 60 * MINUTE_S)


def test_p3_given_halves_are_kept() -> None:
    halves = {
        "first_half_us": (60 * 10**6, 120 * 10**6),
        "second_half_us": (130 * 10**6, 190 * 10**6),
    }
    found = completed([], start_us=0, hours=1, **halves)
    assert (found.first_half_s, found.second_half_s) == ((60, 120), (130, 190))


@pytest.mark.parametrize(
    ("choice", "problem"),
    [
        ({"start_us": 0, "end_us": 9 * 10**9, "hours": 1}, "give two of start, end and hours"),
        ({"start_us": 5, "end_us": 5}, "the end must be after the start"),
        ({"hours": 0}, "hours must be above 0"),
        ({"hours": float("nan")}, "hours must be above 0"),
        ({"first_half_us": (0, 1)}, "both halves or none"),
        ({"start_us": 0, "hours": 1, "kick_off_us": 2 * HOUR_US}, "kick-off must lie between"),
        (
            {"kick_off_us": 0, "first_half_us": (0, 1), "second_half_us": (2, 3)},
            "the kick-off or the halves, not both",
        ),
        (
            {"start_us": 0, "hours": 1, "first_half_us": (60 * 10**6, 0), "second_half_us": (0, 0)},
            "must follow each other",
        ),
    ],
)
def test_p3_a_choice_that_makes_no_sense_is_refused(choice: dict[str, Any], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        completed([0], **choice)


@given(
    st.lists(st.integers(0, 400).map(lambda minute: minute * MINUTE_US), min_size=1, max_size=30),
    st.integers(1, 5),
)
def test_p3_no_other_span_has_more_posts(instants: list[int], hours: int) -> None:
    found = completed(instants, hours=hours)
    inside = sum(map(found.contains, instants))
    for start_us in instants:
        end_us = start_us + hours * HOUR_US
        assert sum(start_us <= at_us < end_us for at_us in instants) <= inside


@given(st.lists(st.integers(0, 10 * HOUR_US), min_size=1, max_size=30))
def test_p3_any_posts_have_a_window_with_at_least_one_of_them(instants: list[int]) -> None:
    found = completed(instants)
    assert any(map(found.contains, instants))
    assert found.length_s <= 3 * HOUR_S
