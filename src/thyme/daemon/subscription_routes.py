"""Subscription routes: HTTP handlers of subscriptions, with notifications as server-sent events.

A notification waits in a feed until it was written to the reader, and only then counts as consumed.
A reader that reconnects with `Last-Event-ID` gets everything after that event, including the events
written to its broken connection. A full feed pauses its subscription and catches up later; other
subscriptions are not affected.
Entry point: `SubscriptionRoutes`. The paths are in `server`.
Clauses: M15–M18, M27, M33, M34.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec
from aiohttp import web

from thyme.api.arguments import as_count
from thyme.api.session import NodeSession, Outcome
from thyme.daemon.json_schemas import (
    MoreBody,
    MoreDeliveredBody,
    NotificationBody,
    SubscribeBody,
    SubscribedBody,
    SubscriptionBody,
    parse_json,
)
from thyme.daemon.responses import json_response
from thyme.model.errors import ClosedError, NotFoundError, RejectedError, ThymeError
from thyme.model.ids import Key, SubscriptionId, as_subscription_id
from thyme.model.subscriptions import Notification
from thyme.model.time_frames import as_frame
from thyme.protocol.app_interface import (
    CatchUp,
    CaughtUp,
    FetchNextPage,
    ListSubscriptions,
    MarkConsumed,
    Pause,
    ReplyValue,
    Resume,
    Subscribe,
    SubscriptionStarted,
    Unsubscribe,
)
from thyme.query.query import as_query, query_from_conjunctions

FEED_MAX = 1_000
WRITTEN_MAX = 20_000
"""Number of written notifications that a reader can get again with `Last-Event-ID`."""
KEEP_ALIVE_S = 15.0
BODY_BYTES_MAX = 2**20

SseEvent = tuple[str, Any]


class SseFeed:
    """Buffer between the events of one subscription and its server-sent event stream."""

    def __init__(self, session: NodeSession, sid: SubscriptionId, after: Key | None = None) -> None:
        """`after` is the last notification that the reader of a resumed subscription has."""
        self._session = session
        self._sid = sid
        self._notifications: deque[Notification] = deque()
        self._events: deque[SseEvent] = deque()
        self._refused: list[Key] = []
        self._written: deque[Key] = deque([after] if after else [], WRITTEN_MAX)
        self._paused = False
        self._changed = asyncio.Event()
        self.end_reason: str | None = None
        self.reader: asyncio.Task[Any] | None = None

    def on_notification(self, notification: Notification) -> None:
        if len(self._notifications) < FEED_MAX and not self._paused:
            self._notifications.append(notification)
        else:
            self._refused.append(notification.key)
            if not self._paused:
                self._paused = True
                self._session.send_unanswered(Pause(sid=self._sid))
        self._changed.set()

    def on_caught_up(self, event: CaughtUp) -> None:
        self._events.append(("caught_up", {"total": event.total, "code": event.code}))
        self._changed.set()

    def on_lost(self, count: int) -> None:
        self._events.append(("lost", {"count": count}))
        self._changed.set()

    def on_ended(self, reason: str) -> None:
        self.end_reason = reason
        self._changed.set()

    async def write_to(self, response: web.StreamResponse) -> None:
        """Writes events to a response until the subscription ends."""
        while True:
            while self._notifications:
                notification = self._notifications[0]
                await _write_event(
                    response,
                    "note",
                    NotificationBody.from_notification(notification),
                    str(notification.key),
                )
                self._notifications.popleft()
                self._written.append(notification.key)
                self._session.send_unanswered(MarkConsumed(sid=self._sid, key=notification.key))
                self._catch_up()
            while self._events:
                await _write_event(response, *self._events.popleft())
            if self.end_reason is not None and not self._paused:
                await _write_event(response, "over", {"reason": self.end_reason})
                return
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), KEEP_ALIVE_S)
            except TimeoutError:
                await response.write(b": still here\n\n")

    def rewind(self, last: Key) -> None:
        """Requests the notifications again that were written after a notification."""
        if last not in self._written:
            return
        unread: list[Key] = []
        while self._written[-1] != last:
            unread.append(self._written.pop())
        self._refused += reversed(unread)
        if unread and not self._paused:
            self._request_refused()

    def _catch_up(self) -> None:
        """Ends the pause once half the buffer is free, and requests the missed notifications."""
        if self._paused and len(self._notifications) <= FEED_MAX // 2:
            self._request_refused()

    def _request_refused(self) -> None:
        self._paused = False
        refused, self._refused = tuple(self._refused), []

        def on_done(_outcome: Outcome[ReplyValue]) -> None:
            self._changed.set()

        self._session.send_request(
            CatchUp(request_id=self._session.next_id(), sid=self._sid, refused=refused),
            on_done,
        )


class SubscriptionRoutes:
    """HTTP handlers of subscriptions."""

    def __init__(self, session: NodeSession) -> None:
        self._session = session
        self._feeds: dict[SubscriptionId, SseFeed] = {}

    async def subscribe(self, request: web.Request) -> web.StreamResponse:
        body = parse_json(await request.read(), SubscribeBody)
        query = as_query(body.query)
        frame = as_frame(body.start_us, body.end_us, self._session.now_us())
        batch = as_count(body.batch, "batch")
        started = await self._start(
            Subscribe(
                request_id=self._session.next_id(),
                conjunctions=query.conjunctions,
                frame=frame,
                batch=batch,
            )
        )
        return json_response(SubscribedBody(sid=started.sid, total=started.total), 201)

    async def list_all(self, request: web.Request) -> web.StreamResponse:
        active = await self._session.await_reply(
            ListSubscriptions(request_id=self._session.next_id())
        )
        assert isinstance(active, tuple)
        return json_response(
            [
                SubscriptionBody(
                    sid=subscription.sid,
                    query=str(query_from_conjunctions(subscription.conjunctions)),
                    start_us=subscription.frame.start_us,
                    end_us=subscription.frame.end_us,
                    batch=subscription.batch,
                )
                for subscription in active
            ]
        )

    async def unsubscribe(self, request: web.Request) -> web.StreamResponse:
        sid = _subscription_id(request)
        await self._session.await_reply(Unsubscribe(request_id=self._session.next_id(), sid=sid))
        return web.Response(status=204)

    async def more(self, request: web.Request) -> web.StreamResponse:
        sid = _subscription_id(request)
        body = parse_json(await request.read(), MoreBody)
        count = as_count(body.count, "count", least=1)
        delivered = await self._session.await_reply(
            FetchNextPage(request_id=self._session.next_id(), sid=sid, count=count),
        )
        assert isinstance(delivered, int)
        return json_response(MoreDeliveredBody(told=delivered))

    async def events(self, request: web.Request) -> web.StreamResponse:
        last = _last_event_id(request)
        feed = await self._get_feed(_subscription_id(request), last)
        if feed.reader is not None:
            raise RejectedError("another client is reading this subscription")
        feed.reader = asyncio.current_task()
        if last is not None:
            feed.rewind(last)
        try:
            response = web.StreamResponse(headers={"Cache-Control": "no-store"})
            response.content_type = "text/event-stream"
            await response.prepare(request)
            await feed.write_to(response)
            await response.write_eof()
        finally:
            feed.reader = None
            if feed.end_reason is not None:
                self._feeds.pop(_subscription_id(request), None)
        return response

    async def close(self, app: web.Application) -> None:
        """Ends all event streams, since the node stops."""
        for feed in list(self._feeds.values()):
            if feed.reader is not None:
                feed.reader.cancel()

    async def _start(self, subscribe: Subscribe | Resume) -> SubscriptionStarted:
        """Starts or resumes a subscription; creates its feed before the first event arrives."""
        started: asyncio.Future[SubscriptionStarted] = asyncio.get_running_loop().create_future()

        def on_done(outcome: Outcome[ReplyValue]) -> None:
            if isinstance(outcome.value, SubscriptionStarted):
                sid = outcome.value.sid
                after = subscribe.after if isinstance(subscribe, Resume) else None
                feed = self._feeds[sid] = SseFeed(self._session, sid, after)
                self._session.add_listener(sid, feed)
                if not started.done():
                    started.set_result(outcome.value)
            elif not started.done():
                started.set_exception(outcome.error or ClosedError("no subscription was started"))

        self._session.send_request(subscribe, on_done)
        return await started

    async def _get_feed(self, sid: SubscriptionId, last: Key | None) -> SseFeed:
        """The feed of a subscription; one from an earlier incarnation of the node is resumed after
        the last notification that its reader has."""
        if sid not in self._feeds:
            active = await self._session.await_reply(
                ListSubscriptions(request_id=self._session.next_id())
            )
            assert isinstance(active, tuple)
            if sid not in [subscription.sid for subscription in active]:
                raise NotFoundError(f"this node has no subscription {sid}")
            await self._start(Resume(request_id=self._session.next_id(), sid=sid, after=last))
        return self._feeds[sid]


def _last_event_id(request: web.Request) -> Key | None:
    """The last event that a reader has, if it reconnects."""
    text = request.headers.get("Last-Event-ID", "")
    try:
        return Key.parse(text) if text else None
    except ThymeError as error:
        raise RejectedError(f"Last-Event-ID is not the id of an event: {error}") from error


def _subscription_id(request: web.Request) -> SubscriptionId:
    return as_subscription_id(request.match_info["sid"])


async def _write_event(
    response: web.StreamResponse, event: str, data: Any, event_id: str = ""
) -> None:
    head = f"id: {event_id}\n" if event_id else ""
    body = msgspec.json.encode(data).decode()
    await response.write(f"{head}event: {event}\ndata: {body}\n\n".encode())
