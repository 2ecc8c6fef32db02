"""Life span: a world that ends at a given instant, and takes its subscriptions with it (M21)."""

from __future__ import annotations

import msgspec

from thyme.model.errors import EndedError
from thyme.protocol.outbox import Outbox
from thyme.protocol.requests import Failed, Pause, Request, Take, Together


class WorldOver(msgspec.Struct, frozen=True):
    """The timer at the end of the world's life span."""


class LifeSpan:
    """Until when a world lives; None for ever."""

    def __init__(self, outbox: Outbox, ends_us: int | None) -> None:
        self._outbox = outbox
        self._ends_us = ends_us

    def set_timer(self) -> None:
        """Asks to be told of the end."""
        if self._ends_us is not None:
            self._outbox.set_timer(WorldOver(), self._ends_us)

    def refuses(self, request: Request | Together, now_us: int) -> bool:
        """Whether a request comes too late; if so, it fails."""
        if self._ends_us is None or now_us < self._ends_us:
            return False
        if not isinstance(request, Take | Pause):
            detail = "the life span of this world is over"
            for one in request.inserts if isinstance(request, Together) else (request,):
                self._outbox.tell(Failed(one.ask, EndedError.code, detail))
        return True
