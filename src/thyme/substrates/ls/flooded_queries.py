"""Flooded queries: requests to all owners by flooding, and the collection of their replies.

Entry point: `FloodedBrokers`, the `BrokerClient` of Thyme-LS, where each node is the broker of its
own objects. A flood is not acknowledged, and the number of replies is unknown. A subscribe thus
succeeds as soon as the flood is sent; owners with matches reply, and their replies are collected
for a fixed time and merged (L7). Where the routing knows the nodes in reach, those that did not
reply until then are asked one by one, and the collection says which of them did not answer. Later
replies are handled by `Client.on_late_page`. An owner that does not reply to a request for its next
page and is not in reach has left with its objects (L6).
Clauses: L2, L4, L6, L7, M17, M20, M34.
Decision: docs/decisions/0060-complete-searches.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from random import Random

import msgspec

from thyme.model.errors import OperationError, OperationTimeoutError, RejectedError
from thyme.model.ids import NodeId, RequestId, SubscriptionId, as_node_id
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.replies import Done, Page, PastMatches
from thyme.protocol.messages.requests import StartSubscription, StopSubscription
from thyme.protocol.outbox import Outbox
from thyme.protocol.request_tracker import RequestTracker
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.routing.flooding import Flooding
from thyme.substrates.common.broker_service import BrokerService, page_reply, read_requested_page
from thyme.substrates.common.client_interfaces import NO_ANSWER, BrokerId, PageQuery, Pages

_REPLIES_MAX = 10_000
"""Maximum number of replies in one collection."""


class CollectionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the collection of replies to a flood."""

    subscribe_wait_us: int = SECOND_US
    """How long the first pages of a subscription are collected before they are merged and emitted.
    With 0 each page is emitted on arrival."""
    search_wait_us: int = SECOND_US
    collections_max: int = 10_000
    """Maximum number of concurrent collections."""


CollectionKey = RequestId | SubscriptionId
"""Key of a collection: the request number of a search, or the id of a subscription."""


NodesInReach = Callable[[], Collection[NodeId]]
"""Returns the nodes to which there is a route."""


class CollectionTimer(msgspec.Struct, frozen=True):
    """Timer at the end of a collection, or of one more wait for the nodes that were asked."""

    key: CollectionKey


@dataclass(slots=True)
class _ReplyCollection:
    query: PageQuery
    pages: Pages
    wait_us: int
    on_result: OnResult[Pages]
    asked: bool = False
    """Whether the nodes in reach that did not reply were asked one by one."""
    unanswered: dict[NodeId, None] = field(default_factory=dict)
    """The nodes that were asked and have not answered."""


class FloodedBrokers:
    """Access to all owners by flooding; a `BrokerClient`."""

    def __init__(
        self,
        broker_service: BrokerService,
        node_id: NodeId,
        outbox: Outbox,
        request_tracker: RequestTracker,
        flooding: Flooding,
        rng: Random,
        config: CollectionConfig,
    ) -> None:
        self._broker_service = broker_service
        self._node_id = node_id
        self._outbox = outbox
        self._request_tracker = request_tracker
        self._flooding = flooding
        self._config = config
        self._next_number = rng.getrandbits(48)
        self._collections: dict[CollectionKey, _ReplyCollection] = {}
        self.nodes_in_reach: NodesInReach = tuple
        """By default no node is known to be in reach, and replies are not waited for."""

    def subscribe(
        self,
        subscription: SubscriptionRecord,
        batch: int,
        now_us: int,
        on_started: Callable[[int, int], None],
        on_result: OnResult[Pages],
    ) -> None:
        """Activates a subscription on this node and floods it.

        `on_started` gets the number of matches on this node.
        """
        try:
            page = self._broker_service.broker.subscribe(subscription, self._node_id, batch, now_us)
        except OperationError as error:
            on_result(Failure.from_error(error), now_us)
            return
        number = self._new_number()
        self._flooding.flood(StartSubscription(number, subscription, batch), now_us)
        on_started(page.total, now_us)
        own_page = page_reply(number, page)
        query = PageQuery(subscription.conjunctions, subscription.frame, batch)
        wait_us = self._config.subscribe_wait_us
        self._collect(subscription.key.sid, query, own_page, wait_us, now_us, on_result)

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_result: OnResult[object]) -> None:
        self._broker_service.broker.unsubscribe(key, self._node_id, now_us)
        self._flooding.flood(StopSubscription(self._new_number(), key), now_us)
        on_result(Ok(None), now_us)

    def drop_subscription(
        self, broker_id: BrokerId, key: SubscriptionKey, now_us: int, on_result: OnResult[object]
    ) -> None:
        request = StopSubscription(self._request_tracker.next_id(), key)
        self._request_tracker.send_request(as_node_id(broker_id), request, Done, now_us, on_result)

    def search(self, query: PageQuery, now_us: int, on_result: OnResult[Pages]) -> None:
        if len(self._collections) >= self._config.collections_max:
            detail = "too many searches in progress: wait for some to end"
            on_result(Failure(RejectedError.code, detail), now_us)
            return
        number = self._new_number()
        request = query.as_request(number)
        own_page = page_reply(
            number, read_requested_page(self._broker_service.broker, request, now_us)
        )
        self._flooding.flood(request, now_us)
        self._collect(number, query, own_page, self._config.search_wait_us, now_us, on_result)

    def fetch_next_page(
        self, broker_id: BrokerId, query: PageQuery, now_us: int, on_result: OnResult[Page]
    ) -> None:
        def on_page(result: Result[Page], now_us: int) -> None:
            timed_out = isinstance(result, Failure) and result.code == OperationTimeoutError.code
            if timed_out and broker_id not in self.nodes_in_reach():
                result = Ok(Page(0, 0, (), False))
            on_result(result, now_us)

        request = query.as_request(self._request_tracker.next_id())
        self._request_tracker.send_request(as_node_id(broker_id), request, Page, now_us, on_page)

    def on_past_matches(self, sender: NodeId, message: PastMatches, now_us: int) -> bool:
        """Adds an owner's first page to its collection; returns False if there is none."""
        page = Page(0, message.total, message.items, message.has_more)
        return self._add_page(message.sid, sender, page, now_us)

    def on_page(self, sender: NodeId, page: Page, now_us: int) -> bool:
        """Adds an owner's reply to its search; returns False if there is no such search."""
        return self._add_page(page.request_id, sender, page, now_us)

    def on_collection_timer(self, timer: CollectionTimer, now_us: int) -> None:
        """Asks the nodes in reach that did not reply; waits no longer for nodes out of reach."""
        collection = self._collections.get(timer.key)
        if collection is None:
            return
        in_reach = self.nodes_in_reach()
        if not collection.asked:
            collection.asked = True
            missing = [node for node in in_reach if node not in collection.pages]
            collection.unanswered = dict.fromkeys(missing)
            for node in missing:
                self._ask(timer.key, collection, node, now_us)
        if self._collections.get(timer.key) is not collection:
            return  # no node could be asked
        if any(node in in_reach for node in collection.unanswered):
            self._outbox.set_timer(timer, now_us + collection.wait_us)
        else:
            self._finish(timer.key, now_us)

    def _ask(
        self, key: CollectionKey, collection: _ReplyCollection, node: NodeId, now_us: int
    ) -> None:
        """Requests the first page of one node."""

        def on_page(result: Result[Page], now_us: int) -> None:
            if self._collections.get(key) is not collection:
                return
            if isinstance(result, Ok):
                self._add_page(key, node, result.value, now_us)
            elif node in collection.unanswered:
                collection.pages[node] = NO_ANSWER
                self._count_answer(key, collection, node, now_us)

        request = collection.query.as_request(self._request_tracker.next_id())
        self._request_tracker.send_request(node, request, Page, now_us, on_page)

    def _collect(
        self,
        key: CollectionKey,
        query: PageQuery,
        own_page: Page,
        wait_us: int,
        now_us: int,
        on_result: OnResult[Pages],
    ) -> None:
        pages: Pages = {self._node_id: own_page}
        self._collections[key] = _ReplyCollection(query, pages, wait_us, on_result)
        if wait_us == 0:
            self._finish(key, now_us)
        else:
            self._outbox.set_timer(CollectionTimer(key), now_us + wait_us)

    def _add_page(self, key: CollectionKey, sender: NodeId, page: Page, now_us: int) -> bool:
        collection = self._collections.get(key)
        if collection is None:
            return False
        if len(collection.pages) < _REPLIES_MAX:
            collection.pages[sender] = page
        self._count_answer(key, collection, sender, now_us)
        return True

    def _count_answer(
        self, key: CollectionKey, collection: _ReplyCollection, node: NodeId, now_us: int
    ) -> None:
        """Counts the answer, or the failure, of a node; the last one ends the collection."""
        if node in collection.unanswered:
            del collection.unanswered[node]
            if not collection.unanswered:
                self._outbox.cancel_timer(CollectionTimer(key))
                self._finish(key, now_us)

    def _finish(self, key: CollectionKey, now_us: int) -> None:
        """Ends a collection and passes its pages to the caller."""
        collection = self._collections.pop(key)
        collection.pages.update(dict.fromkeys(collection.unanswered, NO_ANSWER))
        collection.on_result(Ok(collection.pages), now_us)

    def _new_number(self) -> RequestId:
        self._next_number += 1
        return self._next_number
