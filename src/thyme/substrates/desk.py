"""Broker service: handles the requests to a broker, notifies subscribers, and sets its timer.

Entry point: `BrokerService.handle_request`. Storing and matching are done by `broker`; the
substrate decides which requests a node accepts.
Clauses: E2, M15, M18, M29.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId, RequestNumber, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Subscription
from thyme.protocol import messages as wire
from thyme.protocol.letters import Letters
from thyme.protocol.outbox import Outbox
from thyme.substrates.broker import Broker, PastPage

Notifier = Callable[[NodeId, wire.Notify, int], None]
"""Sends a notification to a subscriber."""


class BrokerDue(msgspec.Struct, frozen=True):
    """Timer at which the next object, subscription or tombstone of the broker expires."""


class Desk:
    """Handles the requests to one broker, and its expiry timer."""

    def __init__(self, broker: Broker, outbox: Outbox, notify: Notifier) -> None:
        self.broker = broker
        self._outbox = outbox
        self._notify = notify
        self._due_us: int | None = None

    def serve(self, sender: NodeId, request: wire.Ask, now_us: int) -> None:
        """Carries out a request and sends the reply."""
        try:
            reply = self._answer(sender, request, now_us)
        except OperationError as error:
            reply = wire.Refused(request.request, error.code, str(error))
        self._outbox.send(sender, reply)

    def on_due(self, now_us: int) -> None:
        """Removes expired records when the timer fires."""
        self._due_us = None
        self.broker.expire(now_us)

    def set_timer(self) -> None:
        """Sets the expiry timer; to be called after each input."""
        due_us = self.broker.next_expiry_us()
        if due_us is not None and due_us != self._due_us:
            self._outbox.set_timer(BrokerDue(), due_us)
        self._due_us = due_us

    def _answer(self, sender: NodeId, request: wire.Ask, now_us: int) -> wire.Reply:
        broker, number = self.broker, request.request
        match request:
            case wire.InsertObject():
                matched = broker.insert(request.metadata, sender, request.data, now_us)
                self._tell(request.metadata, matched, now_us)
                return wire.Done(number)
            case wire.DeleteObject():
                broker.delete(request.key, sender, now_us, wire.proof_in(request))
                return wire.Done(number)
            case wire.StartSubscription():
                page = broker.subscribe(request.subscription, sender, request.batch, now_us)
                return as_reply(number, page)
            case wire.StopSubscription():
                broker.unsubscribe(request.key, sender, now_us, wire.proof_in(request))
                return wire.Done(number)
            case wire.FetchPage():
                return as_reply(number, page_for(broker, request, now_us))
            case wire.FetchObject():
                broker.expire(now_us)
                return wire.ObjectData(number, request.key, broker.catalogue.data(request.key))
            case wire.FetchStatus():
                known = broker.known(request.key, now_us)
                return wire.ObjectStatus(number, known.state, known.metadata)
            case _:
                assert_never(request)

    def _tell(self, metadata: Metadata, matched: list[Subscription], now_us: int) -> None:
        """Sends one message to each subscriber, for all of its matching subscriptions."""
        by_subscriber: dict[NodeId, list[SubscriptionId]] = {}
        for subscription in matched:
            by_subscriber.setdefault(subscription.key.subscriber, []).append(subscription.key.sid)
        for subscriber, sids in by_subscriber.items():
            self._notify(subscriber, wire.Notify(metadata, tuple(sorted(sids))), now_us)


def page_for(broker: Broker, request: wire.FetchPage, now_us: int) -> PastPage:
    """The page of stored matches that a request asks for."""
    return broker.page(request.conjunctions, request.frame, request.count, request.before, now_us)


def as_reply(number: RequestNumber, page: PastPage) -> wire.Page:
    """The reply message for a page."""
    return wire.Page(number, page.total, page.items, page.more)


def post_note(
    broker: Broker, letters: Letters, subscriber: NodeId, note: wire.Notify, now_us: int
) -> None:
    """Sends a notification until it is acknowledged, as long as its object is stored."""
    history, key = broker.catalogue.history, note.metadata.key
    letters.post(subscriber, lambda _: note if key in history else None, now_us)
