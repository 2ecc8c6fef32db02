"""Progress: finished runs of a sweep and its estimated remaining time.

Entry point: `ProgressMonitor.poll`, which lists the results. Estimates come from the cost
model (`sweep.runs.cost_model`), calibrated by the runs that have finished.
Clause: P5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from thyme.pipeline.sweep.results import JobNews, RunDuration
from thyme.pipeline.sweep.runs.cost_model import MachineSpeed, makespan_s
from thyme.pipeline.sweep.runs.planned_run import SweepRun


class SweepProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a sweep."""

    total: int
    found: int
    """Runs with a result from an earlier sweep."""
    done: int
    """Runs with a result or a failure, including `found`."""
    failed: int
    elapsed_s: float
    remaining_s: float
    """An estimate that improves with each finished run."""

    @property
    def runs_per_s(self) -> float:
        """Runs per second since the sweep began."""
        return (self.done - self.found) / self.elapsed_s if self.elapsed_s else 0.0


class ProgressMonitor:
    """Derives the progress of a sweep from the runs that have finished.

    `poll_job` returns the runs that have finished, except those of its argument.
    """

    def __init__(
        self,
        total: int,
        missing: Sequence[SweepRun],
        poll_job: Callable[[Collection[str]], JobNews],
        cores: int,
        durations: Mapping[str, RunDuration],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._missing = {run.run_id: run.cost for run in missing}
        self._poll_job = poll_job
        self._cores = cores
        self._speed = calibrated_speed(durations)
        self._clock = clock
        self._started_s = clock()
        self._failed: set[str] = set()
        self.finished: dict[str, RunDuration] = {}
        """Durations of the runs finished since the sweep began."""

    def poll(self) -> SweepProgress:
        """Asks for finished runs and returns the current progress."""
        news = self._poll_job(self.finished.keys() | self._failed)
        for name, duration in sorted(news.ended.items()):
            self.finished[name] = duration
            self._speed.calibrate(duration.cost, duration.wall_s)
        self._failed |= news.failed
        elapsed_s = self._clock() - self._started_s
        found = self._total - len(self._missing)
        finished = self.finished.keys() | self._failed
        return SweepProgress(
            total=self._total,
            found=found,
            done=found + len(finished),
            failed=len(self._failed),
            elapsed_s=elapsed_s,
            remaining_s=self._remaining_s(finished, elapsed_s),
        )

    def _remaining_s(self, finished: set[str], elapsed_s: float) -> float:
        """Estimated time of the unfinished runs, minus the time that the current runs have already
        used: all core time since the start that no finished run accounts for."""
        rest = [
            self._speed.estimate_s(work)
            for name, work in self._missing.items()
            if name not in finished
        ]
        used_s = self._cores * elapsed_s - sum(each.wall_s for each in self.finished.values())
        running_s = min(max(0.0, used_s), sum(rest[: self._cores]))
        return max(0.0, makespan_s(rest, self._cores) - running_s / self._cores)


def calibrated_speed(durations: Mapping[str, RunDuration]) -> MachineSpeed:
    """The speed of this machine, calibrated by finished runs."""
    speed = MachineSpeed()
    for name in sorted(durations):
        speed.calibrate(durations[name].cost, durations[name].wall_s)
    return speed
