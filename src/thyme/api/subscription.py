"""Subscription: the notifications of one subscription, as an asynchronous iterator.

A bounded buffer lies between the node and the application. If a slow reader lets it fill up, the
overflow policy applies; other subscriptions are not affected (M33):

- `block` (default): the subscription pauses and reads the missed notifications from the brokers
  once half the buffer is free; none is lost while its object is stored, but it may be late (M34).
- `drop_oldest`: the oldest notification in the buffer is dropped.
- `drop_newest`: the new notification is dropped.

Entry point: `Subscription`, from `World.subscribe` or `World.resume`.
Clauses: M15–M18, M27, M33, M34.
"""

from __future__ import annotations

import asyncio
from collections import deque
from enum import Enum
from types import TracebackType
from typing import Self

from thyme.api.arguments import as_count
from thyme.api.session import NodeSession, Outcome
from thyme.model.errors import ClosedError, OptionError, ThymeError, error_for_code
from thyme.model.ids import Key, SubscriptionId
from thyme.model.subscriptions import Notification
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import (
    CatchUp,
    CaughtUp,
    FetchNextPage,
    MarkConsumed,
    Pause,
    ReplyValue,
    Unsubscribe,
)
from thyme.query.query import Query

_CANCELLED = "cancelled"


class Overflow(Enum):
    """Policy for notifications that arrive while the buffer is full."""

    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    BLOCK = "block"


def as_overflow(policy: str | Overflow) -> Overflow:
    """The overflow policy of a name."""
    try:
        return Overflow(policy)
    except ValueError:
        names = ", ".join(member.value for member in Overflow)
        raise OptionError(f"the overflow policy must be one of {names}, not {policy!r}") from None


class Subscription:
    """The notifications of a subscription: `async for note in subscription`.

    Iteration ends with the subscription: at the end of its time frame, when it is cancelled, or
    when the world is left. After `more` it can be continued.
    """

    def __init__(
        self,
        session: NodeSession,
        query: Query,
        frame: TimeFrame,
        buffer_max: int,
        overflow: Overflow,
    ) -> None:
        self._session = session
        self._buffer: deque[Notification] = deque()
        self._buffer_max = as_count(buffer_max, "buffer", least=1)
        self._overflow = overflow
        self._refused: list[Key] = []
        self._paused = False
        self._catching_up = False
        self._changed = asyncio.Event()
        self._caught_up = asyncio.Event()
        self._history_error: ThymeError | None = None
        self.sid = SubscriptionId("")
        self.query = query
        self.frame = frame
        self.total = 0
        """Number of stored objects that matched at the start of the subscription (x in M17); with
        several brokers it is complete once `caught_up` returns."""
        self.dropped = 0
        """Number of notifications dropped because the buffer was full."""
        self.lost = 0
        """Number of matches that were removed by retention before they could be notified (M34)."""
        self.end_reason: str | None = None
        """Why the subscription has ended; None while it is active."""

    @property
    def buffered(self) -> int:
        """Number of notifications in the buffer."""
        return len(self._buffer)

    def __repr__(self) -> str:
        state = self.end_reason or "standing"
        return f"<Subscription {self.sid} {str(self.query)!r} over {self.frame}: {state}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        while not self._buffer:
            if self.end_reason is not None and not self._paused:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        return self._pop_first()

    def _pop_first(self) -> Notification:
        notification = self._buffer.popleft()
        self._session.send_unanswered(MarkConsumed(sid=self.sid, key=notification.key))
        if self._paused and len(self._buffer) <= self._buffer_max // 2:
            self._catch_up()
        return notification

    def drain(self) -> list[Notification]:
        """Removes and returns all notifications in the buffer, without waiting."""
        return [self._pop_first() for _ in range(len(self._buffer))]

    async def more(self, count: int) -> int:
        """Requests the next `count` past matches, which the iterator then yields; returns their
        number, 0 if there are no more."""
        wanted = as_count(count, "count", least=1)
        if self._paused:
            raise OptionError("the buffer is full: read notifications before requesting more")
        if self.end_reason == _CANCELLED:
            raise ClosedError("the subscription was cancelled")
        value = await self._session.await_reply(
            FetchNextPage(request_id=self._session.next_id(), sid=self.sid, count=wanted),
        )
        assert isinstance(value, int)
        return value

    async def caught_up(self) -> None:
        """Waits until the first batch of past matches and all missed notifications arrived."""
        await self._caught_up.wait()
        if self._history_error is not None:
            raise self._history_error

    async def cancel(self) -> None:
        """Ends the subscription before the end of its time frame (M18); can be repeated."""
        if self.end_reason is None:
            self.on_ended(_CANCELLED)
            await self._session.await_reply(
                Unsubscribe(request_id=self._session.next_id(), sid=self.sid)
            )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.cancel()

    def start(self, sid: SubscriptionId, total: int) -> None:
        """Sets the id and total from the node's reply and starts receiving events."""
        self.sid = sid
        self.total = total
        self._session.add_listener(sid, self)

    def on_notification(self, notification: Notification) -> None:
        if len(self._buffer) < self._buffer_max and not self._paused:
            self._buffer.append(notification)
        elif self._overflow is Overflow.BLOCK:
            self._refused.append(notification.key)
            if not self._paused:
                self._paused = True
                self._session.send_unanswered(Pause(sid=self.sid))
        else:
            self.dropped += 1
            dropped = notification
            if self._overflow is Overflow.DROP_OLDEST:
                dropped = self._buffer.popleft()
                self._buffer.append(notification)
            self._session.send_unanswered(MarkConsumed(sid=self.sid, key=dropped.key))
        self._changed.set()

    def on_caught_up(self, event: CaughtUp) -> None:
        self.total = event.total
        if event.code:
            self._history_error = error_for_code(event.code, "some past matches could not be read")
        self._caught_up.set()

    def on_lost(self, count: int) -> None:
        self.lost += count

    def on_ended(self, reason: str) -> None:
        if self.end_reason is None:
            self.end_reason = reason
        if not self._caught_up.is_set():
            self._history_error = ClosedError(f"the subscription ended: {reason}")
            self._caught_up.set()
        self._changed.set()

    def _catch_up(self) -> None:
        """Ends the pause and requests the missed notifications."""
        if self._catching_up:
            return
        self._catching_up = True
        self._paused = False
        refused, self._refused = tuple(self._refused), []

        def on_done(_outcome: Outcome[ReplyValue]) -> None:
            self._catching_up = False
            if self._paused and len(self._buffer) <= self._buffer_max // 2:
                self._catch_up()
            self._changed.set()

        try:
            self._session.send_request(
                CatchUp(request_id=self._session.next_id(), sid=self.sid, refused=refused),
                on_done,
            )
        except ClosedError:
            self._catching_up = False
