"""Timers: the timers of a live node, and the one alarm of the asyncio loop for all of them.

Entry points: `TimerQueue`, `Alarm`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from thyme.protocol.node import Timer

_SLEEP_US_MAX = 3_600_000_000
_SLACK_WAIT_US_MIN = 400_000
_SLACK_US = 100_000
"""A timer that is not near fires so much later, with those due by then: fewer wake-ups."""


class TimerQueue:
    """The set timers of one node, by the time they are due."""

    def __init__(self) -> None:
        self._due_us: dict[Timer, int] = {}
        self._heap: list[tuple[int, int, Timer]] = []
        self._serial = 0

    def set(self, timer: Timer, at_us: int) -> None:
        """Sets a timer; an equal timer that is already set moves to the new time."""
        self._due_us[timer] = at_us
        self._serial += 1
        heappush(self._heap, (at_us, self._serial, timer))

    def cancel(self, timer: Timer) -> None:
        """Cancels a timer, if it is set."""
        self._due_us.pop(timer, None)

    def clear(self) -> None:
        """Cancels all timers."""
        self._due_us.clear()
        self._heap.clear()

    def next_due_us(self) -> int | None:
        """When the first timer is due; None if none is set."""
        while self._heap and self._due_us.get(self._heap[0][2]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_us: int) -> list[Timer]:
        """Removes and returns the timers that are due, in their order."""
        due: list[Timer] = []
        while self._heap and self._heap[0][0] <= now_us:
            at_us, _, timer = heappop(self._heap)
            if self._due_us.get(timer) == at_us:
                del self._due_us[timer]
                due.append(timer)
        return due


class Alarm:
    """Calls a function at the first of the times that it is set to."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_alarm: Callable[[], None]) -> None:
        self._loop = loop
        self._on_alarm = on_alarm
        self._handle: asyncio.TimerHandle | None = None
        self._at_us = 0

    def set(self, at_us: int, now_us: int) -> None:
        """Sets the alarm. If it is already set for an earlier time it stays: an early alarm is
        harmless and cheaper than a new one per datagram."""
        wait_us = min(max(0, at_us - now_us), _SLEEP_US_MAX)
        if wait_us >= _SLACK_WAIT_US_MIN:
            at_us += _SLACK_US
            wait_us += _SLACK_US
        if self._handle is not None:
            if self._at_us <= at_us:
                return
            self._handle.cancel()
        self._at_us = at_us
        self._handle = self._loop.call_later(wait_us / 1e6, self._fire)

    def cancel(self) -> None:
        """Cancels the alarm, if it is set."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _fire(self) -> None:
        self._handle = None
        self._on_alarm()
