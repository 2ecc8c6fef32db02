"""Round-trip times: how long replies take at present, and how long to wait for the next one.

A smoothed mean and deviation as in RFC 6298. Who measures has to tell a lost message from a late
reply: only the second is a reason to wait longer. Entry point: `RoundTripTimes`.
Clauses: D19, D28.
"""

from __future__ import annotations

from thyme.model.time_frames import SECOND_US

SLOW_US = SECOND_US // 20
"""The mean round-trip time above which messages wait for others, to travel together."""
BUSY_US = SECOND_US
"""The mean round-trip time above which the channel counts as busy."""


class RoundTripTimes:
    """The round-trip times that one node measures."""

    def __init__(self, wait_us_max: int) -> None:
        self._wait_us_max = wait_us_max
        self._mean_us: float | None = None
        self._deviation_us = 0.0

    def add(self, round_trip_us: int) -> None:
        """Adds a measured round-trip time, at most the longest wait."""
        measured_us = min(round_trip_us, self._wait_us_max)
        if self._mean_us is None:
            self._mean_us, self._deviation_us = measured_us, measured_us / 2
            return
        error_us = measured_us - self._mean_us
        self._deviation_us += (abs(error_us) - self._deviation_us) / 4
        self._mean_us += error_us / 8

    @property
    def is_slow(self) -> bool:
        """Whether replies take longer than on a free channel, so that fewer messages help."""
        return self._mean_us is not None and self._mean_us > SLOW_US

    @property
    def is_busy(self) -> bool:
        """Whether replies take so long that messages which can wait should."""
        return self._mean_us is not None and self._mean_us > BUSY_US

    def wait_us(self, usual_us: int) -> int:
        """How long to wait for a reply: as long as usual, or longer if replies take longer."""
        if self._mean_us is None:
            return usual_us
        expected_us = int(self._mean_us + 4 * self._deviation_us)
        return max(usual_us, min(expected_us, self._wait_us_max))
