"""Instants and time frames (M10, M11)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import frame
from thyme.model.errors import FrameError, InstantError
from thyme.model.time_frames import (
    ALWAYS,
    INSTANT_MAX_US,
    SECOND_US,
    TimeFrame,
    as_frame,
    as_instant_us,
    format_instant,
)

instants = st.integers(min_value=-INSTANT_MAX_US, max_value=INSTANT_MAX_US)
ends = st.none() | instants


@pytest.mark.parametrize(("at_us", "inside"), [(9, False), (10, True), (20, True), (21, False)])
def test_m11_a_frame_holds_both_its_ends(at_us: int, inside: bool) -> None:
    assert frame(10, 20).contains(at_us) is inside


@pytest.mark.parametrize(("at_us", "inside"), [(9, False), (10, True), (11, False)])
def test_m11_a_frame_may_be_one_instant(at_us: int, inside: bool) -> None:
    assert frame(10, 10).contains(at_us) is inside


@pytest.mark.parametrize(
    ("start_us", "end_us", "inside"),
    [
        (None, None, [-INSTANT_MAX_US, 0, 10, INSTANT_MAX_US]),
        (None, 10, [-INSTANT_MAX_US, 0, 10]),
        (10, None, [10, INSTANT_MAX_US]),
        (0, 0, [0]),
        (-5, -1, []),
    ],
)
def test_m10_an_open_end_reaches_to_the_end_of_time(
    start_us: int | None, end_us: int | None, inside: list[int]
) -> None:
    asked = [-INSTANT_MAX_US, 0, 10, INSTANT_MAX_US]

    assert [at for at in asked if frame(start_us, end_us).contains(at)] == inside


def test_m10_a_frame_without_ends_is_always() -> None:
    assert frame() == ALWAYS
    assert not ALWAYS.has_ended(INSTANT_MAX_US)


@pytest.mark.parametrize(("now_us", "over"), [(19, False), (20, False), (21, True)])
def test_m11_a_frame_is_over_after_its_last_instant(now_us: int, over: bool) -> None:
    assert frame(10, 20).has_ended(now_us) is over


def test_m11_a_frame_that_starts_after_it_ends_is_refused() -> None:
    with pytest.raises(FrameError, match=r"starts \(11 µs\) after it ends \(10 µs\)"):
        frame(11, 10)


@given(instants, instants, instants)
def test_m11_a_frame_contains_what_lies_between_its_ends(
    start_us: int, end_us: int, at_us: int
) -> None:
    start_us, end_us = sorted((start_us, end_us))

    assert frame(start_us, end_us).contains(at_us) is (start_us <= at_us <= end_us)


@pytest.mark.parametrize("bad", [INSTANT_MAX_US + 1, -INSTANT_MAX_US - 1, 10**30, float("nan")])
def test_m25_a_frame_refuses_an_end_that_no_clock_shows(bad: Any) -> None:
    with pytest.raises(InstantError, match="out of range"):
        frame(bad, None)
    with pytest.raises(InstantError, match="out of range"):
        frame(None, bad)


@pytest.mark.parametrize("at_us", [0, 1, -1, INSTANT_MAX_US, -INSTANT_MAX_US])
def test_m10_an_integer_is_microseconds_since_1970(at_us: int) -> None:
    assert as_instant_us(at_us, now_us=5) == at_us


@pytest.mark.parametrize("at_us", [INSTANT_MAX_US + 1, -INSTANT_MAX_US - 1])
def test_m25_an_instant_out_of_range_is_refused(at_us: int) -> None:
    with pytest.raises(InstantError, match="out of range"):
        as_instant_us(at_us, now_us=5)


@pytest.mark.parametrize(
    ("moment", "at_us"),
    [
        (datetime(1970, 1, 1, tzinfo=UTC), 0),
        (datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC), -1),
        (datetime(2016, 7, 10, 21, 49, 0, 7, tzinfo=UTC), 1_468_187_340_000_007),
        (datetime.min.replace(tzinfo=UTC), -62_135_596_800 * SECOND_US),
        (datetime.max.replace(tzinfo=UTC), 253_402_300_800 * SECOND_US - 1),
        (datetime.min.replace(tzinfo=timezone(timedelta(hours=14))), -62_135_647_200 * SECOND_US),
    ],
)
def test_m10_an_aware_datetime_is_exact(moment: datetime, at_us: int) -> None:
    assert as_instant_us(moment, now_us=5) == at_us


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    st.integers(min_value=-23 * 60, max_value=23 * 60),
)
def test_m10_one_moment_is_one_instant_in_every_time_zone(naive: datetime, minutes: int) -> None:
    here = naive.replace(tzinfo=UTC)
    there = here.astimezone(timezone(timedelta(minutes=minutes)))

    assert as_instant_us(there, now_us=5) == as_instant_us(here, now_us=5)


class NowhereZone(tzinfo):
    """A time zone without an offset: datetimes in it are as naive as without a zone."""

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        return None

    def dst(self, moment: datetime | None) -> timedelta | None:
        return None

    def tzname(self, moment: datetime | None) -> str | None:
        return None


@pytest.mark.parametrize(
    "moment", [datetime(2016, 7, 10, 21, 49), datetime(2016, 7, 10, tzinfo=NowhereZone())]
)
def test_m25_a_naive_datetime_names_no_instant(moment: datetime) -> None:
    with pytest.raises(InstantError, match=r"has no time zone.*\.astimezone\(\)"):
        as_instant_us(moment, now_us=5)


def test_m25_naive_and_aware_datetimes_do_not_mix_in_a_frame() -> None:
    aware, naive = datetime(2016, 7, 10, tzinfo=UTC), datetime(2016, 7, 11)

    with pytest.raises(InstantError, match="has no time zone"):
        as_frame(aware, naive, now_us=5)
    with pytest.raises(InstantError, match="has no time zone"):
        as_frame(naive, aware, now_us=5)


@pytest.mark.parametrize(
    ("delta", "at_us"),
    [
        (timedelta(0), 100),
        (timedelta(microseconds=-1), 99),
        (timedelta(seconds=2), 100 + 2 * SECOND_US),
        (timedelta(days=-1, microseconds=1), 101 - 86_400 * SECOND_US),
    ],
)
def test_m10_a_timedelta_counts_from_now(delta: timedelta, at_us: int) -> None:
    assert as_instant_us(delta, now_us=100) == at_us


@pytest.mark.parametrize("delta", [timedelta.max, timedelta.min])
def test_m25_a_timedelta_beyond_all_clocks_is_refused(delta: timedelta) -> None:
    with pytest.raises(InstantError, match="out of range"):
        as_instant_us(delta, now_us=0)


@pytest.mark.parametrize("value", [True, False])
def test_m25_a_truth_value_is_no_instant(value: bool) -> None:
    with pytest.raises(InstantError, match="cannot be a boolean"):
        as_instant_us(value, now_us=5)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 1.0, 0.5, "2016-07-10", b"", None, 1j, date(2016, 7, 10), [1]],
)
def test_m25_what_does_not_say_which_instant_is_meant_is_refused(value: Any) -> None:
    with pytest.raises(InstantError, match="an instant is an aware datetime") as caught:
        as_instant_us(value, now_us=5)
    assert f"not {type(value).__name__}: " in str(caught.value)


def test_m10_a_frame_takes_each_end_in_its_own_way() -> None:
    made = as_frame(datetime(1970, 1, 1, tzinfo=UTC), timedelta(microseconds=5), now_us=100)

    assert made == frame(0, 105)
    assert as_frame(None, 7, now_us=100) == frame(None, 7)
    assert as_frame(7, None, now_us=100) == frame(7, None)
    assert as_frame(None, None, now_us=100) == ALWAYS


def test_m11_a_frame_given_backwards_is_refused_however_it_is_given() -> None:
    with pytest.raises(FrameError):
        as_frame(timedelta(seconds=1), timedelta(seconds=-1), now_us=100)


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (frame(), "⊥..⊥"),
        (frame(0, None), "1970-01-01T00:00:00Z..⊥"),
        (frame(None, 1_500_000), "⊥..1970-01-01T00:00:01.500000Z"),
        (frame(INSTANT_MAX_US, None), f"{INSTANT_MAX_US} µs..⊥"),
    ],
)
def test_a_frame_is_written_for_people(span: TimeFrame, words: str) -> None:
    assert str(span) == words


@given(instants)
def test_every_instant_can_be_written(at_us: int) -> None:
    words = format_instant(at_us)

    if words.endswith("Z"):
        assert as_instant_us(datetime.fromisoformat(words), now_us=5) == at_us
    else:
        assert words == f"{at_us} µs"
