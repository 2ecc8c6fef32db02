"""The kernel: what happens next, and what time it is.

Events are functions with one argument. Events of the same instant happen in the order in which
they were asked for, so a run is the same every time. An event is not taken back; whoever asked for
it looks, when it comes, whether it still matters.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Any

Event = Callable[[Any], None]


class Kernel:
    """A clock and the events to come."""

    def __init__(self, start_us: int = 0) -> None:
        self.now_us = start_us
        self.events = 0
        self._queue: list[tuple[int, int, Event, Any]] = []
        self._numbers = count()

    def at(self, at_us: int, event: Event, argument: Any = None) -> None:
        """Asks for an event at an instant, which is now or later."""
        heappush(self._queue, (at_us, next(self._numbers), event, argument))

    def next_us(self) -> int | None:
        """The instant of the next event."""
        return self._queue[0][0] if self._queue else None

    def run(self, until_us: int) -> None:
        """Lets everything up to an instant happen."""
        queue = self._queue
        events = 0
        while queue and queue[0][0] <= until_us:
            self.now_us, _, event, argument = heappop(queue)
            events += 1
            event(argument)
        self.events += events
        self.now_us = max(self.now_us, until_us)
