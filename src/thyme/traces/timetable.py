"""Timetables: the observed hours of a match and the times of its two halves.

Thyme (journal article) observes three hours from 20:00 on 10 July 2016 and distinguishes the first
half of the game, the second half and the rest. Its trace for 100 users has 526 subscriptions, at
three per user and hour until the end of the first half and one afterwards: (3 + 2h) · 100 = 526
gives h = 68 minutes. It has 29 deletes and 15 unsubscribes, at rates of 0.5 and 0.2 in the second
half, which gives 35 and 45 minutes. Hence kick-off after 20 minutes, and halves of a real game's
length.
Clauses: P3, C21.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US

MINUTE_S = 60


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

    def contains(self, at_us: int) -> bool:
        """Whether an instant lies in the observed hours."""
        return 0 <= at_us - self.starts_us < self.length_us


FINAL_2016 = Timetable(
    starts_us=1_468_180_800 * SECOND_US,  # 2016-07-10 20:00 UTC
    length_s=180 * MINUTE_S,
    first_half_s=(20 * MINUTE_S, 67 * MINUTE_S),
    second_half_s=(82 * MINUTE_S, 127 * MINUTE_S),
)
