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

from thyme.model.ids import Key, NodeId, RequestNumber
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Subscription, SubscriptionKey
from thyme.protocol.cells import CellId
from thyme.protocol.messages import (
    Ask,
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
from thyme.protocol.operations import Operations
from thyme.protocol.requests import KnownObject

A = TypeVar("A", bound=Reply)

Source = NodeId | CellId
"""A broker: a node, or a cell with all of its nodes."""
Pages = dict[Source, Page]
"""The pages received, by broker."""
OnPages = Callable[[Pages, int], None]
OnEnd = Callable[[str, str, int], None]
"""Called with a failure code (empty for success), a detail text, and the time."""
MakePage = Callable[[RequestNumber], FetchPage]


class Objects(Protocol):
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
        on_known: Callable[[KnownObject, int], None],
        on_failure: OnEnd,
    ) -> None:
        """Requests the state and metadata of a key."""
        ...


class Brokers(Protocol):
    """Access of a client to the brokers of its substrate."""

    def subscribe(
        self,
        subscription: Subscription,
        batch: int,
        now_us: int,
        on_begun: Callable[[int, int], None],
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

    def stop(self, source: Source, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        """Cancels a subscription that is unknown to this node at one broker."""
        ...

    def search(self, make: MakePage, now_us: int, on_pages: OnPages, on_failure: OnEnd) -> None:
        """Fetches the first pages of stored matches from all brokers concerned."""
        ...

    def read_on(
        self,
        source: Source,
        make: MakePage,
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        """Fetches the next page from one broker."""
        ...


class OneBroker:
    """Access to a single broker node that all nodes know; a `BrokerClient`."""

    def __init__(self, broker_id: NodeId, operations: Operations) -> None:
        self._broker_id = broker_id
        self._operations = operations

    def subscribe(
        self,
        subscription: Subscription,
        batch: int,
        now_us: int,
        on_begun: Callable[[int, int], None],
        on_pages: OnPages,
        on_failure: OnEnd,
    ) -> None:
        def on_page(page: Page, now_us: int) -> None:
            on_begun(page.total, now_us)
            on_pages({self._broker_id: page}, now_us)

        self._ask(
            lambda number: StartSubscription(number, subscription, batch),
            now_us,
            on_page,
            on_failure,
        )

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        self.stop(self._broker_id, key, now_us, on_end)

    def stop(self, source: Source, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        stop_at(self._operations, self._broker_id, key, now_us, on_end)

    def search(self, make: MakePage, now_us: int, on_pages: OnPages, on_failure: OnEnd) -> None:
        def on_page(page: Page, now_us: int) -> None:
            on_pages({self._broker_id: page}, now_us)

        self._ask(make, now_us, on_page, on_failure)

    def read_on(
        self,
        source: Source,
        make: MakePage,
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        self._ask(make, now_us, on_page, on_failure)

    def _ask(
        self,
        make: Callable[[RequestNumber], Ask],
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        def on_reply(reply: Reply, now_us: int) -> None:
            if isinstance(reply, Page):
                on_page(reply, now_us)
            else:
                on_failure(*failure_of(reply), now_us)

        self._operations.start(self._broker_id, make, now_us, on_reply, on_failure)


class AtHome:
    """Access to objects for each of which one node is responsible; an `ObjectClient`."""

    def __init__(self, home: Callable[[Key], NodeId], operations: Operations) -> None:
        self._home = home
        self._operations = operations

    def insert(self, metadata: Metadata, data: bytes, now_us: int, on_end: OnEnd) -> None:
        self._ask(
            metadata.key,
            lambda number: InsertObject(number, metadata, data),
            Done,
            lambda _, now_us: on_end("", "", now_us),
            on_end,
            now_us,
            metadata.size,
        )

    def delete(self, key: Key, now_us: int, on_end: OnEnd) -> None:
        self._ask(
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
        self._ask(
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
        on_known: Callable[[KnownObject, int], None],
        on_failure: OnEnd,
    ) -> None:
        self._ask(
            key,
            lambda number: FetchStatus(number, key),
            ObjectStatus,
            lambda reply, now_us: on_known(KnownObject(reply.state, reply.metadata), now_us),
            on_failure,
            now_us,
        )

    def _ask(
        self,
        key: Key,
        make: Callable[[RequestNumber], Ask],
        expected: type[A],
        on_answer: Callable[[A, int], None],
        on_failure: OnEnd,
        now_us: int,
        data_bytes: int = 0,
    ) -> None:
        def on_reply(reply: Reply, now_us: int) -> None:
            if isinstance(reply, expected):
                on_answer(reply, now_us)
            else:
                on_failure(*failure_of(reply), now_us)

        self._operations.start(self._home(key), make, now_us, on_reply, on_failure, data_bytes)


def stop_at(
    operations: Operations, broker_id: NodeId, key: SubscriptionKey, now_us: int, on_end: OnEnd
) -> None:
    """Cancels a subscription at one broker node."""

    def on_reply(reply: Reply, now_us: int) -> None:
        on_end(*(("", "") if isinstance(reply, Done) else failure_of(reply)), now_us)

    operations.start(
        broker_id, lambda number: StopSubscription(number, key), now_us, on_reply, on_end
    )


def failure_of(reply: Reply) -> tuple[str, str]:
    """Failure code and detail of a reply that is not of the expected type."""
    if isinstance(reply, Refused):
        return reply.code, reply.detail
    return "failed", f"unexpected reply type: {reply.label}"
