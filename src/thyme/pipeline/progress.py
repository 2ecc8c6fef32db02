"""Progress: how far a sweep is, and how long the rest takes.

The folder of results says what has ended; what runs cost (`costs`), corrected by those that have,
says how long the others take.
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
    """How far a sweep is."""

    total: int
    found: int
    """Runs whose results were there before."""
    done: int
    """Runs that have a result or a failure, those found among them."""
    failed: int
    passed_s: float
    left_s: float
    """An estimate; better the more runs have ended."""

    @property
    def runs_per_s(self) -> float:
        """The rate since it began."""
        return (self.done - self.found) / self.passed_s if self.passed_s else 0.0


class Watch:
    """Looks at the folder of results now and then."""

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
        """What the runs took that have ended since it began."""

    def look(self) -> Progress:
        """How far it is now."""
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
        """What the others take, but for what those that run now have behind them: all the time of
        the cores that those that have ended did not take."""
        rest = [
            self._pace.seconds(work) for name, work in self._missing.items() if name not in over
        ]
        behind_s = self._cores * passed_s - sum(each.wall_s for each in self.ended.values())
        running_s = min(max(0.0, behind_s), sum(rest[: self._cores]))
        return max(0.0, spread_s(rest, self._cores) - running_s / self._cores)


def learnt(folder: Path) -> Pace:
    """How fast this machine is, by all results that are in a folder."""
    pace = Pace()
    for name in sorted(done_in(folder)):
        try:
            each = took(folder / f"{name}{SUFFIX}")
        except (OSError, ValueError, pa.ArrowException):
            continue  # not of this form; it is not ours to judge
        pace.learn(each.work, each.wall_s)
    return pace
