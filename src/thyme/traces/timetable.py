"""Timetables: the observed hours of an event and the times of its two halves.

Thyme (journal article) observes three hours from 20:00 on 10 July 2016 and distinguishes the first
half of the game, the second half and the rest. Its trace for 100 users has 526 subscriptions, at
three per user and hour until the end of the first half and one afterwards: (3 + 2h) · 100 = 526
gives h = 68 minutes. It has 29 deletes and 15 unsubscribes, at rates of 0.5 and 0.2 in the second
half, which gives 35 and 45 minutes. Hence kick-off after 20 minutes, and halves of a real game's
length. For any other event, `complete_timetable` finds from the posts what a `TimetableChoice`
leaves open: by default the busiest three hours, with halves in the proportions of that match.
Clauses: P3, C21.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US

MINUTE_S = 60
MINUTE_US = MINUTE_S * SECOND_US
HOUR_S = 60 * MINUTE_S
HOURS_MAX = 24 * 366


class Timetable(msgspec.Struct, frozen=True, kw_only=True):
    """The observed hours, and the two halves of the game in seconds from their start."""

    starts_us: int
    length_s: int
    first_half_s: tuple[int, int]
    second_half_s: tuple[int, int]

    def __post_init__(self) -> None:
        marks = [0, *self.first_half_s, *self.second_half_s, self.length_s]
        if marks != sorted(marks) or not self.length_s:
            raise InputError(f"the times of a timetable must follow each other, not {marks}")

    @property
    def length_us(self) -> int:
        """The duration of the observed hours."""
        return self.length_s * SECOND_US

    @property
    def ends_us(self) -> int:
        """The end of the observed hours; it does not belong to them."""
        return self.starts_us + self.length_us

    def contains(self, at_us: int) -> bool:
        """Whether an instant lies in the observed hours."""
        return self.starts_us <= at_us < self.ends_us


FINAL_2016 = Timetable(
    starts_us=1_468_180_800 * SECOND_US,  # 2016-07-10 20:00 UTC
    length_s=180 * MINUTE_S,
    first_half_s=(20 * MINUTE_S, 67 * MINUTE_S),
    second_half_s=(82 * MINUTE_S, 127 * MINUTE_S),
)


class TimetableChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen parts of a timetable; the parts that are None are found from the posts."""

    start_us: int | None = None
    end_us: int | None = None
    hours: float | None = None
    kick_off_us: int | None = None
    first_half_us: tuple[int, int] | None = None
    second_half_us: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.hours is not None and not 1 / HOUR_S <= self.hours <= HOURS_MAX:
            raise InputError(f"hours must be above 0 and at most {HOURS_MAX:,}, not {self.hours}")
        if None not in (self.start_us, self.end_us, self.hours):
            raise InputError("give two of start, end and hours; the third follows from them")
        if self.start_us is not None and self.end_us is not None and self.start_us >= self.end_us:
            raise InputError("the end must be after the start")
        if (self.first_half_us is None) != (self.second_half_us is None):
            raise InputError("give both halves or none")
        if self.kick_off_us is not None and self.first_half_us is not None:
            raise InputError("give the kick-off or the halves, not both: the first half starts it")

    @property
    def length_s(self) -> int | None:
        """The chosen duration of the observed hours; None if it is not chosen."""
        if self.hours is not None:
            return round(self.hours * HOUR_S)
        if self.start_us is None or self.end_us is None:
            return None
        return -((self.start_us - self.end_us) // SECOND_US)


class PostActivity(Protocol):
    """The distribution of posts over time; only posts with tags count, as inserts need tags."""

    def busiest_start_us(self, length_s: int) -> int:
        """Start of the span of this length with the most posts: a whole minute with a post, the
        earliest of several."""
        ...

    def last_post_us(self, start_us: int, end_us: int) -> int | None:
        """Instant of the last post from `start_us` to before `end_us`; None if there is none."""
        ...


def complete_timetable(choice: TimetableChoice, activity: PostActivity) -> Timetable:
    """The timetable of an event: chosen parts as given, the others from the posts.

    Without a chosen length it is that of the article, or ends with the last post if that is sooner.
    """
    length_s = choice.length_s
    asked_s = FINAL_2016.length_s if length_s is None else length_s
    starts_us = _find_start_us(choice, activity, asked_s)
    if length_s is None and choice.end_us is None:
        last_us = activity.last_post_us(starts_us, starts_us + asked_s * SECOND_US)
        if last_us is not None:
            covered_s = MINUTE_S * ((last_us - starts_us) // MINUTE_US + 1)
            asked_s = min(asked_s, covered_s)
    first_s, second_s = _place_halves(choice, starts_us, asked_s)
    return Timetable(
        starts_us=starts_us, length_s=asked_s, first_half_s=first_s, second_half_s=second_s
    )


def _find_start_us(choice: TimetableChoice, activity: PostActivity, length_s: int) -> int:
    if choice.start_us is not None:
        return choice.start_us
    if choice.end_us is not None:
        return choice.end_us - length_s * SECOND_US
    kick_off_us = choice.kick_off_us
    if choice.first_half_us is not None:
        kick_off_us = choice.first_half_us[0]
    if kick_off_us is not None:
        return kick_off_us - _scale_s(FINAL_2016.first_half_s[0], length_s) * SECOND_US
    return activity.busiest_start_us(length_s)


def _place_halves(
    choice: TimetableChoice, starts_us: int, length_s: int
) -> tuple[tuple[int, int], tuple[int, int]]:
    """The two halves in seconds from the start: as given; a game's length from a given kick-off,
    cut at the end of the hours; else in the proportions of the article's match."""
    first, second = FINAL_2016.first_half_s, FINAL_2016.second_half_s
    if choice.first_half_us is not None and choice.second_half_us is not None:
        marks_us = (*choice.first_half_us, *choice.second_half_us)
        marks = [(mark_us - starts_us) // SECOND_US for mark_us in marks_us]
    elif choice.kick_off_us is not None:
        late_s = (choice.kick_off_us - starts_us) // SECOND_US
        if not 0 <= late_s < length_s:
            raise InputError("the kick-off must lie between the start and the end")
        marks = [min(late_s + mark - first[0], length_s) for mark in (*first, *second)]
    else:
        marks = [_scale_s(mark, length_s) for mark in (*first, *second)]
    return (marks[0], marks[1]), (marks[2], marks[3])


def _scale_s(mark_s: int, length_s: int) -> int:
    """A time of the article's match in hours of another length."""
    return mark_s * length_s // FINAL_2016.length_s
