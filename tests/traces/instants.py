"""The activity of posts whose instants are a list: the slow twin of the counts made by Spark."""

from __future__ import annotations

from collections.abc import Sequence

from thyme.model.time_frames import SECOND_US
from thyme.traces.timetable import MINUTE_S, MINUTE_US


class PostInstants:
    """`PostActivity` by comparison of all spans with all posts."""

    def __init__(self, instants: Sequence[int]) -> None:
        self._instants = instants

    def busiest_start_us(self, length_s: int) -> int:
        length_us = -(-length_s // MINUTE_S) * MINUTE_S * SECOND_US
        starts = sorted({at_us // MINUTE_US * MINUTE_US for at_us in self._instants})
        return max(
            starts,
            key=lambda start_us: (
                sum(start_us <= at_us < start_us + length_us for at_us in self._instants),
                -start_us,
            ),
        )

    def last_post_us(self, start_us: int, end_us: int) -> int | None:
        inside = (at_us for at_us in self._instants if start_us <= at_us < end_us)
        return max(inside, default=None)
