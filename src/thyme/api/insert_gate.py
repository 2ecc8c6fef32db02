"""Insert gate: limits the unfinished inserts of one application.

Entry points: `InsertGate.enter` and `leave`. An application that inserts faster than its node can
store waits here, instead of filling the memory of the node.
Clause: M35.
"""

from __future__ import annotations

import asyncio
from collections import deque

INSERTS_MAX = 1_000
BYTES_MAX = 16 * 2**20
"""Maximum number of unfinished inserts, and of their bytes; one insert always passes."""


class InsertGate:
    """Lets inserts pass in the order of their arrival, as long as few enough are unfinished."""

    def __init__(self) -> None:
        self._count = 0
        self._bytes = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self, size: int) -> None:
        """Waits until an insert of this size may be sent; it is unfinished until `leave`."""
        while self._is_full() or self._waiting:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._waiting:
                    self._waiting.remove(turn)
                else:
                    self._wake_next()  # its turn had come: the next one takes it
                raise
            if not self._is_full():
                break
        self._count += 1
        self._bytes += size
        self._wake_next()

    def leave(self, size: int) -> None:
        """Ends an insert of this size."""
        self._count -= 1
        self._bytes -= size
        self._wake_next()

    def _is_full(self) -> bool:
        return self._count >= INSERTS_MAX or self._bytes >= BYTES_MAX

    def _wake_next(self) -> None:
        while self._waiting and not self._is_full():
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
