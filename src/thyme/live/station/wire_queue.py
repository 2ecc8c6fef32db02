"""Wire queue: the messages that wait to be sent to another station.

Entry point: `WireQueue`. The queue is limited in bytes. A message that waited too long is dropped:
its sender has repeated it or given up by then.
Clauses: I27.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from thyme.model.time_frames import SECOND_US

BYTES_MAX = 320 * 2**20
MESSAGES_MAX = 10_000
WAIT_US_MAX = 10 * SECOND_US


class WireQueue:
    """The payloads for one station, in order."""

    def __init__(self) -> None:
        self._payloads: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._is_filled = asyncio.Event()
        self.expired = 0
        """Messages that waited too long for a connection."""

    def __len__(self) -> int:
        return len(self._payloads)

    def put(self, payload: bytes, now_us: int) -> bool:
        """Adds a payload; returns False if the queue is full."""
        self._expire(now_us)
        if len(self._payloads) >= MESSAGES_MAX or self._bytes + len(payload) > BYTES_MAX:
            return False
        self._payloads.append((now_us, payload))
        self._bytes += len(payload)
        self._is_filled.set()
        return True

    async def get(self, now_us: Callable[[], int], wait_s: float) -> bytes:
        """Removes and returns the oldest payload; an empty one if none comes in time."""
        self._expire(now_us())
        if not self._payloads:
            self._is_filled.clear()
            try:
                await asyncio.wait_for(self._is_filled.wait(), wait_s)
            except TimeoutError:
                return b""
        if not self._payloads:
            return b""
        return self._pop()

    def _pop(self) -> bytes:
        _, payload = self._payloads.popleft()
        self._bytes -= len(payload)
        return payload

    def _expire(self, now_us: int) -> None:
        while self._payloads and self._payloads[0][0] + WAIT_US_MAX < now_us:
            self._pop()
            self.expired += 1
