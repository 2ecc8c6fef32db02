"""The course of a synthetic match: how many posts each second has.

Entry point: `post_rates`. The rate rises before kick-off, jumps at goals, half-time and the end,
decays after each, and drops to zero in a few silences.
Clauses: P1, D28.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from thyme.model.errors import InputError
from thyme.model.rng import derive_rng
from thyme.traces.timetable import Timetable


class Burst(NamedTuple):
    """Additional posts after an event: a jump, then a decay."""

    height: float
    """The jump, in rates of an ordinary second of play."""
    decay_s: float
    """The time after which half of it is left."""


class MatchCourse(msgspec.Struct, frozen=True, kw_only=True):
    """The events of a match, and the posts that follow them. An ordinary second of play has the
    rate 1."""

    goals: tuple[int, int] = (1, 4)
    """Minimum and maximum."""
    goal: Burst = Burst(9.0, 100.0)
    kick_off: Burst = Burst(2.0, 120.0)
    half_time: Burst = Burst(2.5, 240.0)
    second_half: Burst = Burst(1.0, 120.0)
    end: Burst = Burst(6.0, 300.0)
    before: tuple[float, float] = (0.3, 0.8)
    """The rate at the beginning, and at kick-off."""
    after: float = 0.4
    """The rate after the end."""
    silences: int = 8
    silence_s: tuple[int, int] = (20, 150)
    """Minimum and maximum."""

    def __post_init__(self) -> None:
        for what, (least, most) in (("goals", self.goals), ("silence_s", self.silence_s)):
            if not 0 <= least <= most:
                raise InputError(f"{what} needs 0 ≤ minimum ≤ maximum, not {least} to {most}")
        if self.silences < 0:
            raise InputError(f"the number of silences must not be negative, not {self.silences}")
        if min(*self.before, self.after) < 0:
            raise InputError("rates before and after the match must not be negative")
        for what in ("goal", "kick_off", "half_time", "second_half", "end"):
            burst: Burst = getattr(self, what)
            if burst.height < 0 or burst.decay_s <= 0:
                raise InputError(f"{what} needs a height of 0 or more and a decay above 0")


def post_rates(seed: int, game: Timetable, course: MatchCourse) -> list[float]:
    """Relative number of posts in each second; 1 is an ordinary second of play."""
    rng = derive_rng(seed, "match", "course")
    played = [*range(*game.first_half_s), *range(*game.second_half_s)]
    goals = sorted(rng.sample(played, min(rng.randint(*course.goals), len(played))))
    peaks = [(goal, course.goal) for goal in goals]
    peaks += [(game.first_half_s[0], course.kick_off), (game.first_half_s[1], course.half_time)]
    peaks += [(game.second_half_s[0], course.second_half), (game.second_half_s[1], course.end)]
    rates = [
        _base_rate(game, course, at) + sum(_rate_after(peak, burst, at) for peak, burst in peaks)
        for at in range(game.length_s)
    ]
    for _ in range(course.silences):
        length = rng.randint(*course.silence_s)
        begin = rng.randrange(game.length_s)
        # A goal ends a silence.
        end = min([begin + length, game.length_s, *(goal for goal in goals if goal >= begin)])
        rates[begin:end] = [0.0] * (end - begin)
    return rates


def _base_rate(game: Timetable, course: MatchCourse, at: int) -> float:
    """Post rate without events: low before and after the game, higher during it."""
    if at < game.first_half_s[0]:
        begin, kick_off = course.before
        return begin + (kick_off - begin) * at / game.first_half_s[0]
    if at < game.second_half_s[1]:
        return 1.0
    return course.after


def _rate_after(peak: int, burst: Burst, at: int) -> float:
    late = (at - peak) / burst.decay_s
    return burst.height / (1.0 + late * late) if late >= 0 else 0.0
