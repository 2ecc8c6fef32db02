"""Background writer: writes the events of a live node in a thread of its own.

Entry point: `BackgroundWriter`. The event loop only appends to a bounded queue; a slow, full or
missing disk delays the thread and never the node. Events beyond the queue are dropped and counted.
Clause: P9.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from thyme.events.segments import EventStats, SegmentWriter

QUEUE_EVENTS_MAX = 50_000
WAKE_S = 0.2


class BackgroundWriter:
    """A queue of encoded events and the thread that writes them to segments."""

    def __init__(self, segments: SegmentWriter, queue_events_max: int = QUEUE_EVENTS_MAX) -> None:
        self._segments = segments
        self._queue: deque[bytes] = deque()
        self._queue_events_max = queue_events_max
        self._overflow = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="thyme-events", daemon=True)
        self._thread.start()

    def put(self, event: bytes) -> None:
        """Queues an encoded event; returns at once."""
        if len(self._queue) >= self._queue_events_max:
            self._overflow += 1
        else:
            self._queue.append(event)

    def read_stats(self) -> EventStats:
        """The counts so far."""
        stats = self._segments.stats
        return EventStats(
            written=stats.written,
            dropped=stats.dropped + self._overflow,
            segments=stats.segments,
            removed=stats.removed,
            recovered=stats.recovered,
            set_aside=stats.set_aside,
        )

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes the queued events and closes the segment; gives up on a disk that hangs."""
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.wait(WAKE_S):
            self._write_queue()
        self._write_queue()
        self._segments.close()

    def _write_queue(self) -> None:
        lines = [self._queue.popleft() for _ in range(len(self._queue))]
        self._segments.write(lines, time.monotonic())
