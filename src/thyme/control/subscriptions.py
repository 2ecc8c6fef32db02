"""Subscription routes: HTTP handlers of subscriptions, with notifications as server-sent events.

A notification waits in a feed until it was written to the reader, and only then counts as consumed,
so that a reader that reconnects misses nothing. A full feed pauses its subscription and catches up
later; other subscriptions are not affected.
Entry point: `SubscriptionRoutes`. The paths are in `server`.
Clauses: M15–M18, M27, M33.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec
from aiohttp import web

from thyme.app.asker import Asker, Outcome
from thyme.app.inputs import as_count
from thyme.app.subscription import answer
from thyme.control.answers import as_json
from thyme.control.bodies import (
    HeldSubscription,
    Interest,
    MoreBatch,
    MoreTold,
    Note,
    Standing,
    read_json,
)
from thyme.model.errors import EndedError, NotFoundError, RejectedError
from thyme.model.frames import as_frame
from thyme.model.ids import Key, SubscriptionId, as_subscription_id
from thyme.model.subscriptions import Notification
from thyme.protocol.requests import (
    Begun,
    CatchUp,
    CaughtUp,
    ListSubscriptions,
    More,
    Pause,
    Resume,
    Subscribe,
    Take,
    Unsubscribe,
    Value,
)
from thyme.query.query import as_query, query_of

FEED_MAX = 1_000
KEEP_ALIVE_S = 15.0
BODY_BYTES_MAX = 2**20

Event = tuple[str, Any]


class Feed:
    """Buffer between the events of one subscription and its server-sent event stream."""

    def __init__(self, asker: Asker, sid: SubscriptionId) -> None:
        self._asker = asker
        self._sid = sid
        self._notes: deque[Notification] = deque()
        self._events: deque[Event] = deque()
        self._refused: list[Key] = []
        self._paused = False
        self._stirred = asyncio.Event()
        self.over: str | None = None
        self.reader: asyncio.Task[Any] | None = None

    def on_note(self, note: Notification) -> None:
        if len(self._notes) < FEED_MAX and not self._paused:
            self._notes.append(note)
        else:
            self._refused.append(note.key)
            if not self._paused:
                self._paused = True
                self._asker.note(Pause(sid=self._sid))
        self._stirred.set()

    def on_caught_up(self, told: CaughtUp) -> None:
        self._events.append(("caught_up", {"total": told.total, "code": told.code}))
        self._stirred.set()

    def on_over(self, reason: str) -> None:
        self.over = reason
        self._stirred.set()

    async def write_to(self, response: web.StreamResponse) -> None:
        """Writes events to a response until the subscription ends."""
        while True:
            while self._notes:
                note = self._notes[0]
                await _write(response, "note", Note.of(note), str(note.key))
                self._notes.popleft()
                self._asker.note(Take(sid=self._sid, key=note.key))
                self._catch_up()
            while self._events:
                await _write(response, *self._events.popleft())
            if self.over is not None and not self._paused:
                await _write(response, "over", {"reason": self.over})
                return
            self._stirred.clear()
            try:
                await asyncio.wait_for(self._stirred.wait(), KEEP_ALIVE_S)
            except TimeoutError:
                await response.write(b": still here\n\n")

    def _catch_up(self) -> None:
        """Ends the pause once half the buffer is free, and requests the missed notifications."""
        if not self._paused or len(self._notes) > FEED_MAX // 2:
            return
        self._paused = False
        refused, self._refused = tuple(self._refused), []

        def on_done(_outcome: Outcome[Value]) -> None:
            self._stirred.set()

        self._asker.ask(
            lambda request_id: CatchUp(ask=request_id, sid=self._sid, refused=refused), on_done
        )


class Subscriptions:
    """HTTP handlers of subscriptions."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._feeds: dict[SubscriptionId, Feed] = {}

    async def subscribe(self, request: web.Request) -> web.StreamResponse:
        wanted = read_json(await request.read(), Interest)
        query = as_query(wanted.query)
        frame = as_frame(wanted.start_us, wanted.end_us, self._asker.now_us())
        batch = as_count(wanted.batch, "batch")
        begun = await self._begin(
            lambda request_id: Subscribe(
                ask=request_id, conjunctions=query.conjunctions, frame=frame, batch=batch
            )
        )
        return as_json(Standing(sid=begun.sid, total=begun.total), 201)

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        held = await answer(self._asker, lambda request_id: ListSubscriptions(ask=request_id))
        assert isinstance(held, tuple)
        return as_json(
            [
                HeldSubscription(
                    sid=one.sid,
                    query=str(query_of(one.conjunctions)),
                    start_us=one.frame.start_us,
                    end_us=one.frame.end_us,
                    batch=one.batch,
                )
                for one in held
            ]
        )

    async def unsubscribe(self, request: web.Request) -> web.StreamResponse:
        sid = _sid(request)
        await answer(self._asker, lambda request_id: Unsubscribe(ask=request_id, sid=sid))
        return web.Response(status=204)

    async def more(self, request: web.Request) -> web.StreamResponse:
        sid = _sid(request)
        wanted = read_json(await request.read(), MoreBatch)
        count = as_count(wanted.count, "count", least=1)
        told = await answer(
            self._asker, lambda request_id: More(ask=request_id, sid=sid, count=count)
        )
        assert isinstance(told, int)
        return as_json(MoreTold(told=told))

    async def events(self, request: web.Request) -> web.StreamResponse:
        feed = await self._feed(_sid(request))
        if feed.reader is not None:
            raise RejectedError("another client is reading this subscription")
        feed.reader = asyncio.current_task()
        try:
            response = web.StreamResponse(headers={"Cache-Control": "no-store"})
            response.content_type = "text/event-stream"
            await response.prepare(request)
            await feed.write_to(response)
            await response.write_eof()
        finally:
            feed.reader = None
            if feed.over is not None:
                self._feeds.pop(_sid(request), None)
        return response

    async def close(self, app: web.Application) -> None:
        """Ends all event streams, since the node stops."""
        for feed in list(self._feeds.values()):
            if feed.reader is not None:
                feed.reader.cancel()

    async def _begin(self, make: Any) -> Begun:
        """Starts or resumes a subscription; creates its feed before the first event arrives."""
        begun: asyncio.Future[Begun] = asyncio.get_running_loop().create_future()

        def on_done(outcome: Outcome[Value]) -> None:
            if isinstance(outcome.value, Begun):
                feed = self._feeds[outcome.value.sid] = Feed(self._asker, outcome.value.sid)
                self._asker.follow(outcome.value.sid, feed)
                if not begun.done():
                    begun.set_result(outcome.value)
            elif not begun.done():
                begun.set_exception(outcome.error or EndedError("no subscription was started"))

        self._asker.ask(make, on_done)
        return await begun

    async def _feed(self, sid: SubscriptionId) -> Feed:
        """The feed of a subscription; one from an earlier incarnation of the node is resumed."""
        if sid not in self._feeds:
            held = await answer(self._asker, lambda request_id: ListSubscriptions(ask=request_id))
            assert isinstance(held, tuple)
            if sid not in [one.sid for one in held]:
                raise NotFoundError(f"this node has no subscription {sid}")
            await self._begin(lambda request_id: Resume(ask=request_id, sid=sid))
        return self._feeds[sid]


def _sid(request: web.Request) -> SubscriptionId:
    return as_subscription_id(request.match_info["sid"])


async def _write(response: web.StreamResponse, event: str, data: Any, name: str = "") -> None:
    head = f"id: {name}\n" if name else ""
    body = msgspec.json.encode(data).decode()
    await response.write(f"{head}event: {event}\ndata: {body}\n\n".encode())
