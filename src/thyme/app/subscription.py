"""Subscription: the notifications of one subscription, as an asynchronous iterator.

A bounded buffer lies between the node and the application. If a slow reader lets it fill up, the
overflow policy applies; other subscriptions are not affected (M33):

- `drop_oldest` (default): the oldest notification in the buffer is dropped.
- `drop_newest`: the new notification is dropped.
- `block`: the subscription pauses and reads the missed notifications from the brokers once half
  the buffer is free; none is lost while its object is stored, but it may be late.

Entry point: `Subscription`, from `World.subscribe` or `World.resume`.
Clauses: M15–M18, M27, M33.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Self

from thyme.app.asker import Asker, Outcome
from thyme.app.inputs import as_count
from thyme.model.errors import EndedError, OptionError, ThymeError, failure
from thyme.model.frames import TimeFrame
from thyme.model.ids import Key, SubscriptionId
from thyme.model.subscriptions import Notification
from thyme.protocol.requests import (
    Answered,
    CatchUp,
    CaughtUp,
    More,
    Pause,
    Take,
    Unsubscribe,
    Value,
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


async def answer(asker: Asker, make: Callable[[int], Answered]) -> Value:
    """Sends a request to the node and waits for the reply; raises the error if it failed."""
    future: asyncio.Future[Value] = asyncio.get_running_loop().create_future()

    def on_done(outcome: Outcome[Value]) -> None:
        if future.done():
            return
        if outcome.error is not None:
            future.set_exception(outcome.error)
        else:
            future.set_result(outcome.value)

    asker.ask(make, on_done)
    return await future


class Subscription:
    """The notifications of a subscription: `async for note in subscription`.

    Iteration ends with the subscription: at the end of its time frame, when it is cancelled, or
    when the world is left. After `more` it can be continued.
    """

    def __init__(
        self, asker: Asker, query: Query, frame: TimeFrame, buffer_max: int, policy: Overflow
    ) -> None:
        self._asker = asker
        self._buffer: deque[Notification] = deque()
        self._buffer_max = as_count(buffer_max, "buffer", least=1)
        self._policy = policy
        self._refused: list[Key] = []
        self._paused = False
        self._catching_up = False
        self._stirred = asyncio.Event()
        self._past = asyncio.Event()
        self._past_failure: ThymeError | None = None
        self.sid = SubscriptionId("")
        self.query = query
        self.frame = frame
        self.total = 0
        """Number of stored objects that matched at the start of the subscription (x in M17); with
        several brokers it is complete once `caught_up` returns."""
        self.dropped = 0
        """Number of notifications dropped because the buffer was full."""
        self.over: str | None = None
        """Why the subscription has ended; None while it is active."""

    @property
    def waiting(self) -> int:
        """Number of notifications in the buffer."""
        return len(self._buffer)

    def __repr__(self) -> str:
        state = self.over or "standing"
        return f"<Subscription {self.sid} {str(self.query)!r} over {self.frame}: {state}>"

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        while not self._buffer:
            if self.over is not None and not self._paused:
                raise StopAsyncIteration
            self._stirred.clear()
            await self._stirred.wait()
        return self._take_first()

    def _take_first(self) -> Notification:
        note = self._buffer.popleft()
        self._asker.note(Take(sid=self.sid, key=note.key))
        if self._paused and len(self._buffer) <= self._buffer_max // 2:
            self._catch_up()
        return note

    def take(self) -> list[Notification]:
        """Removes and returns all notifications in the buffer, without waiting."""
        return [self._take_first() for _ in range(len(self._buffer))]

    async def more(self, count: int) -> int:
        """Requests the next `count` past matches, which the iterator then yields; returns their
        number, 0 if there are no more."""
        wanted = as_count(count, "count", least=1)
        if self._paused:
            raise OptionError("the buffer is full: read notifications before requesting more")
        if self.over == _CANCELLED:
            raise EndedError("the subscription was cancelled")
        value = await answer(
            self._asker, lambda request_id: More(ask=request_id, sid=self.sid, count=wanted)
        )
        assert isinstance(value, int)
        return value

    async def caught_up(self) -> None:
        """Waits until the first batch of past matches and all missed notifications arrived."""
        await self._past.wait()
        if self._past_failure is not None:
            raise self._past_failure

    async def cancel(self) -> None:
        """Ends the subscription before the end of its time frame (M18); can be repeated."""
        if self.over is None:
            self.on_over(_CANCELLED)
            await answer(self._asker, lambda request_id: Unsubscribe(ask=request_id, sid=self.sid))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.cancel()

    def begin(self, sid: SubscriptionId, total: int) -> None:
        """Sets the id and total from the node's reply and starts receiving events."""
        self.sid = sid
        self.total = total
        self._asker.follow(sid, self)

    def on_note(self, note: Notification) -> None:
        if len(self._buffer) < self._buffer_max and not self._paused:
            self._buffer.append(note)
        elif self._policy is Overflow.BLOCK:
            self._refused.append(note.key)
            if not self._paused:
                self._paused = True
                self._asker.note(Pause(sid=self.sid))
        else:
            self.dropped += 1
            if self._policy is Overflow.DROP_OLDEST:
                self._buffer.popleft()
                self._buffer.append(note)
        self._stirred.set()

    def on_caught_up(self, told: CaughtUp) -> None:
        self.total = told.total
        if told.code:
            self._past_failure = failure(told.code, "some past matches could not be read")
        self._past.set()

    def on_over(self, reason: str) -> None:
        if self.over is None:
            self.over = reason
        if not self._past.is_set():
            self._past_failure = EndedError(f"the subscription ended: {reason}")
            self._past.set()
        self._stirred.set()

    def _catch_up(self) -> None:
        """Ends the pause and requests the missed notifications."""
        if self._catching_up:
            return
        self._catching_up = True
        self._paused = False
        refused, self._refused = tuple(self._refused), []

        def on_done(_outcome: Outcome[Value]) -> None:
            self._catching_up = False
            if self._paused and len(self._buffer) <= self._buffer_max // 2:
                self._catch_up()
            self._stirred.set()

        try:
            self._asker.ask(
                lambda request_id: CatchUp(ask=request_id, sid=self.sid, refused=refused), on_done
            )
        except EndedError:
            self._catching_up = False
