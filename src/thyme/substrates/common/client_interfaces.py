"""Client interfaces: how a client reaches objects and brokers, which differs between substrates.

Entry points: `ObjectClient` (insert, delete, retrieve and look up objects) and `BrokerClient`
(subscriptions and searches). `SingleBroker` implements `BrokerClient` for Thyme-ES, where one node
is the only broker; with several brokers, each returns its own page. `SingleHolder` implements
`ObjectClient` where one node is responsible for each object.
Clauses: E2, E4, L4, D11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from thyme.model.ids import Key, NodeId, RequestId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.protocol.app_interface import LookupResult
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import (
    BrokerRequest,
    DeleteObject,
    Done,
    FetchObject,
    FetchPage,
    FetchStatus,
    InsertObject,
    ObjectData,
    ObjectStatus,
    Page,
    Refused,
    Reply,
    StartSubscription,
    StopSubscription,
)
from thyme.protocol.request_tracker import RequestTracker

ReplyT = TypeVar("ReplyT", bound=Reply)

BrokerId = NodeId | CellId
"""A broker: a node, or a cell with all of its nodes."""
Pages = dict[BrokerId, Page]
"""The pages received, by broker."""
OnPages = Callable[[Pages, int], None]
OnEnd = Callable[[str, str, int], None]
"""Called with a failure code (empty for success), a detail text, and the time."""
MakeFetchPage = Callable[[RequestId], FetchPage]


class ObjectClient(Protocol):
    """Access of a client to the objects of its substrate."""

    def insert(self, metadata: Metadata, data: bytes, now_us: int, on_end: OnEnd) -> None:
        """Stores an object of this node, and notifies matching subscribers."""
        ...

    def delete(self, key: Key, now_us: int, on_end: OnEnd) -> None:
        """Removes an object of this node."""
        ...

    def retrieve(
        self,
        metadata: Metadata,
        now_us: int,
        on_data: Callable[[bytes, int], None],
        on_failure: OnEnd,
    ) -> None:
        """Fetches the data of an object."""
        ...

    def look_up(
        self,
        key: Key,
        now_us: int,
        on_found: Callable[[LookupResult, int], None],
        on_failure: OnEnd,
    ) -> None:
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
        on_pages: OnPages,
        on_failure: OnEnd,
    ) -> None:
        """Activates a subscription at its brokers.

        `on_started` is called with the number of stored matches known so far, then `on_pages` with
        the first pages.
        """
        ...

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        """Cancels a subscription at all of its brokers."""
        ...

    def drop_subscription(
        self, broker_id: BrokerId, key: SubscriptionKey, now_us: int, on_end: OnEnd
    ) -> None:
        """Cancels a subscription that is unknown to this node at one broker."""
        ...

    def search(
        self, make: MakeFetchPage, now_us: int, on_pages: OnPages, on_failure: OnEnd
    ) -> None:
        """Fetches the first pages of stored matches from all brokers concerned."""
        ...

    def fetch_next_page(
        self,
        broker_id: BrokerId,
        make: MakeFetchPage,
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
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
        on_pages: OnPages,
        on_failure: OnEnd,
    ) -> None:
        def on_page(page: Page, now_us: int) -> None:
            on_started(page.total, now_us)
            on_pages({self._broker_id: page}, now_us)

        self._request_page(
            lambda number: StartSubscription(number, subscription, batch),
            now_us,
            on_page,
            on_failure,
        )

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        self.drop_subscription(self._broker_id, key, now_us, on_end)

    def drop_subscription(
        self, broker_id: BrokerId, key: SubscriptionKey, now_us: int, on_end: OnEnd
    ) -> None:
        drop_subscription_at(self._request_tracker, self._broker_id, key, now_us, on_end)

    def search(
        self, make: MakeFetchPage, now_us: int, on_pages: OnPages, on_failure: OnEnd
    ) -> None:
        def on_page(page: Page, now_us: int) -> None:
            on_pages({self._broker_id: page}, now_us)

        self._request_page(make, now_us, on_page, on_failure)

    def fetch_next_page(
        self,
        broker_id: BrokerId,
        make: MakeFetchPage,
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        self._request_page(make, now_us, on_page, on_failure)

    def _request_page(
        self,
        make: Callable[[RequestId], BrokerRequest],
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        def on_reply(reply: Reply, now_us: int) -> None:
            if isinstance(reply, Page):
                on_page(reply, now_us)
            else:
                on_failure(*failure_from_reply(reply), now_us)

        self._request_tracker.send_request(self._broker_id, make, now_us, on_reply, on_failure)


class SingleHolder:
    """Access to objects for each of which one node is responsible; an `ObjectClient`."""

    def __init__(self, holder_of: Callable[[Key], NodeId], request_tracker: RequestTracker) -> None:
        self._holder_of = holder_of
        self._request_tracker = request_tracker

    def insert(self, metadata: Metadata, data: bytes, now_us: int, on_end: OnEnd) -> None:
        self._request(
            metadata.key,
            lambda number: InsertObject(number, metadata, data),
            Done,
            lambda _, now_us: on_end("", "", now_us),
            on_end,
            now_us,
            metadata.size,
        )

    def delete(self, key: Key, now_us: int, on_end: OnEnd) -> None:
        self._request(
            key,
            lambda number: DeleteObject(number, key),
            Done,
            lambda _, now_us: on_end("", "", now_us),
            on_end,
            now_us,
        )

    def retrieve(
        self,
        metadata: Metadata,
        now_us: int,
        on_data: Callable[[bytes, int], None],
        on_failure: OnEnd,
    ) -> None:
        self._request(
            metadata.key,
            lambda number: FetchObject(number, metadata.key),
            ObjectData,
            lambda reply, now_us: on_data(reply.data, now_us),
            on_failure,
            now_us,
            metadata.size,
        )

    def look_up(
        self,
        key: Key,
        now_us: int,
        on_found: Callable[[LookupResult, int], None],
        on_failure: OnEnd,
    ) -> None:
        self._request(
            key,
            lambda number: FetchStatus(number, key),
            ObjectStatus,
            lambda reply, now_us: on_found(LookupResult(reply.state, reply.metadata), now_us),
            on_failure,
            now_us,
        )

    def _request(
        self,
        key: Key,
        make: Callable[[RequestId], BrokerRequest],
        reply_type: type[ReplyT],
        on_expected: Callable[[ReplyT, int], None],
        on_failure: OnEnd,
        now_us: int,
        data_bytes: int = 0,
    ) -> None:
        def on_reply(reply: Reply, now_us: int) -> None:
            if isinstance(reply, reply_type):
                on_expected(reply, now_us)
            else:
                on_failure(*failure_from_reply(reply), now_us)

        self._request_tracker.send_request(
            self._holder_of(key), make, now_us, on_reply, on_failure, data_bytes
        )


def drop_subscription_at(
    request_tracker: RequestTracker,
    broker_id: NodeId,
    key: SubscriptionKey,
    now_us: int,
    on_end: OnEnd,
) -> None:
    """Cancels a subscription at one broker node."""

    def on_reply(reply: Reply, now_us: int) -> None:
        on_end(*(("", "") if isinstance(reply, Done) else failure_from_reply(reply)), now_us)

    request_tracker.send_request(
        broker_id, lambda number: StopSubscription(number, key), now_us, on_reply, on_end
    )


def failure_from_reply(reply: Reply) -> tuple[str, str]:
    """Failure code and detail of a reply that is not of the expected type."""
    if isinstance(reply, Refused):
        return reply.code, reply.detail
    return "failed", f"unexpected reply type: {reply.label}"
