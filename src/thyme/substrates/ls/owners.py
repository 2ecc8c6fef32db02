"""Flooded queries: requests to all owners by flooding, and the collection of their replies.

Entry point: `FloodedBrokers`, the `BrokerClient` of Thyme-LS, where each node is the broker of its
own objects. A flood is not acknowledged, and the number of replies is unknown. A subscribe thus
succeeds as soon as the flood is sent; owners with matches reply, and their replies are collected
for a fixed time and merged (L7). Later replies are handled by `Client.on_late_page`. An owner that
does not reply to a request for its next page has left with its objects (L6).
Clauses: L2, L4, L6, L7, M17, M20.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from thyme.model.errors import OperationError, OperationTimeoutError, RejectedError
from thyme.model.frames import SECOND_US
from thyme.model.ids import NodeId, RequestNumber, SubscriptionId, as_node_id
from thyme.model.subscriptions import Subscription, SubscriptionKey
from thyme.protocol.messages import OwnerPage, Page, Reply, StartSubscription, StopSubscription
from thyme.protocol.operations import Operations
from thyme.protocol.outbox import Outbox
from thyme.routing.flooding import Flooding
from thyme.substrates.brokers import (
    MakePage,
    OnEnd,
    OnPages,
    Pages,
    Source,
    failure_of,
    stop_at,
)
from thyme.substrates.desk import Desk, as_reply, page_for


class CollectingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the collection of replies to a flood."""

    merge_us: int = SECOND_US
    """How long the first pages of a subscription are collected before they are merged and emitted.
    With 0 each page is emitted on arrival."""
    search_us: int = SECOND_US
    answers_max: int = 10_000
    """Maximum number of replies in one collection."""
    searches_max: int = 10_000
    """Maximum number of concurrent collections."""


Subject = RequestNumber | SubscriptionId
"""Key of a collection: the request number of a search, or the id of a subscription."""


class CollectionOver(msgspec.Struct, frozen=True):
    """Timer at the end of a collection."""

    subject: Subject


@dataclass(slots=True)
class _Collection:
    pages: Pages
    on_pages: OnPages


class EveryOwner:
    """Access to all owners by flooding; a `BrokerClient`."""

    def __init__(
        self,
        desk: Desk,
        node_id: NodeId,
        outbox: Outbox,
        operations: Operations,
        flooding: Flooding,
        rng: Random,
        config: CollectingConfig,
    ) -> None:
        self._desk = desk
        self._node_id = node_id
        self._outbox = outbox
        self._operations = operations
        self._flooding = flooding
        self._config = config
        self._next_number = rng.getrandbits(48)
        self._collections: dict[Subject, _Collection] = {}

    def subscribe(
        self,
        subscription: Subscription,
        batch: int,
        now_us: int,
        on_begun: Callable[[int, int], None],
        on_pages: OnPages,
        on_failure: OnEnd,
    ) -> None:
        """Activates a subscription on this node and floods it.

        `on_started` gets the number of matches on this node.
        """
        try:
            page = self._desk.broker.subscribe(subscription, self._node_id, batch, now_us)
        except OperationError as error:
            on_failure(error.code, str(error), now_us)
            return
        number = self._draw_number()
        self._flooding.flood(StartSubscription(number, subscription, batch), now_us)
        on_begun(page.total, now_us)
        own_page = as_reply(number, page)
        self._collect(subscription.key.sid, own_page, self._config.merge_us, now_us, on_pages)

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        self._desk.broker.unsubscribe(key, self._node_id, now_us)
        self._flooding.flood(StopSubscription(self._draw_number(), key), now_us)
        on_end("", "", now_us)

    def stop(self, source: Source, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        stop_at(self._operations, as_node_id(source), key, now_us, on_end)

    def search(self, make: MakePage, now_us: int, on_pages: OnPages, on_failure: OnEnd) -> None:
        if len(self._collections) >= self._config.searches_max:
            detail = "too many searches in progress: wait for some to end"
            on_failure(RejectedError.code, detail, now_us)
            return
        number = self._draw_number()
        request = make(number)
        own_page = as_reply(number, page_for(self._desk.broker, request, now_us))
        self._flooding.flood(request, now_us)
        self._collect(number, own_page, self._config.search_us, now_us, on_pages)

    def read_on(
        self,
        source: Source,
        make: MakePage,
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        def on_reply(reply: Reply, now_us: int) -> None:
            if isinstance(reply, Page):
                on_page(reply, now_us)
            else:
                on_failure(*failure_of(reply), now_us)

        def on_end(code: str, detail: str, now_us: int) -> None:
            if code == OperationTimeoutError.code:
                on_page(Page(0, 0, (), False), now_us)
            else:
                on_failure(code, detail, now_us)

        self._operations.start(as_node_id(source), make, now_us, on_reply, on_end)

    def on_owner_page(self, sender: NodeId, message: OwnerPage) -> bool:
        """Adds an owner's first page to its collection; returns False if there is none."""
        page = Page(0, message.total, message.items, message.more)
        return self._on_page(message.sid, sender, page)

    def on_page(self, sender: NodeId, page: Page) -> bool:
        """Adds an owner's reply to its search; returns False if there is no such search."""
        return self._on_page(page.request, sender, page)

    def on_collection_over(self, timer: CollectionOver, now_us: int) -> None:
        """Ends a collection and passes its pages to the caller."""
        collection = self._collections.pop(timer.subject, None)
        if collection is not None:
            collection.on_pages(collection.pages, now_us)

    def _collect(
        self, subject: Subject, own_page: Page, wait_us: int, now_us: int, on_pages: OnPages
    ) -> None:
        self._collections[subject] = _Collection({self._node_id: own_page}, on_pages)
        if wait_us == 0:
            self.on_collection_over(CollectionOver(subject), now_us)
        else:
            self._outbox.set_timer(CollectionOver(subject), now_us + wait_us)

    def _on_page(self, subject: Subject, sender: NodeId, page: Page) -> bool:
        collection = self._collections.get(subject)
        if collection is None:
            return False
        if len(collection.pages) < self._config.answers_max:
            collection.pages[sender] = page
        return True

    def _draw_number(self) -> RequestNumber:
        self._next_number += 1
        return self._next_number
