"""Watch: how far a run has come, while it goes on.

The run is done in stretches of simulated time, and between them the watcher has its say; the run
itself does not notice.
Clause: S17.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import msgspec

from thyme.model.frames import SECOND_US
from thyme.sim.kernel import Kernel


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run has come since it was watched."""

    done_us: int
    """Simulated time."""
    span_us: int
    """The same at the end."""
    events: int
    wall_s: float
    """What it has taken so far."""

    @property
    def share(self) -> float:
        """The part that is done, from 0 to 1."""
        return self.done_us / self.span_us if self.span_us else 1.0

    @property
    def rate(self) -> float:
        """Simulated seconds per second."""
        return self.done_us / SECOND_US / self.wall_s if self.wall_s else 0.0

    def __str__(self) -> str:
        done_s, span_s = self.done_us / SECOND_US, self.span_us / SECOND_US
        return f"{done_s:.0f} of {span_s:.0f} s ({self.share:.0%}), {self.rate:.1f} s per second"


def watched(
    kernel: Kernel,
    until_us: int,
    *,
    every_us: int = 10 * SECOND_US,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Progress]:
    """Runs a world up to an instant; tells of its progress after each stretch."""
    start_us, start_events, started = kernel.now_us, kernel.events, clock()
    span_us = max(0, until_us - start_us)
    for done_us in [*range(every_us, span_us, every_us), span_us]:
        kernel.run(start_us + done_us)
        yield Progress(
            done_us=done_us,
            span_us=span_us,
            events=kernel.events - start_events,
            wall_s=clock() - started,
        )
