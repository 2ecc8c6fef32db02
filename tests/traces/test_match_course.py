"""The course of a synthetic match: when its posts come (P1, D28)."""

from __future__ import annotations

from collections import Counter
from statistics import mean

import pytest
from msgspec.structs import replace

from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US
from thyme.traces.synthetic.football_match import FITTED_MATCHES, FootballMatch
from thyme.traces.synthetic.match_course import Burst, MatchCourse, post_rates
from thyme.traces.timetable import FINAL_2016

SEEDS = range(1, 9)
BEFORE_MIN = 10
"""How long before kick-off the collections of real posts begin, about."""


def test_there_are_bursts_at_goals_and_half_time_and_silence() -> None:
    rates = post_rates(1, FINAL_2016, MatchCourse())
    quiet = post_rates(1, FINAL_2016, MatchCourse(goals=(0, 0), silences=0))
    assert rates.count(0.0) > 60
    assert min(quiet) > 0
    assert max(post_rates(1, FINAL_2016, MatchCourse(silences=0))) > 8
    half_time = FINAL_2016.first_half_s[1]
    before, after = (mean(quiet[at : at + 120]) for at in (half_time - 120, half_time))
    assert after > 2 * before


@pytest.mark.parametrize(
    ("name", "posts", "minutes", "shares"),
    [
        ("chelsea-arsenal", 20_722, 131, {0.1: 0.59, 0.5: 0.99, 0.9: 1.40, 0.99: 1.97, 1: 2.32}),
        ("swansea-everton", 7_342, 123, {0.1: 0.51, 0.5: 0.88, 0.9: 1.50, 0.99: 2.89, 1: 4.29}),
    ],
)
def test_d28_minutes_of_a_fitted_match_are_as_busy_as_those_of_the_real_one(
    name: str, posts: int, minutes: int, shares: dict[float, float]
) -> None:
    """Posts of a minute by those of the mean one, in the time that the real posts cover: the
    quietest tenth of the minutes, the median, and so on. Means of eight seeds."""
    found = [busy_minutes(seed, name, posts, minutes) for seed in SEEDS]

    for share, due in shares.items():
        ranked = [each[min(minutes - 1, int(share * minutes))] for each in found]
        assert mean(ranked) == pytest.approx(due, rel=0.2), share


def busy_minutes(seed: int, name: str, posts: int, minutes: int) -> list[float]:
    """The posts of each minute, by their mean, the quietest minute first."""
    config = replace(FITTED_MATCHES[name], posts=posts)
    begin_us = FINAL_2016.starts_us + (FINAL_2016.first_half_s[0] - 60 * BEFORE_MIN) * SECOND_US
    match = FootballMatch(seed, config)
    numbers = Counter((post.at_us - begin_us) // (60 * SECOND_US) for post in match)
    counts = sorted(numbers[minute] for minute in range(minutes))
    return [count / mean(counts) for count in counts]


@pytest.mark.parametrize(
    "bad",
    [
        {"goals": (2, 1)},
        {"silences": -1},
        {"silence_s": (-1, 3)},
        {"before": (-0.1, 1.0)},
        {"after": -1.0},
        {"goal": Burst(-1.0, 10.0)},
        {"end": Burst(1.0, 0.0)},
    ],
)
def test_a_course_that_cannot_be_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(InputError):
        MatchCourse(**bad)  # type: ignore[arg-type]
