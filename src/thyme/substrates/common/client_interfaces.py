"""Client interfaces: how a client reaches objects and brokers, which differs between substrates.

Entry points: `ObjectClient` (insert, delete, retrieve and look up objects) and `BrokerClient`
(subscriptions and searches); `Guarantees` says what an insert can be given. `SingleBroker`
implements `BrokerClient` for Thyme-ES, where one node is the only broker; with several brokers,
each returns its own page. `SingleHolder` implements `ObjectClient` where one node is responsible
for each object.
Clauses: E2, E4, L4, D11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import msgspec

from thyme.model.ids import Key, NodeId, RequestId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction, SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import AS_USUAL, LookupResult, StorageOptions
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.replies import Done, ObjectData, ObjectStatus, Page
from thyme.protocol.messages.requests import (
    DeleteObject,
    FetchObject,
    FetchPage,
    FetchStatus,
    InsertObject,
    StartSubscription,
    StopSubscription,
)
from thyme.protocol.request_tracker import RequestTracker
from thyme.protocol.results import Ok, OnResult, Result
from thyme.query.cursor import Cursor

BrokerId = NodeId | CellId
"""A broker: a node, or a cell with all of its nodes."""
MissedSource = NodeId | CellId | tuple[CellId, NodeId]
"""A broker from which missed objects are read: as `BrokerId`, or one node of a cell."""
Pages = dict[BrokerId, Page]
"""The pages received, by broker."""
NO_ANSWER = Page(0, 0, (), True)
"""In place of the page of a broker that did not answer: it may have matches."""


class Guarantees(msgspec.Struct, frozen=True, kw_only=True):
    """Guarantees that a substrate gives for an insert (M30)."""

    copies_max: int = 1
    copies_reason: str = "this substrate stores 1"
    """Why there are not more copies."""
    durable: bool = False
    durable_reason: str = "this world is stored in memory"
    """Why an insert is not durable."""
    replicates: bool = False
    """Whether the number of replicas can be chosen (D14)."""


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The stored matches to fetch: at most `count` from each broker, older than a cursor."""

    conjunctions: tuple[Conjunction, ...]
    frame: TimeFrame
    count: int
    before: Cursor | None = None

    def as_request(self, request_id: RequestId) -> FetchPage:
        """The request for a page, to a broker of all conjunctions."""
        return FetchPage(request_id, self.conjunctions, self.frame, self.count, self.before)


class ObjectClient(Protocol):
    """Access of a client to the objects of its substrate."""

    def insert(
        self,
        metadata: Metadata,
        data: bytes,
        now_us: int,
        on_result: OnResult[object],
        options: StorageOptions = AS_USUAL,
    ) -> None:
        """Stores an object of this node, and notifies matching subscribers. The substrate gives the
        guarantees among the options, or fails."""
        ...

    def delete(self, key: Key, now_us: int, on_result: OnResult[object]) -> None:
        """Removes an object of this node."""
        ...

    def retrieve(self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]) -> None:
        """Fetches the data of an object."""
        ...

    def look_up(self, key: Key, now_us: int, on_result: OnResult[LookupResult]) -> None:
        """Requests the state and metadata of a key."""
        ...


class BrokerClient(Protocol):
    """Access of a client to the brokers of its substrate."""

    def subscribe(
        self,
        subscription: SubscriptionRecord,
        batch: int,
        now_us: int,
        on_started: Callable[[int, int], None],
        on_result: OnResult[Pages],
    ) -> None:
        """Activates a subscription at its brokers.

        `on_started` is called with the number of stored matches known so far, then `on_result` with
        the first pages; after a failure only `on_result` is called.
        """
        ...

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_result: OnResult[object]) -> None:
        """Cancels a subscription at all of its brokers."""
        ...

    def drop_subscription(
        self, broker_id: BrokerId, key: SubscriptionKey, now_us: int, on_result: OnResult[object]
    ) -> None:
        """Cancels a subscription that is unknown to this node at one broker."""
        ...

    def search(self, query: PageQuery, now_us: int, on_result: OnResult[Pages]) -> None:
        """Fetches the first pages of stored matches from all brokers concerned."""
        ...

    def fetch_next_page(
        self, broker_id: BrokerId, query: PageQuery, now_us: int, on_result: OnResult[Page]
    ) -> None:
        """Fetches the next page from one broker."""
        ...


class SingleBroker:
    """Access to a single broker node that all nodes know; a `BrokerClient`."""

    def __init__(self, broker_id: NodeId, request_tracker: RequestTracker) -> None:
        self._broker_id = broker_id
        self._request_tracker = request_tracker

    def subscribe(
        self,
        subscription: SubscriptionRecord,
        batch: int,
        now_us: int,
        on_started: Callable[[int, int], None],
        on_result: OnResult[Pages],
    ) -> None:
        def on_page(result: Result[Page], now_us: int) -> None:
            if isinstance(result, Ok):
                on_started(result.value.total, now_us)
            on_result(result.map(self._as_pages), now_us)

        request = StartSubscription(self._request_tracker.next_id(), subscription, batch)
        self._request_tracker.send_request(self._broker_id, request, Page, now_us, on_page)

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_result: OnResult[object]) -> None:
        self.drop_subscription(self._broker_id, key, now_us, on_result)

    def drop_subscription(
        self, broker_id: BrokerId, key: SubscriptionKey, now_us: int, on_result: OnResult[object]
    ) -> None:
        request = StopSubscription(self._request_tracker.next_id(), key)
        self._request_tracker.send_request(self._broker_id, request, Done, now_us, on_result)

    def search(self, query: PageQuery, now_us: int, on_result: OnResult[Pages]) -> None:
        self.fetch_next_page(
            self._broker_id,
            query,
            now_us,
            lambda result, now_us: on_result(result.map(self._as_pages), now_us),
        )

    def fetch_next_page(
        self, broker_id: BrokerId, query: PageQuery, now_us: int, on_result: OnResult[Page]
    ) -> None:
        request = query.as_request(self._request_tracker.next_id())
        self._request_tracker.send_request(self._broker_id, request, Page, now_us, on_result)

    def _as_pages(self, page: Page) -> Pages:
        return {self._broker_id: page}


class SingleHolder:
    """Access to objects for each of which one node is responsible; an `ObjectClient`."""

    def __init__(self, holder_of: Callable[[Key], NodeId], request_tracker: RequestTracker) -> None:
        self._holder_of = holder_of
        self._request_tracker = request_tracker

    def insert(
        self,
        metadata: Metadata,
        data: bytes,
        now_us: int,
        on_result: OnResult[object],
        options: StorageOptions = AS_USUAL,
    ) -> None:
        request = InsertObject(self._request_tracker.next_id(), metadata, data)
        self._request_tracker.send_request(
            self._holder_of(metadata.key), request, Done, now_us, on_result, metadata.size
        )

    def delete(self, key: Key, now_us: int, on_result: OnResult[object]) -> None:
        request = DeleteObject(self._request_tracker.next_id(), key)
        self._request_tracker.send_request(self._holder_of(key), request, Done, now_us, on_result)

    def retrieve(self, metadata: Metadata, now_us: int, on_result: OnResult[bytes]) -> None:
        self._request_tracker.send_request(
            self._holder_of(metadata.key),
            FetchObject(self._request_tracker.next_id(), metadata.key),
            ObjectData,
            now_us,
            lambda result, now_us: on_result(result.map(lambda reply: reply.data), now_us),
            metadata.size,
        )

    def look_up(self, key: Key, now_us: int, on_result: OnResult[LookupResult]) -> None:
        def on_status(result: Result[ObjectStatus], now_us: int) -> None:
            found = result.map(lambda reply: LookupResult(reply.state, reply.metadata))
            on_result(found, now_us)

        request = FetchStatus(self._request_tracker.next_id(), key)
        self._request_tracker.send_request(
            self._holder_of(key), request, ObjectStatus, now_us, on_status
        )
