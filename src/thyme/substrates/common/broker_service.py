"""Broker service: handles the requests to a broker, notifies subscribers, and sets its timer.

Entry point: `BrokerService.handle_request`. Storing and matching are done by `broker`; the
substrate decides which requests a node accepts.
Clauses: E2, M15, M18, M29, M34, M37.
"""

from __future__ import annotations

from typing import assert_never

import msgspec

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId, RequestId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.outbox import Outbox
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.chunks.fetcher import ChunkFetcher
from thyme.substrates.common.broker import Broker, HistoryPage
from thyme.substrates.common.notification_sender import NotificationSender


class BrokerExpiryTimer(msgspec.Struct, frozen=True):
    """Timer at which the next object, subscription or tombstone of the broker expires."""


class BrokerService:
    """Handles the requests to one broker, and its expiry timer."""

    def __init__(
        self,
        broker: Broker,
        outbox: Outbox,
        sender: NotificationSender,
        cache: ChunkCache,
        fetcher: ChunkFetcher,
    ) -> None:
        self.broker = broker
        self._cache = cache
        self._fetcher = fetcher
        self._outbox = outbox
        self._sender = sender
        self._timer_us: int | None = None

    def handle_request(self, sender: NodeId, request: wire.BrokerRequest, now_us: int) -> None:
        """Carries out a request and sends the reply."""
        try:
            reply = self._carry_out(sender, request, now_us)
            self._sender.on_subscriber_active(sender, now_us)
        except OperationError as error:
            reply = wire.Refused(request.request_id, error.code, str(error))
        self._outbox.send(sender, reply)

    def on_expiry_timer(self, now_us: int) -> None:
        """Removes expired records when the timer fires."""
        self._timer_us = None
        self.broker.expire(now_us)

    def set_expiry_timer(self) -> None:
        """Sets the expiry timer; to be called after each input."""
        expiry_us = self.broker.next_expiry_us()
        if expiry_us is not None and expiry_us != self._timer_us:
            self._outbox.set_timer(BrokerExpiryTimer(), expiry_us)
        self._timer_us = expiry_us

    def _carry_out(self, sender: NodeId, request: wire.BrokerRequest, now_us: int) -> wire.Reply:
        broker, number = self.broker, request.request_id
        match request:
            case wire.InsertObject():
                matched = broker.insert(request.metadata, sender, request.data, now_us)
                self._notify_subscribers(request.metadata, matched, now_us)
                return wire.Done(number)
            case chunk_wire.InsertLargeObject():
                return self._insert_large(sender, request, now_us)
            case wire.DeleteObject():
                broker.delete(request.key, sender, now_us, request.proof)
                return wire.Done(number)
            case wire.StartSubscription():
                page = broker.subscribe(request.subscription, sender, request.batch, now_us)
                return page_reply(number, page)
            case wire.StopSubscription():
                broker.unsubscribe(request.key, sender, now_us, request.proof)
                return wire.Done(number)
            case wire.FetchPage():
                return page_reply(number, read_requested_page(broker, request, now_us))
            case wire.FetchMissed():
                return self._sender.on_fetch_missed(sender, request, now_us)
            case wire.FetchObject():
                broker.expire(now_us)
                return wire.ObjectData(number, request.key, broker.catalogue.data(request.key))
            case wire.FetchStatus():
                result = broker.look_up(request.key, now_us)
                return wire.ObjectStatus(number, result.state, result.metadata)
            case _:
                assert_never(request)

    def _insert_large(
        self, sender: NodeId, request: chunk_wire.InsertLargeObject, now_us: int
    ) -> wire.Done | chunk_wire.ChunksMissing:
        """Stores a large object once all of its chunks are here; else fetches them from the owner,
        who asks again later."""
        metadata = request.metadata
        if self.broker.is_new(metadata, sender, now_us):
            if missing := self._cache.missing_count(metadata):
                if not self._fetcher.is_active(metadata.digest):
                    owner = chunk_wire.ChunkHolder(sender)
                    indexes = self._cache.missing_indexes(metadata)
                    self._fetcher.fetch(metadata, indexes, [owner], now_us)
                return chunk_wire.ChunksMissing(request.request_id, missing)
            matched = self.broker.insert(metadata, sender, None, now_us)
            self._notify_subscribers(metadata, matched, now_us)
        return wire.Done(request.request_id)

    def _notify_subscribers(
        self, metadata: Metadata, matched: list[SubscriptionRecord], now_us: int
    ) -> None:
        """Sends one message to each subscriber, for all of its matching subscriptions."""
        by_subscriber: dict[NodeId, list[SubscriptionId]] = {}
        for subscription in matched:
            by_subscriber.setdefault(subscription.key.subscriber, []).append(subscription.key.sid)
        for subscriber, sids in by_subscriber.items():
            self._sender.notify(subscriber, wire.Notify(metadata, tuple(sorted(sids))), now_us)


def read_requested_page(broker: Broker, request: wire.FetchPage, now_us: int) -> HistoryPage:
    """The page of stored matches that a request asks for."""
    return broker.read_page(
        request.conjunctions, request.frame, request.count, request.before, now_us
    )


def page_reply(number: RequestId, page: HistoryPage) -> wire.Page:
    """The reply message for a page."""
    return wire.Page(number, page.total, page.items, page.more)
