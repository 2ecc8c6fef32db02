"""Feed: the events of open pages, in order, and the events that a page missed.

Every open page has one stream for everything. A page that reconnects names the last event it got
and receives those since; if they are no longer known, it is asked to load its lists again.
Entry point: `Feed`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from itertools import islice
from typing import Any

import msgspec

EVENTS_MAX = 5_000


class FeedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event; a photo is named by its key and shown to each guest as the guest may see it."""

    number: int
    kind: str
    world: str = ""
    key: str = ""
    guest: str | None = None
    """The only guest that gets the event; None for all."""
    facts: dict[str, Any] = {}


class Feed:
    """The recent events of a gallery server."""

    def __init__(self) -> None:
        self._events: deque[FeedEvent] = deque(maxlen=EVENTS_MAX)
        self._incarnation = secrets.token_hex(4)
        self._last = 0
        self._changed = asyncio.Event()

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    def emit(
        self,
        kind: str,
        *,
        world: str = "",
        key: str = "",
        guest: str | None = None,
        **facts: Any,
    ) -> None:
        """Adds an event."""
        self._last += 1
        event = FeedEvent(
            number=self._last, kind=kind, world=world, key=key, guest=guest, facts=facts
        )
        self._events.append(event)
        self._changed.set()
        self._changed = asyncio.Event()

    def event_id(self, number: int) -> str:
        """The id of an event for pages: it differs between runs of the server."""
        return f"{self._incarnation}-{number}"

    def number_of(self, event_id: str | None) -> int | None:
        """The number of the event with an id; None if it is of another run."""
        incarnation, _, number = (event_id or "").partition("-")
        if incarnation != self._incarnation or not number.isdecimal() or len(number) > 15:
            return None
        return int(number)

    def since(self, number: int) -> list[FeedEvent] | None:
        """The events after one; None if some of them are no longer known."""
        if number >= self._last:
            return []
        if self._events[0].number > number + 1:
            return None
        missing = self._last - number
        return list(islice(self._events, len(self._events) - missing, None))

    async def wait(self, number: int, seconds: float) -> None:
        """Waits until there is an event after one, at most so long."""
        if number < self._last:
            return
        changed = self._changed
        try:
            await asyncio.wait_for(changed.wait(), seconds)
        except TimeoutError:
            return
