"""World lifetime: ends a world and its subscriptions at a given time.

Entry point: `WorldLifetime`.
Clauses: M21.
"""

from __future__ import annotations

import msgspec

from thyme.model.errors import ClosedError
from thyme.protocol.app_interface import AppRequest, Failed, InsertBatch, MarkConsumed, Pause
from thyme.protocol.outbox import Outbox


class WorldEndTimer(msgspec.Struct, frozen=True):
    """Timer at the end of the world's lifetime."""


class WorldLifetime:
    """The lifetime of a world; without an end if `ends_us` is None."""

    def __init__(self, outbox: Outbox, ends_us: int | None) -> None:
        self._outbox = outbox
        self._ends_us = ends_us

    def set_timer(self) -> None:
        """Sets the timer at the end of the world."""
        if self._ends_us is not None:
            self._outbox.set_timer(WorldEndTimer(), self._ends_us)

    def reject_if_ended(self, request: AppRequest | InsertBatch, now_us: int) -> bool:
        """Fails a request if the world has ended; returns whether it has."""
        if self._ends_us is None or now_us < self._ends_us:
            return False
        if not isinstance(request, MarkConsumed | Pause):
            detail = "the life span of this world is over"
            for one in request.inserts if isinstance(request, InsertBatch) else (request,):
                self._outbox.emit(Failed(one.request_id, ClosedError.code, detail))
        return True
