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

from thyme.app.asker import Asker, OnDone, Outcome
from thyme.app.inputs import Instant, as_count, as_key, insert_request, search_frame
from thyme.model.frames import as_frame
from thyme.model.ids import Key, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.protocol.requests import (
    Answered,
    Begun,
    CaughtUp,
    Delete,
    ListSubscriptions,
    LookUp,
    More,
    Resume,
    Retrieve,
    Search,
    Subscribe,
    Take,
    Unsubscribe,
    Value,
)
from thyme.query.query import Formula, as_query

T = TypeVar("T")
OnNote = Callable[[Notification], None]
OnPast = Callable[[int], None]
OnOver = Callable[[str], None]
_log = logging.getLogger("thyme")


class Handlers:
    """A joined world, with callbacks instead of async and await."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker

    def insert(
        self,
        data: bytes,
        tags: Iterable[str],
        description: bytes | str = b"",
        on_done: OnDone | None = None,
        *,
        oid: str | None = None,
        life: timedelta | None = None,
        copies: int = 1,
        durable: bool = False,
    ) -> None:
        """Stores an object (M13); `on_done` gets its `Key`."""
        self._ask(insert_request(data, tags, description, oid, life, copies, durable), on_done)

    def delete(self, key: Key, on_done: OnDone | None = None) -> None:
        """Deletes an object of this node (M14)."""
        self._ask(lambda request_id: Delete(ask=request_id, key=as_key(key)), on_done)

    def subscribe(
        self,
        query: str | Formula,
        start: Instant | None,
        end: Instant | None,
        on_note: OnNote,
        on_done: OnDone | None = None,
        *,
        batch: int = 20,
        on_past: OnPast | None = None,
        on_over: OnOver | None = None,
    ) -> None:
        """Subscribes (M15); `on_done` gets `SubscriptionStarted`, `on_caught_up` the total."""
        conjunctions = as_query(query).conjunctions
        frame = as_frame(start, end, self._asker.now_us())
        count = as_count(batch, "batch")
        self._ask(
            lambda request_id: Subscribe(
                ask=request_id, conjunctions=conjunctions, frame=frame, batch=count
            ),
            self._following(_CallbackFollower(self._asker, on_note, on_past, on_over), on_done),
        )

    def resume(
        self,
        sid: SubscriptionId,
        on_note: OnNote,
        on_done: OnDone | None = None,
        *,
        on_past: OnPast | None = None,
        on_over: OnOver | None = None,
    ) -> None:
        """Resumes a subscription from an earlier incarnation of this node (M27)."""
        self._ask(
            lambda request_id: Resume(ask=request_id, sid=sid),
            self._following(_CallbackFollower(self._asker, on_note, on_past, on_over), on_done),
        )

    def more(self, sid: SubscriptionId, count: int, on_done: OnDone | None = None) -> None:
        """Requests the next past matches (M17); `on_done` gets the number delivered."""
        wanted = as_count(count, "count", least=1)
        self._ask(lambda request_id: More(ask=request_id, sid=sid, count=wanted), on_done)

    def unsubscribe(self, sid: SubscriptionId, on_done: OnDone | None = None) -> None:
        """Ends a subscription before the end of its time frame (M18)."""
        self._ask(lambda request_id: Unsubscribe(ask=request_id, sid=sid), on_done)

    def subscriptions(self, on_done: OnDone) -> None:
        """Lists the subscriptions of this node; `on_done` gets a tuple of `SubscriptionInfo`."""
        self._ask(lambda request_id: ListSubscriptions(ask=request_id), on_done)

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
        frame = search_frame(start, end, self._asker.now_us())
        count = as_count(limit, "limit")
        self._ask(
            lambda request_id: Search(
                ask=request_id, conjunctions=conjunctions, frame=frame, count=count
            ),
            on_done,
        )

    def retrieve(self, thing: Notification | Metadata | Key, on_done: OnDone | None = None) -> None:
        """Retrieves a notified object (M19); `on_done` gets its bytes."""
        metadata = self._asker.metadata_of(thing)
        self._ask(lambda request_id: Retrieve(ask=request_id, metadata=metadata), on_done)

    def look_up(self, key: Key, on_done: OnDone) -> None:
        """Looks up the state of a key (M32); `on_done` gets `LookupResult`."""
        self._ask(lambda request_id: LookUp(ask=request_id, key=as_key(key)), on_done)

    def _ask(self, make: Callable[[int], Answered], on_done: OnDone | None) -> None:
        self._asker.ask(make, lambda outcome: call(on_done, outcome))

    def _following(self, follower: _CallbackFollower, on_done: OnDone | None) -> OnDone:
        def on_begun(outcome: Outcome[Value]) -> None:
            if isinstance(outcome.value, Begun):
                self._asker.follow(outcome.value.sid, follower)
            call(on_done, outcome)

        return on_begun


class _CallbackFollower:
    """Passes the events of one subscription to the application's callbacks."""

    def __init__(
        self, asker: Asker, on_note: OnNote, on_past: OnPast | None, on_over: OnOver | None
    ) -> None:
        self._asker = asker
        self._on_note = on_note
        self._on_past = on_past
        self._on_over = on_over

    def on_note(self, note: Notification) -> None:
        call(self._on_note, note)
        self._asker.note(Take(sid=note.sid, key=note.key))

    def on_caught_up(self, told: CaughtUp) -> None:
        call(self._on_past, told.total)

    def on_over(self, reason: str) -> None:
        call(self._on_over, reason)


def call(handler: Callable[[T], None] | None, value: T) -> None:
    """Calls a callback of the application; logs its exception."""
    if handler is None:
        return
    try:
        handler(value)
    except Exception:
        _log.exception("a handler of the application raised; the node goes on")
