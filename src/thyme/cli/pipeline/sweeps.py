"""Sweeps on the command line: the limits of each run, and the progress of all.

Clauses: P5, P11.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.pipeline.sweep.progress import SweepProgress
    from thyme.pipeline.sweep.runner import SweepLimits

PROGRESS_EVERY_S = 15.0


def run_limits(memory: str, timeout: str | None) -> SweepLimits:
    """Parses the limits of each run."""
    from thyme.pipeline.sweep.runner import SweepLimits

    memory_bytes = _parse_unit(memory, "--run-memory", "a size such as 800m or 2g", _SIZES)
    if timeout is None:
        return SweepLimits(memory_max_bytes=memory_bytes)
    seconds = _parse_unit(timeout, "--run-timeout", "a time such as 90s, 30m or 2h", _TIMES)
    return SweepLimits(memory_max_bytes=memory_bytes, seconds_max=seconds)


_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMES = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def _parse_unit(text: str, option: str, form: str, units: dict[str, int]) -> int:
    """Parses a positive whole number with a unit."""
    found = re.fullmatch(r"(\d{1,9})([a-z])", text.strip().lower(), re.ASCII)
    if found is None or found[2] not in units or not int(found[1]):
        raise OptionError(f"{option} is {form}, not {safe_repr(text)}")
    return int(found[1]) * units[found[2]]


# Progress


@contextmanager
def progress_bar(quiet: bool) -> Iterator[Callable[[SweepProgress], None] | None]:
    """Shows a progress bar on a terminal, or a line every 15 s elsewhere."""
    if quiet or sys.stderr is None:
        yield None
    elif sys.stderr.isatty():
        with _ProgressBar() as bar:
            yield bar.show
    else:
        yield _ProgressLines().show


class _ProgressBar:
    """A progress bar with finished runs, rate and remaining time."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._progress = Bars(
            TextColumn("simulating"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=Console(stderr=True),
        )
        self._task: Any = None

    def __enter__(self) -> _ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, now: SweepProgress) -> None:
        fields: Any = {"rate": _format_rate(now), "left": _format_remaining(now)}
        if self._task is None:
            self._progress.start()
            self._task = self._progress.add_task("", total=now.total, **fields)
        self._progress.update(self._task, completed=now.done, **fields)


class _ProgressLines:
    def __init__(self) -> None:
        self._printed_s = time.monotonic()
        self._done = -1

    def show(self, now: SweepProgress) -> None:
        is_last = now.done == now.total and self._done != now.total
        if is_last or time.monotonic() > self._printed_s + PROGRESS_EVERY_S:
            self._printed_s, self._done = time.monotonic(), now.done
            line = f"{now.done}/{now.total} runs, {_format_rate(now)}, {_format_remaining(now)}"
            print(f"thyme: {line}", file=sys.stderr, flush=True)


def _format_rate(now: SweepProgress) -> str:
    failed = f", {now.failed} failed" if now.failed else ""
    return f"{60 * now.runs_per_s:.1f} per minute{failed}"


def _format_remaining(now: SweepProgress) -> str:
    return f"{format_duration(now.remaining_s)} left"


def format_duration(seconds: float) -> str:
    """Formats an estimated duration, rounded."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 5_400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h"
