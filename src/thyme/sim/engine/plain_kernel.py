"""Plain kernel: the event kernel in Python, the twin of `native/kernel.c`.

Entry point: `PlainKernel`; `kernel` has the rules.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import Any

from thyme.sim.engine.kernel import EventHandler


class PlainKernel:
    """A virtual clock and a queue of scheduled events."""

    def __init__(self, start_us: int = 0) -> None:
        self.now_us = start_us
        self.events_processed = 0
        self._queue: list[tuple[int, int, EventHandler, Any]] = []
        self._sequence = count()

    def schedule(self, at_us: int, event: EventHandler, argument: Any = None) -> None:
        """Schedules an event for an instant, which must not be in the past."""
        heappush(self._queue, (at_us, next(self._sequence), event, argument))

    def next_event_us(self) -> int | None:
        """The instant of the next event; None if none is scheduled."""
        return self._queue[0][0] if self._queue else None

    def run(self, until_us: int) -> None:
        """Runs all events up to and including an instant, and sets the clock to it."""
        queue = self._queue
        events = 0
        while queue and queue[0][0] <= until_us:
            self.now_us, _, event, argument = heappop(queue)
            events += 1
            event(argument)
        self.events_processed += events
        self.now_us = max(self.now_us, until_us)
