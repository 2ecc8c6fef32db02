"""Progress: finished runs of a sweep and its estimated remaining time.

Entry point: `ProgressMonitor.poll`, which reads the results folder. Estimates come from the cost
model (`sweep.cost_model`), calibrated by the runs that have finished.
Clause: P5.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa

from thyme.pipeline.sweep.cost_model import MachineSpeed, makespan_s, run_size
from thyme.pipeline.sweep.task import (
    FAILURE_SUFFIX,
    RESULT_SUFFIX,
    PlannedRun,
    RunDuration,
    completed_runs,
    read_duration,
)


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
    """Derives the progress of a sweep from its results folder."""

    def __init__(
        self,
        total: int,
        missing: Sequence[PlannedRun],
        folder: Path,
        cores: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total = total
        self._missing = {run.run_id: run_size(run.scenario) for run in missing}
        self._folder = folder
        self._cores = cores
        self._speed = calibrated_speed(folder)
        self._clock = clock
        self._started_s = clock()
        self.finished: dict[str, RunDuration] = {}
        """Durations of the runs finished since the sweep began."""

    def poll(self) -> SweepProgress:
        """Reads the results folder and returns the current progress."""
        for name in sorted(
            (self._missing.keys() & completed_runs(self._folder)) - self.finished.keys()
        ):
            self.finished[name] = read_duration(self._folder / f"{name}{RESULT_SUFFIX}")
            self._speed.calibrate(self.finished[name].size, self.finished[name].wall_s)
        failed = {
            name
            for file in self._folder.glob(f"[!.]*{FAILURE_SUFFIX}")
            if (name := file.name.removesuffix(FAILURE_SUFFIX)) in self._missing
        }
        elapsed_s = self._clock() - self._started_s
        found = self._total - len(self._missing)
        finished = self.finished.keys() | failed
        return SweepProgress(
            total=self._total,
            found=found,
            done=found + len(finished),
            failed=len(failed),
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


def calibrated_speed(folder: Path) -> MachineSpeed:
    """The speed of this machine, calibrated by all results in a folder."""
    speed = MachineSpeed()
    for name in sorted(completed_runs(folder)):
        try:
            each = read_duration(folder / f"{name}{RESULT_SUFFIX}")
        except (OSError, ValueError, pa.ArrowException):
            continue  # a file of another format; not needed for the estimate
        speed.calibrate(each.size, each.wall_s)
    return speed
