"""Client: carries out the requests of a node's application.

Entry point: `Client.on_request`. Each application request becomes requests to brokers, whose
replies become the reply to the application. Access to objects and brokers is behind
`client_interfaces`, the state of own subscriptions is kept by `subscriber`, and stored matches are
read by `history_reader`.
Clauses: M13–M20, M27, M30, B5.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import assert_never

import msgspec

from thyme.model.errors import (
    CorruptError,
    NotFoundError,
    NotOwnerError,
    RejectedError,
    ThymeError,
    UnsupportedError,
)
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId, draw_name
from thyme.model.metadata import Limits, Metadata, describe
from thyme.model.records import Notary, seal
from thyme.model.subscriptions import Notification, Subscription, SubscriptionKey
from thyme.protocol import messages as wire
from thyme.protocol import requests as app
from thyme.protocol.outbox import Outbox
from thyme.protocol.requests import Failed, Finished, Value
from thyme.query.cursor import cursor_of
from thyme.substrates.brokers import Brokers, Objects, Pages, Source
from thyme.substrates.past import Past, Reading, merged, total_of
from thyme.substrates.subscriber import Own, Place, Subscriber


class Guarantees(msgspec.Struct, frozen=True, kw_only=True):
    """Guarantees that a substrate gives for an insert (M30)."""

    copies_max: int = 1
    durable: bool = False


class Client:
    """Sends requests to brokers on behalf of the application."""

    def __init__(
        self,
        node_id: NodeId,
        objects: Objects,
        brokers: Brokers,
        outbox: Outbox,
        subscriber: Subscriber,
        rng: Random,
        limits: Limits,
        guarantees: Guarantees,
        notary: Notary | None = None,
    ) -> None:
        self._node_id = node_id
        self._objects = objects
        self._brokers = brokers
        self._outbox = outbox
        self._subscriber = subscriber
        self._past = Past(brokers, subscriber)
        self._rng = rng
        self._limits = limits
        self._guarantees = guarantees
        self._notary = notary
        self._stopping: set[tuple[Source, SubscriptionId]] = set()

    def on_asked(self, request: app.Request | app.Together, now_us: int) -> None:
        """Starts a request; one that cannot be carried out fails at once."""
        if isinstance(request, app.Together):
            self._insert_all(request.inserts, now_us)
            return
        if isinstance(request, app.Take):
            self._subscriber.take(request.sid, request.key)
            return
        if isinstance(request, app.Pause):
            self._subscriber.pause(request.sid)
            return
        try:
            self._take_up(request, now_us)
        except ThymeError as error:
            self._fail(request.ask, error.code, str(error))

    def _take_up(self, request: app.Answered, now_us: int) -> None:
        match request:
            case app.Insert():
                self._insert_all((request,), now_us)
            case app.Delete():
                self._delete(request, now_us)
            case app.Subscribe():
                self._subscribe(request, now_us)
            case app.Resume():
                self._resume(request, now_us)
            case app.CatchUp():
                self._catch_up(request, now_us)
            case app.More():
                self._more(request, now_us)
            case app.Unsubscribe():
                self._unsubscribe(request, now_us)
            case app.Search():
                self._search(request, now_us)
            case app.Retrieve():
                self._retrieve(request, now_us)
            case app.LookUp():
                self._look_up(request, now_us)
            case app.ListSubscriptions():
                self._finish(request.ask, self._subscriber.held())
            case _:
                assert_never(request)

    def on_notify(self, sender: Source, message: wire.Notify, now_us: int) -> None:
        """Handles a notification; unknown subscriptions in it are cancelled at the sender."""
        for sid in message.sids:
            if not self._subscriber.on_notify(sid, message.metadata, now_us):
                self._stop(sid, sender, now_us)

    def stop_unless_own(self, sid: SubscriptionId, source: Source, now_us: int) -> None:
        """Cancels a subscription of this node at a broker if this node no longer has it."""
        if self._subscriber.get(sid) is None:
            self._stop(sid, source, now_us)

    def on_late_page(self, sender: Source, message: wire.OwnerPage, now_us: int) -> None:
        """Handles a page of stored matches that arrives after the first pages were merged."""
        own = self._subscriber.get(message.sid)
        if own is None:
            self._stop(message.sid, sender, now_us)
        elif own.attached and own.begun:  # else the page is part of the reply
            items = message.items[: own.batch]
            self._subscriber.tell_past(own, items, now_us)
            before = cursor_of(items[-1]) if items else None
            more = message.more or len(items) < len(message.items)
            self._subscriber.read_to(own, {sender: Place(before, more)})

    # Objects

    def _insert_all(self, requests: tuple[app.Insert, ...], now_us: int) -> None:
        described: list[tuple[app.Insert, Metadata]] = []
        for request in requests:
            try:
                described.append((request, self._describe(request, now_us)))
            except ThymeError as error:
                self._fail(request.ask, error.code, str(error))
        seal([metadata for _, metadata in described], self._notary)
        for request, metadata in described:
            self._insert(request, metadata, now_us)

    def _insert(self, request: app.Insert, metadata: Metadata, now_us: int) -> None:
        self._objects.insert(
            metadata,
            request.data,
            now_us,
            lambda code, detail, _: self._answer(request.ask, metadata.key, code, detail),
        )

    def _describe(self, request: app.Insert, now_us: int) -> Metadata:
        self._refuse_guarantees(request)
        key = Key(request.oid or ObjectId(draw_name(self._rng)), self._node_id)
        return describe(
            key,
            request.data,
            request.tags,
            now_us,
            summary=request.summary,
            expires_us=None if request.life_us is None else now_us + request.life_us,
            limits=self._limits,
        )

    def _refuse_guarantees(self, request: app.Insert) -> None:
        copies_max = self._guarantees.copies_max
        if request.copies > copies_max:
            raise UnsupportedError(
                f"{request.copies} copies were requested; this substrate stores {copies_max}"
            )
        if request.durable and not self._guarantees.durable:
            raise UnsupportedError("a durable insert was requested; this world is stored in memory")

    def _delete(self, request: app.Delete, now_us: int) -> None:
        if request.key.owner != self._node_id:
            raise NotOwnerError(f"{request.key} belongs to another node: only its owner may delete")
        self._objects.delete(
            request.key,
            now_us,
            lambda code, detail, _: self._answer(request.ask, None, code, detail),
        )

    def _retrieve(self, request: app.Retrieve, now_us: int) -> None:
        metadata = request.metadata

        def on_data(data: bytes, _now_us: int) -> None:
            if metadata.describes(data):
                self._finish(request.ask, data)
            else:
                detail = f"received data does not match {metadata.key}: the digest differs"
                self._fail(request.ask, CorruptError.code, detail)

        self._objects.retrieve(
            metadata, now_us, on_data, lambda code, detail, _: self._fail(request.ask, code, detail)
        )

    def _look_up(self, request: app.LookUp, now_us: int) -> None:
        self._objects.look_up(
            request.key,
            now_us,
            lambda known, _: self._finish(request.ask, known),
            lambda code, detail, _: self._fail(request.ask, code, detail),
        )

    def _search(self, request: app.Search, now_us: int) -> None:
        def on_pages(pages: Pages, now_us: int) -> None:
            sid = SubscriptionId("search")
            items = merged(pages, request.count)
            found = tuple(Notification(sid, item, now_us, past=True) for item in items)
            self._finish(request.ask, app.Found(found, total_of(pages)))

        self._brokers.search(
            lambda number: wire.FetchPage(
                number, request.conjunctions, request.frame, request.count
            ),
            now_us,
            on_pages,
            lambda code, detail, _: self._fail(request.ask, code, detail),
        )

    # Subscriptions

    def _subscribe(self, request: app.Subscribe, now_us: int) -> None:
        if self._subscriber.full():
            raise RejectedError("too many subscriptions on this node: cancel some first")
        key = SubscriptionKey(SubscriptionId(draw_name(self._rng)), self._node_id)
        subscription = Subscription(key, request.conjunctions, request.frame)
        own = self._subscriber.open(subscription, request.batch)

        def on_failure(code: str, detail: str, now_us: int) -> None:
            self._subscriber.cancel(own)
            self._fail(request.ask, code, detail)

        self._start(request.ask, own, None, now_us, on_failure)

    def _resume(self, request: app.Resume, now_us: int) -> None:
        own = self._own(request.sid)
        if own.attached:
            raise RejectedError(f"subscription {request.sid} is already attached to an application")
        own.attached = True

        def on_failure(code: str, detail: str, now_us: int) -> None:
            own.attached = False
            own.readings -= 1
            self._fail(request.ask, code, detail)

        self._start(request.ask, own, self._subscriber.resumes_from_us(own), now_us, on_failure)

    def _start(
        self,
        ask: int,
        own: Own,
        since_us: int | None,
        now_us: int,
        on_failure: Callable[[str, str, int], None],
    ) -> None:
        """Activates a subscription at the brokers, and starts reading from their first pages."""

        def on_begun(total: int, now_us: int) -> None:
            self._finish(ask, app.Begun(own.sid, total))
            self._subscriber.begin(own, now_us)

        def on_pages(pages: Pages, now_us: int) -> None:
            total = total_of(pages)
            reading = Reading(
                own,
                lambda code, _, now_us: self._subscriber.caught_up(own, total, code, now_us),
                wanted=own.batch,
                since_us=since_us,
            )
            self._past.on_pages(reading, pages, now_us)

        own.readings += 1
        self._brokers.subscribe(own.subscription, own.batch, now_us, on_begun, on_pages, on_failure)

    def _more(self, request: app.More, now_us: int) -> None:
        own = self._own(request.sid)
        if not own.attached:
            raise RejectedError(f"subscription {request.sid} is not attached: resume it first")
        if own.places is None:
            own.after_first.append(lambda now_us: self.on_asked(request, now_us))
            return
        reading = Reading(
            own,
            lambda code, detail, _: self._answer(request.ask, reading.told, code, detail),
            wanted=request.count,
            fresh_only=True,
            places={source: place for source, place in own.places.items() if place.more},
        )
        if reading.places:
            self._past.read_on(reading, now_us)
        else:
            self._finish(request.ask, 0)

    def _catch_up(self, request: app.CatchUp, now_us: int) -> None:
        own = self._own(request.sid)
        missed_us = self._subscriber.unpause(own, request.refused)
        if missed_us is None:
            self._finish(request.ask, None)
            return
        reading = Reading(
            own,
            lambda code, detail, _: self._answer(request.ask, None, code, detail),
            wanted=0,
            since_us=missed_us,
        )
        self._past.read_newest(reading, now_us)

    def _unsubscribe(self, request: app.Unsubscribe, now_us: int) -> None:
        own = self._own(request.sid)
        self._subscriber.cancel(own)
        self._brokers.unsubscribe(
            own.subscription.key,
            now_us,
            lambda code, detail, _: self._answer(request.ask, None, code, detail),
        )

    def _stop(self, sid: SubscriptionId, source: Source, now_us: int) -> None:
        """Cancels a subscription that is unknown to this node at a broker."""
        stopping = (source, sid)
        if stopping in self._stopping:
            return
        self._stopping.add(stopping)
        key = SubscriptionKey(sid, self._node_id)
        self._brokers.stop(
            source, key, now_us, lambda _code, _detail, _now_us: self._stopping.discard(stopping)
        )

    def _own(self, sid: SubscriptionId) -> Own:
        own = self._subscriber.get(sid)
        if own is None:
            raise NotFoundError(f"this node has no subscription {sid}, or it has ended")
        return own

    # Replies to the application

    def _answer(self, ask: int, value: Value, code: str, detail: str) -> None:
        if code:
            self._fail(ask, code, detail)
        else:
            self._finish(ask, value)

    def _finish(self, ask: int, value: Value) -> None:
        self._outbox.tell(Finished(ask, value))

    def _fail(self, ask: int, code: str, detail: str) -> None:
        self._outbox.tell(Failed(ask, code, detail))
