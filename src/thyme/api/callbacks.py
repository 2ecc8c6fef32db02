"""Callback API: a world with plain callbacks, as in Table 4 of Thyme (journal article).

Every operation returns at once. Its `on_done` is called with an `Outcome`, which holds the value or
the error; `on_notification` of a subscription is called with each notification. An exception in a
callback is logged and affects no other callback. Invalid arguments raise at once. Events may arrive
early: the notification of an object that this node inserts may precede `on_done` of the insert.
Entry point: `CallbackWorld`, from `World.callbacks`.
Clauses: M13–M20.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TypeVar

from thyme.api.arguments import Instant, as_count, as_key, make_insert, search_frame
from thyme.api.session import NodeSession, OnDone, Outcome
from thyme.model.ids import Key, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.time_frames import as_frame
from thyme.protocol.app_interface import (
    CaughtUp,
    Delete,
    FetchNextPage,
    ListSubscriptions,
    Lookup,
    MarkConsumed,
    ReplyValue,
    RequestWithReply,
    Resume,
    Retrieve,
    Search,
    Subscribe,
    SubscriptionStarted,
    Unsubscribe,
)
from thyme.query.query import Formula, as_query

T = TypeVar("T")
OnNotification = Callable[[Notification], None]
OnCaughtUp = Callable[[int], None]
OnLost = Callable[[int], None]
OnEnded = Callable[[str], None]
_log = logging.getLogger("thyme")


class CallbackWorld:
    """A joined world, with callbacks instead of async and await."""

    def __init__(self, session: NodeSession) -> None:
        self._session = session

    def insert(
        self,
        data: bytes,
        tags: Iterable[str],
        description: bytes | str = b"",
        on_done: OnDone | None = None,
        *,
        oid: str | None = None,
        ttl: timedelta | None = None,
        copies: int = 1,
        durable: bool = False,
        replicas: int | str | None = None,
    ) -> None:
        """Stores an object (M13); `on_done` gets its `Key`."""
        request_id = self._session.next_id()
        insert = make_insert(
            request_id, data, tags, description, oid, ttl, copies, durable, replicas
        )
        self._send_request(insert, on_done)

    def delete(self, key: Key, on_done: OnDone | None = None) -> None:
        """Deletes an object of this node (M14)."""
        self._send_request(Delete(request_id=self._session.next_id(), key=as_key(key)), on_done)

    def subscribe(
        self,
        query: str | Formula,
        start: Instant | None,
        end: Instant | None,
        on_notification: OnNotification,
        on_done: OnDone | None = None,
        *,
        batch: int = 20,
        on_caught_up: OnCaughtUp | None = None,
        on_lost: OnLost | None = None,
        on_ended: OnEnded | None = None,
    ) -> None:
        """Subscribes (M15); `on_done` gets `SubscriptionStarted`, `on_caught_up` the total."""
        conjunctions = as_query(query).conjunctions
        frame = as_frame(start, end, self._session.now_us())
        count = as_count(batch, "batch")
        self._send_request(
            Subscribe(
                request_id=self._session.next_id(),
                conjunctions=conjunctions,
                frame=frame,
                batch=count,
            ),
            self._start_listening(
                _CallbackListener(self._session, on_notification, on_caught_up, on_lost, on_ended),
                on_done,
            ),
        )

    def resume(
        self,
        sid: SubscriptionId,
        on_notification: OnNotification,
        on_done: OnDone | None = None,
        *,
        on_caught_up: OnCaughtUp | None = None,
        on_lost: OnLost | None = None,
        on_ended: OnEnded | None = None,
    ) -> None:
        """Resumes a subscription from an earlier incarnation of this node (M27)."""
        self._send_request(
            Resume(request_id=self._session.next_id(), sid=sid),
            self._start_listening(
                _CallbackListener(self._session, on_notification, on_caught_up, on_lost, on_ended),
                on_done,
            ),
        )

    def more(self, sid: SubscriptionId, count: int, on_done: OnDone | None = None) -> None:
        """Requests the next past matches (M17); `on_done` gets the number delivered."""
        wanted = as_count(count, "count", least=1)
        self._send_request(
            FetchNextPage(request_id=self._session.next_id(), sid=sid, count=wanted), on_done
        )

    def unsubscribe(self, sid: SubscriptionId, on_done: OnDone | None = None) -> None:
        """Ends a subscription before the end of its time frame (M18)."""
        self._send_request(Unsubscribe(request_id=self._session.next_id(), sid=sid), on_done)

    def subscriptions(self, on_done: OnDone) -> None:
        """Lists the subscriptions of this node; `on_done` gets a tuple of `SubscriptionInfo`."""
        self._send_request(ListSubscriptions(request_id=self._session.next_id()), on_done)

    def search(
        self,
        query: str | Formula,
        start: Instant | None = None,
        end: Instant | None = None,
        on_done: OnDone | None = None,
        *,
        limit: int = 20,
    ) -> None:
        """Searches the catalogue once (M20); `on_done` gets `SearchResult`."""
        conjunctions = as_query(query).conjunctions
        frame = search_frame(start, end, self._session.now_us())
        count = as_count(limit, "limit")
        self._send_request(
            Search(
                request_id=self._session.next_id(),
                conjunctions=conjunctions,
                frame=frame,
                count=count,
            ),
            on_done,
        )

    def retrieve(
        self, object_ref: Notification | Metadata | Key, on_done: OnDone | None = None
    ) -> None:
        """Retrieves a notified object (M19); `on_done` gets its bytes."""
        metadata = self._session.resolve_metadata(object_ref)
        self._send_request(Retrieve(request_id=self._session.next_id(), metadata=metadata), on_done)

    def look_up(self, key: Key, on_done: OnDone) -> None:
        """Looks up the state of a key (M32); `on_done` gets `LookupResult`."""
        self._send_request(Lookup(request_id=self._session.next_id(), key=as_key(key)), on_done)

    def _send_request(self, request: RequestWithReply, on_done: OnDone | None) -> None:
        self._session.send_request(request, lambda outcome: call_user_handler(on_done, outcome))

    def _start_listening(self, listener: _CallbackListener, on_done: OnDone | None) -> OnDone:
        def on_begun(outcome: Outcome[ReplyValue]) -> None:
            if isinstance(outcome.value, SubscriptionStarted):
                self._session.add_listener(outcome.value.sid, listener)
            call_user_handler(on_done, outcome)

        return on_begun


class _CallbackListener:
    """Passes the events of one subscription to the application's callbacks."""

    def __init__(
        self,
        session: NodeSession,
        on_notification: OnNotification,
        on_caught_up: OnCaughtUp | None,
        on_lost: OnLost | None,
        on_ended: OnEnded | None,
    ) -> None:
        self._session = session
        self._on_notification = on_notification
        self._on_caught_up = on_caught_up
        self._on_lost = on_lost
        self._on_ended = on_ended

    def on_notification(self, notification: Notification) -> None:
        call_user_handler(self._on_notification, notification)
        self._session.send_unanswered(MarkConsumed(sid=notification.sid, key=notification.key))

    def on_caught_up(self, event: CaughtUp) -> None:
        call_user_handler(self._on_caught_up, event.total)

    def on_lost(self, count: int) -> None:
        call_user_handler(self._on_lost, count)

    def on_ended(self, reason: str) -> None:
        call_user_handler(self._on_ended, reason)


def call_user_handler(handler: Callable[[T], None] | None, value: T) -> None:
    """Calls a callback of the application; logs its exception."""
    if handler is None:
        return
    try:
        handler(value)
    except Exception:
        _log.exception("a handler of the application raised; the node goes on")
