"""Clock: microseconds since 1970 that never run backwards, and the watch over the wall clock.

The wall clock is read once, at start; after that the monotonic clock advances the time. If the wall
clock was corrected, or the device slept, the host begins again with a new clock.
Entry points: `Clock`, `ClockWatch`. The new incarnation of the node is up to `thyme.live.host`.
Clauses: M12, M36.
"""

from __future__ import annotations

import time

from thyme.live.clocks.clock_skew import agreed_ahead_us
from thyme.protocol.node import ClocksCompared
from thyme.transport.link import Link

CLOCK_STEP_US_MAX = 2_500_000
"""Maximum difference between the node's time and the wall clock: half of the tolerated skew."""
_CHECK_EVERY_US = 1_000_000
_CHANGE_US_MIN = 1_000_000
_READINGS = 5


class Clock:
    """Clock that counts microseconds since 1970 and never runs backwards."""

    def __init__(self) -> None:
        self._origin_us = _read_origin_us()

    def now_us(self) -> int:
        """The current time in microseconds since 1970."""
        return self._origin_us + time.monotonic_ns() // 1_000

    def behind_us(self) -> int:
        """How far this clock is behind the wall clock; negative if it is ahead."""
        return time.time_ns() // 1_000 - self.now_us()


def _read_origin_us() -> int:
    """The wall clock's time at which the monotonic clock was 0. Of several readings, the one that
    took least time counts: on a busy machine, a process may wait between its two clocks."""
    readings: list[tuple[int, int]] = []
    for _ in range(_READINGS):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        readings.append((after_ns - before_ns, wall_ns // 1_000 - before_ns // 1_000))
    return min(readings)[1]


class ClockWatch:
    """Compares the clock of one node with the wall clock and with the clocks of neighbours."""

    def __init__(self) -> None:
        self._next_check_us = 0
        self._ahead_us = 0
        """How far other clocks are ahead, as of the last `ClocksCompared`."""

    def is_due(self, now_us: int) -> bool:
        """Whether it is time to compare again."""
        if now_us < self._next_check_us:
            return False
        self._next_check_us = now_us + _CHECK_EVERY_US
        return True

    def compare_neighbours(self, link: Link) -> ClocksCompared | None:
        """The difference between the own clock and most others, if it changed (M36)."""
        neighbours = link.describe_neighbours()
        ahead_us = agreed_ahead_us(state.clock_ahead_us for _, state in neighbours)
        if abs(ahead_us - self._ahead_us) <= _CHANGE_US_MIN:
            return None
        self._ahead_us = ahead_us
        return ClocksCompared(ahead_us)

    def begin_again(self) -> None:
        """Forgets the comparisons, for a new incarnation of the node."""
        self._next_check_us = self._ahead_us = 0
