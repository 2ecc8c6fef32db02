"""Window climber: hill climbing on the hit ratio, to find the best size of an admission window.

After each sample of accesses the window changes by one step: in the same direction as before if the
hit ratio did not fall, else in the other one. While the hit ratio is steady, steps become smaller
and samples longer. After a large change of the hit ratio the workload is another one, and steps are
large and samples short again.
"""

from __future__ import annotations

STEP = 0.0625
"""The first step, as a share of the capacity."""
STEP_DECAY = 0.95
RESTART_CHANGE = 0.05
"""The change of the hit ratio from which steps are large again."""
SAMPLE_FACTOR_MAX = 10.0
SAMPLE_MIN = 2_000
"""In shorter samples, the hit ratio changes too much by chance."""


class WindowClimber:
    """Chooses the changes of the window and the lengths of the samples."""

    __slots__ = ("_hit_ratio", "_step")

    def __init__(self) -> None:
        self._hit_ratio = 0.0
        # A first step down leaves the smallest window as it is: a sample to compare with.
        self._step = -STEP

    def sample_length(self, entries: int) -> int:
        """The number of accesses of the next sample, for a cache with so many entries."""
        factor = min(SAMPLE_FACTOR_MAX, STEP / abs(self._step))
        return max(SAMPLE_MIN, int(entries * factor))

    def next_step(self, hit_ratio: float) -> float:
        """The next change of the window, as a share of the capacity, after a sample."""
        change = hit_ratio - self._hit_ratio
        self._hit_ratio = hit_ratio
        step = self._step if change >= 0 else -self._step
        if abs(change) >= RESTART_CHANGE:
            self._step = STEP if step > 0 else -STEP
        else:
            self._step = STEP_DECAY * step
        return step

    def reverse(self) -> None:
        """Turns the direction, because the window cannot change further in the present one."""
        self._step = -self._step
