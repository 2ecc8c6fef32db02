"""The clock of a live node (M36)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from thyme.live.clocks import clock

STARTED_NS = 1_800_000_000_000_000_000
PAUSE_NS = 50_000_000


class InterruptedTime:
    """Clocks of a busy machine: the process waits before some of its readings."""

    def __init__(self, pauses: set[int]) -> None:
        self._pauses = pauses
        self._reading = 0
        self._now_ns = 0

    def _read(self) -> int:
        self._now_ns += 100 + (PAUSE_NS if self._reading in self._pauses else 0)
        self._reading += 1
        return self._now_ns

    def monotonic_ns(self) -> int:
        return self._read()

    def time_ns(self) -> int:
        return STARTED_NS + self._read()


@pytest.mark.parametrize("pauses", [set(), {1}, {2}, {1, 4}, {1, 2, 3, 4, 5, 10}])
def test_m36_a_process_that_is_interrupted_between_its_clocks_starts_with_the_right_time(
    pauses: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = InterruptedTime(pauses)
    time = SimpleNamespace(monotonic_ns=machine.monotonic_ns, time_ns=machine.time_ns)
    monkeypatch.setattr(clock, "time", time)

    started = clock.Clock()

    assert abs(started.behind_us()) < 1_000
