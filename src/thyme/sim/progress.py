"""Progress: runs a simulation in steps and reports its progress after each step.

Entry point: `run_with_progress`. Splitting a run into steps does not change its results.
Clause: S17.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from thyme.model.time_frames import SECOND_US
from thyme.sim.engine.kernel import Kernel


class RunProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a run since `run_with_progress` was called."""

    done_us: int
    """Simulated time that has passed."""
    span_us: int
    """Simulated time that will have passed at the end."""
    events: int
    wall_s: float
    """Wall-clock time spent so far."""

    @property
    def share(self) -> float:
        """Completed share of the run, from 0 to 1."""
        return self.done_us / self.span_us if self.span_us else 1.0

    @property
    def rate(self) -> float:
        """Simulated seconds per second of wall-clock time."""
        return self.done_us / SECOND_US / self.wall_s if self.wall_s else 0.0

    def __str__(self) -> str:
        done_s, span_s = self.done_us / SECOND_US, self.span_us / SECOND_US
        return f"{done_s:.0f} of {span_s:.0f} s ({self.share:.0%}), {self.rate:.1f} s per second"


def run_with_progress(
    kernel: Kernel,
    until_us: int,
    *,
    every_us: int = 10 * SECOND_US,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[RunProgress]:
    """Runs the events of a kernel up to an instant; yields the progress after each step."""
    start_us, start_events, started = kernel.now_us, kernel.events_processed, clock()
    span_us = max(0, until_us - start_us)
    for done_us in [*range(every_us, span_us, every_us), span_us]:
        kernel.run(start_us + done_us)
        yield RunProgress(
            done_us=done_us,
            span_us=span_us,
            events=kernel.events_processed - start_events,
            wall_s=clock() - started,
        )
