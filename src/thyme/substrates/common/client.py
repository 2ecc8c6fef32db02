"""Client: carries out the requests of a node's application.

Entry point: `Client.on_request`. Each application request becomes requests to brokers, whose
replies become the reply to the application. Access to objects and brokers is behind
`client_interfaces`, the state of own subscriptions is kept by `subscriber`, and stored matches are
read by `history_reader`.
Clauses: M13–M20, M27, M30, M34, M37, D14, B5.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import assert_never

from msgspec import UNSET

from thyme.model.errors import (
    CorruptError,
    NotFoundError,
    NotOwnerError,
    OperationTimeoutError,
    RejectedError,
    ThymeError,
    UnsupportedError,
)
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId, new_subscription_id, random_id
from thyme.model.metadata import Content, Limits, Metadata, make_metadata
from thyme.model.object_chunks import is_large
from thyme.model.signed_records import RecordSigner, sign_metadata
from thyme.model.subscriptions import Notification, SubscriptionKey, SubscriptionRecord
from thyme.protocol import app_interface as app
from thyme.protocol.app_interface import Failed, Finished, ReplyValue, StorageOptions
from thyme.protocol.messages import common as wire
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.query.cursor import cursor_at
from thyme.substrates.chunks.large_objects import LargeObjects
from thyme.substrates.common.client_interfaces import (
    BrokerClient,
    BrokerId,
    Guarantees,
    MissedSource,
    ObjectClient,
    PageQuery,
    Pages,
)
from thyme.substrates.common.gap_reader import GapReader
from thyme.substrates.common.history_reader import (
    HistoryRead,
    HistoryReader,
    merge_pages,
    total_matches,
    unanswered_brokers,
)
from thyme.substrates.common.subscriber import OwnSubscription, ReadPosition, Subscriber


class Client:
    """Sends requests to brokers on behalf of the application."""

    def __init__(
        self,
        node_id: NodeId,
        objects: ObjectClient,
        brokers: BrokerClient,
        outbox: Outbox,
        subscriber: Subscriber,
        rng: Random,
        limits: Limits,
        guarantees: Callable[[], Guarantees],
        gap_reader: GapReader,
        signer: RecordSigner | None = None,
        large_objects: LargeObjects | None = None,
    ) -> None:
        """Without `large_objects`, every object is sent as a whole."""
        self._node_id = node_id
        self._gap_reader = gap_reader
        self._objects = objects
        self._brokers = brokers
        self._outbox = outbox
        self._subscriber = subscriber
        self._history_reader = HistoryReader(brokers, subscriber)
        self._rng = rng
        self._limits = limits
        self._guarantees = guarantees
        self._signer = signer
        self._large_objects = large_objects
        self._dropping: set[tuple[BrokerId, SubscriptionId]] = set()

    def on_request(self, request: app.AppRequest | app.InsertBatch, now_us: int) -> None:
        """Starts a request; one that cannot be carried out fails at once."""
        if isinstance(request, app.InsertBatch):
            self._insert_all(request.inserts, now_us)
            return
        if isinstance(request, app.MarkConsumed):
            self._subscriber.consume(request.sid, request.key)
            return
        if isinstance(request, app.Pause):
            self._subscriber.pause(request.sid)
            return
        try:
            self._dispatch(request, now_us)
        except ThymeError as error:
            self._reply(request.request_id, Failure.from_error(error))

    def _dispatch(self, request: app.RequestWithReply, now_us: int) -> None:
        match request:
            case app.Insert():
                self._insert_all((request,), now_us)
            case app.UploadChunk():
                self._reply(request.request_id, Ok(self._in_chunks_or_raise.upload_chunk(request)))
            case app.DropUpload():
                self._in_chunks_or_raise.drop_upload(request.upload)
                self._reply(request.request_id, Ok(None))
            case app.Delete():
                self._delete(request, now_us)
            case app.Subscribe():
                self._subscribe(request, now_us)
            case app.Resume():
                self._resume(request, now_us)
            case app.CatchUp():
                self._catch_up(request, now_us)
            case app.FetchNextPage():
                self._next_page(request, now_us)
            case app.Unsubscribe():
                self._unsubscribe(request, now_us)
            case app.Search():
                self._search(request, now_us)
            case app.Retrieve():
                self._retrieve(request, now_us)
            case app.RetrieveChunk():
                self._in_chunks_or_raise.retrieve_chunk(
                    request.metadata,
                    request.index,
                    now_us,
                    lambda result, _: self._reply(request.request_id, result),
                )
            case app.Lookup():
                self._look_up(request, now_us)
            case app.ListSubscriptions():
                self._reply(request.request_id, Ok(self._subscriber.active_subscriptions()))
            case _:
                assert_never(request)

    def on_notify(self, sender: BrokerId, message: wire.Notify, now_us: int) -> None:
        """Handles a notification; unknown subscriptions in it are cancelled at the sender."""
        for sid in message.sids:
            if not self._subscriber.on_notify(sid, message.metadata, now_us, sender):
                self._drop_subscription(sid, sender, now_us)

    def on_missed(
        self, sender: BrokerId, source: MissedSource, message: wire.Missed, now_us: int
    ) -> None:
        """Starts to read what a broker could not deliver; an unknown subscription is cancelled."""
        if not self._gap_reader.on_missed(source, message, now_us):
            self._drop_subscription(message.sid, sender, now_us)

    def drop_if_unknown(self, sid: SubscriptionId, broker_id: BrokerId, now_us: int) -> None:
        """Cancels a subscription of this node at a broker if this node no longer has it."""
        if self._subscriber.get(sid) is None:
            self._drop_subscription(sid, broker_id, now_us)

    def on_late_page(self, sender: BrokerId, message: wire.PastMatches, now_us: int) -> None:
        """Handles a page of stored matches that arrives after the first pages were merged. Objects
        published since the subscription began are due, however many they are (M34)."""
        own = self._subscriber.get(message.sid)
        if own is None:
            self._drop_subscription(message.sid, sender, now_us)
        elif own.attached and own.started:  # else the page is part of the reply
            since_us = own.due_since_us or 0
            due = sum(item.published_us >= since_us for item in message.items)
            items = message.items[: max(own.batch, due)]
            self._subscriber.emit_past(own, items, now_us)
            before = cursor_at(items[-1]) if items else None
            more = message.has_more or len(items) < len(message.items)
            position = {sender: ReadPosition(before, more)}
            self._subscriber.save_positions(own, position)
            if message.has_more and due == len(message.items):
                reading = HistoryRead(
                    own, lambda *_: None, 0, since_us=since_us, positions=position
                )
                self._history_reader.read_next(reading, now_us)

    # Objects

    def _insert_all(self, requests: tuple[app.Insert, ...], now_us: int) -> None:
        valid: list[app.Insert] = []
        drafts: list[Metadata] = []
        for request in requests:
            try:
                drafts.append(self._make_metadata(request, now_us))
                valid.append(request)
            except ThymeError as error:
                self._reply(request.request_id, Failure.from_error(error))
        signed = sign_metadata(drafts, self._signer)
        for request, metadata in zip(valid, signed, strict=True):
            on_result = self._on_result(request.request_id, metadata.key)
            replicas = None if request.replicas is UNSET else request.replicas
            options = StorageOptions(request.copies, request.durable, replicas)
            if self._large_objects is not None and metadata.is_large:
                self._large_objects.insert(metadata, now_us, on_result, options)
            else:
                self._objects.insert(metadata, request.data, now_us, on_result, options)

    def _make_metadata(self, request: app.Insert, now_us: int) -> Metadata:
        self._check_guarantees(request)
        key = Key(request.oid or ObjectId(random_id(self._rng)), self._node_id)
        published_us = request.published_us if isinstance(request, app.InsertAt) else now_us
        return make_metadata(
            key,
            self._take_content(request),
            request.tags,
            published_us,
            summary=request.summary,
            expires_us=None if request.ttl_us is None else published_us + request.ttl_us,
            limits=self._limits,
        )

    def _take_content(self, request: app.Insert) -> bytes | Content:
        if isinstance(request, app.InsertUploaded):
            return self._in_chunks_or_raise.take_content(request)
        if self._large_objects is not None and is_large(len(request.data)):
            return self._large_objects.take_content(request)
        return request.data

    @property
    def _in_chunks_or_raise(self) -> LargeObjects:
        if self._large_objects is None:
            raise UnsupportedError(
                f"this substrate sends no objects in chunks: at most {self._limits.data_bytes_max} "
                "bytes, as a whole"
            )
        return self._large_objects

    def _check_guarantees(self, request: app.Insert) -> None:
        given = self._guarantees()
        if request.replicas not in (UNSET, 1) and not given.replicates:
            raise UnsupportedError(
                "replicas were requested; only the nodes of a world with cells replicate"
            )
        if request.copies > given.copies_max:
            raise UnsupportedError(f"{request.copies} copies were requested; {given.copies_reason}")
        if request.durable and not given.durable:
            raise UnsupportedError(f"a durable insert was requested; {given.durable_reason}")

    def _delete(self, request: app.Delete, now_us: int) -> None:
        if request.key.owner != self._node_id:
            raise NotOwnerError(f"{request.key} belongs to another node: only its owner may delete")
        self._objects.delete(request.key, now_us, self._on_result(request.request_id))

    def _retrieve(self, request: app.Retrieve, now_us: int) -> None:
        metadata = request.metadata
        if self._large_objects is not None and metadata.is_large:
            self._large_objects.retrieve(
                metadata, now_us, lambda result, _: self._reply(request.request_id, result)
            )
            return

        def on_result(result: Result[bytes], _now_us: int) -> None:
            if isinstance(result, Ok) and not metadata.matches_content(result.value):
                detail = f"received data does not match {metadata.key}: the digest differs"
                result = Failure(CorruptError.code, detail)
            self._reply(request.request_id, result)

        self._objects.retrieve(metadata, now_us, on_result)

    def _look_up(self, request: app.Lookup, now_us: int) -> None:
        self._objects.look_up(
            request.key, now_us, lambda result, _: self._reply(request.request_id, result)
        )

    def _search(self, request: app.Search, now_us: int) -> None:
        def on_result(result: Result[Pages], now_us: int) -> None:
            def as_search_result(pages: Pages) -> app.SearchResult:
                sid = SubscriptionId("search")
                items = merge_pages(pages, request.count)
                found = tuple(Notification(sid, item, now_us, from_history=True) for item in items)
                silent = len(unanswered_brokers(pages))
                return app.SearchResult(found, total_matches(pages), silent)

            self._reply(request.request_id, result.map(as_search_result))

        query = PageQuery(request.conjunctions, request.frame, request.count)
        self._brokers.search(query, now_us, on_result)

    # Subscriptions

    def _subscribe(self, request: app.Subscribe, now_us: int) -> None:
        if self._subscriber.is_full():
            raise RejectedError("too many subscriptions on this node: cancel some first")
        sid = new_subscription_id(self._rng, None if self._signer is None else now_us)
        key = SubscriptionKey(sid, self._node_id)
        subscription = SubscriptionRecord(key, request.conjunctions, request.frame)
        own = self._subscriber.open(subscription, request.batch)

        def on_failure(failure: Failure) -> None:
            self._subscriber.cancel(own)
            self._reply(request.request_id, failure)

        self._start(request.request_id, own, None, now_us, on_failure)

    def _resume(self, request: app.Resume, now_us: int) -> None:
        own = self._get_own(request.sid)
        if own.attached:
            raise RejectedError(f"subscription {request.sid} is already attached to an application")
        own.attached = True
        if request.after is not None:
            self._subscriber.rewind(own, request.after)

        def on_failure(failure: Failure) -> None:
            own.attached = False
            own.reads_active -= 1
            self._reply(request.request_id, failure)

        self._start(
            request.request_id, own, self._subscriber.resume_since_us(own), now_us, on_failure
        )

    def _start(
        self,
        request_id: int,
        own: OwnSubscription,
        since_us: int | None,
        now_us: int,
        on_failure: Callable[[Failure], None],
    ) -> None:
        """Activates a subscription at the brokers, and starts reading from their first pages."""

        def on_begun(total: int, now_us: int) -> None:
            self._reply(request_id, Ok(app.SubscriptionStarted(own.sid, total)))
            self._subscriber.mark_started(own, now_us)

        def on_result(result: Result[Pages], now_us: int) -> None:
            if isinstance(result, Failure):
                on_failure(result)
                return
            pages = result.value
            total = total_matches(pages)
            silent = unanswered_brokers(pages)

            def on_read(result: Result[object], now_us: int) -> None:
                if silent:  # the next request for a page asks them again
                    unread = dict.fromkeys(silent, ReadPosition(None, True))
                    self._subscriber.save_positions(own, unread)
                    detail = f"{len(silent)} nodes did not answer"
                    result = Failure(OperationTimeoutError.code, detail)

                def emit_caught_up(now_us: int) -> None:
                    self._subscriber.emit_caught_up(own, total, result, now_us)

                self._gap_reader.call_when_idle(own, emit_caught_up, now_us)

            reading = HistoryRead(
                own,
                on_read,
                remaining=own.batch,
                since_us=since_us,
            )
            answered = {broker: page for broker, page in pages.items() if broker not in silent}
            self._history_reader.on_pages(reading, answered, now_us)

        own.reads_active += 1
        self._brokers.subscribe(own.subscription, own.batch, now_us, on_begun, on_result)

    def _next_page(self, request: app.FetchNextPage, now_us: int) -> None:
        own = self._get_own(request.sid)
        if not own.attached:
            raise RejectedError(f"subscription {request.sid} is not attached: resume it first")
        if own.positions is None:
            own.after_first_pages.append(lambda now_us: self.on_request(request, now_us))
            return
        read = HistoryRead(
            own,
            lambda result, _: self._reply(request.request_id, result.map(lambda _: read.emitted)),
            remaining=request.count,
            new_only=True,
            positions={
                broker_id: position
                for broker_id, position in own.positions.items()
                if position.more
            },
        )
        if read.positions:
            self._history_reader.read_next(read, now_us)
        else:
            self._reply(request.request_id, Ok(0))

    def _catch_up(self, request: app.CatchUp, now_us: int) -> None:
        own = self._get_own(request.sid)
        missed_us = self._subscriber.unpause(own, request.refused)

        def read_dropped(result: Result[object], now_us: int) -> None:
            def reply(_now_us: int) -> None:
                self._reply(request.request_id, result.map(lambda _: None))

            self._gap_reader.continue_reading(own, now_us)
            self._gap_reader.call_when_idle(own, reply, now_us)

        if missed_us is None:
            read_dropped(Ok(None), now_us)
        else:
            read = HistoryRead(own, read_dropped, remaining=0, since_us=missed_us)
            self._history_reader.read_newest(read, now_us)

    def _unsubscribe(self, request: app.Unsubscribe, now_us: int) -> None:
        own = self._get_own(request.sid)
        self._subscriber.cancel(own)
        self._brokers.unsubscribe(own.subscription.key, now_us, self._on_result(request.request_id))

    def _drop_subscription(self, sid: SubscriptionId, broker_id: BrokerId, now_us: int) -> None:
        """Cancels a subscription that is unknown to this node at a broker."""
        dropping = (broker_id, sid)
        if dropping in self._dropping:
            return
        self._dropping.add(dropping)
        key = SubscriptionKey(sid, self._node_id)
        self._brokers.drop_subscription(
            broker_id, key, now_us, lambda _result, _now_us: self._dropping.discard(dropping)
        )

    def _get_own(self, sid: SubscriptionId) -> OwnSubscription:
        own = self._subscriber.get(sid)
        if own is None:
            raise NotFoundError(f"this node has no subscription {sid}, or it has ended")
        return own

    # Replies to the application

    def _on_result(self, request_id: int, value: ReplyValue = None) -> OnResult[object]:
        """The callback of an operation without a value of its own: on success it replies with
        `value`."""
        return lambda result, _now_us: self._reply(request_id, result.map(lambda _: value))

    def _reply(self, request_id: int, result: Result[ReplyValue]) -> None:
        if isinstance(result, Failure):
            self._outbox.emit(Failed(request_id, result.code, result.detail))
        else:
            self._outbox.emit(Finished(request_id, result.value))
