"""A subscription as an application holds it: iterate over it, ask it for more, cancel it.

Between the node and the application lies a bounded buffer; when a slow reader lets it fill up, the
named policy decides, and nobody else is hurt (M33):

- `drop_oldest` (default): the note that has waited longest goes; the newest news is kept.
- `drop_newest`: what does not fit is not taken.
- `block`: the subscription pauses, and reads what it missed from the store once half the buffer is
  free; nothing is lost while it is stored, but it may come late.

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
    """What to do when the buffer of a subscription is full."""

    DROP_OLDEST = "drop_oldest"
    DROP_NEWEST = "drop_newest"
    BLOCK = "block"


def as_overflow(policy: str | Overflow) -> Overflow:
    """A policy from its name."""
    try:
        return Overflow(policy)
    except ValueError:
        names = ", ".join(member.value for member in Overflow)
        raise OptionError(f"a policy for full buffers is one of {names}, not {policy!r}") from None


async def answer(asker: Asker, make: Callable[[int], Answered]) -> Value:
    """Asks the node and waits; raises the error the operation ended in."""
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
    """Notifications as they come: `async for note in subscription`.

    Iteration ends when nothing more can come: the frame is over, it was cancelled, or the world was
    left. After `more` it can be taken up again.
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
        """How many stored objects matched when the subscription was made (the x of M17); where
        nobody knows all brokers, it is complete when `caught_up` returns."""
        self.dropped = 0
        """How many notifications a full buffer cost."""
        self.over: str | None = None
        """Why nothing new will come; None while it may."""

    @property
    def waiting(self) -> int:
        """How many notifications have come and were not taken."""
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
        """All notifications that have come so far, without waiting for any."""
        return [self._take_first() for _ in range(len(self._buffer))]

    async def more(self, count: int) -> int:
        """Asks for the next `count` of the past; they come by iteration. Returns how many came:
        0 when there are no more."""
        wanted = as_count(count, "count", least=1)
        if self._paused:
            raise OptionError("the buffer is full: take notifications before asking for more")
        if self.over == _CANCELLED:
            raise EndedError("the subscription was cancelled")
        value = await answer(self._asker, lambda ask: More(ask=ask, sid=self.sid, count=wanted))
        assert isinstance(value, int)
        return value

    async def caught_up(self) -> None:
        """Waits until the first batch of the past, and all that was missed while away, is here."""
        await self._past.wait()
        if self._past_failure is not None:
            raise self._past_failure

    async def cancel(self) -> None:
        """Ends the subscription before its time (M18); a second time does nothing."""
        if self.over is None:
            self.on_over(_CANCELLED)
            await answer(self._asker, lambda ask: Unsubscribe(ask=ask, sid=self.sid))

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
        """The node has it: news will come."""
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
            self._past_failure = failure(told.code, "some of the past could not be read")
        self._past.set()

    def on_over(self, reason: str) -> None:
        if self.over is None:
            self.over = reason
        if not self._past.is_set():
            self._past_failure = EndedError(f"the subscription ended: {reason}")
            self._past.set()
        self._stirred.set()

    def _catch_up(self) -> None:
        """There is room again: asks for what was missed."""
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
            self._asker.ask(lambda ask: CatchUp(ask=ask, sid=self.sid, refused=refused), on_done)
        except EndedError:
            self._catching_up = False
