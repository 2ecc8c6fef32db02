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

from thyme.pipeline.costs import Pace, spread_s, work_of
from thyme.pipeline.runs import FAILED, SUFFIX, PlannedRun, Took, done_in, took


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of a sweep."""

    total: int
    found: int
    """Runs with a result from an earlier sweep."""
    done: int
    """Runs with a result or a failure, including `found`."""
    failed: int
    passed_s: float
    left_s: float
    """An estimate that improves with each finished run."""

    @property
    def runs_per_s(self) -> float:
        """Runs per second since the sweep began."""
        return (self.done - self.found) / self.passed_s if self.passed_s else 0.0


class Watch:
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
        self._missing = {run.run_id: work_of(run.scenario) for run in missing}
        self._folder = folder
        self._cores = cores
        self._pace = learnt(folder)
        self._clock = clock
        self._since = clock()
        self.ended: dict[str, Took] = {}
        """Durations of the runs finished since the sweep began."""

    def look(self) -> Progress:
        """Reads the results folder and returns the current progress."""
        for name in sorted((self._missing.keys() & done_in(self._folder)) - self.ended.keys()):
            self.ended[name] = took(self._folder / f"{name}{SUFFIX}")
            self._pace.learn(self.ended[name].work, self.ended[name].wall_s)
        failed = {
            name
            for file in self._folder.glob(f"[!.]*{FAILED}")
            if (name := file.name.removesuffix(FAILED)) in self._missing
        }
        passed_s = self._clock() - self._since
        found = self._total - len(self._missing)
        over = self.ended.keys() | failed
        return Progress(
            total=self._total,
            found=found,
            done=found + len(over),
            failed=len(failed),
            passed_s=passed_s,
            left_s=self._left_s(over, passed_s),
        )

    def _left_s(self, over: set[str], passed_s: float) -> float:
        """Estimated time of the unfinished runs, minus the time that the current runs have already
        used: all core time since the start that no finished run accounts for."""
        rest = [
            self._pace.seconds(work) for name, work in self._missing.items() if name not in over
        ]
        behind_s = self._cores * passed_s - sum(each.wall_s for each in self.ended.values())
        running_s = min(max(0.0, behind_s), sum(rest[: self._cores]))
        return max(0.0, spread_s(rest, self._cores) - running_s / self._cores)


def learnt(folder: Path) -> Pace:
    """The speed of this machine, calibrated by all results in a folder."""
    pace = Pace()
    for name in sorted(done_in(folder)):
        try:
            each = took(folder / f"{name}{SUFFIX}")
        except (OSError, ValueError, pa.ArrowException):
            continue  # a file of another format; not needed for the estimate
        pace.learn(each.work, each.wall_s)
    return pace
