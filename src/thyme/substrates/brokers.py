"""Brokers: whom a client asks, and how. The two interfaces by which substrates differ for it.

`Objects` are inserted and had again, `Brokers` look after subscriptions and the past. `OneBroker`
is the way of Thyme-ES: a single node answers everything. A substrate with many brokers answers the
same questions with a page of each of them. `AtHome` is for objects that one node answers for.
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
"""A broker: a node, or all nodes of a cell."""
Pages = dict[Source, Page]
"""What each broker that had something to say said."""
OnPages = Callable[[Pages, int], None]
OnEnd = Callable[[str, str, int], None]
"""Called with a failure's code (empty for success), its detail, and the instant."""
MakePage = Callable[[RequestNumber], FetchPage]


class Objects(Protocol):
    """Where the objects of a substrate are, seen from one client."""

    def insert(self, metadata: Metadata, data: bytes, now_us: int, on_end: OnEnd) -> None:
        """Has an object of this node stored, and whom it concerns notified."""
        ...

    def delete(self, key: Key, now_us: int, on_end: OnEnd) -> None:
        """Has an object of this node removed."""
        ...

    def retrieve(
        self,
        metadata: Metadata,
        now_us: int,
        on_data: Callable[[bytes, int], None],
        on_failure: OnEnd,
    ) -> None:
        """Gets the bytes of an object."""
        ...

    def look_up(
        self,
        key: Key,
        now_us: int,
        on_known: Callable[[KnownObject, int], None],
        on_failure: OnEnd,
    ) -> None:
        """Asks what is known of a key."""
        ...


class Brokers(Protocol):
    """The brokers of a substrate, seen from one client."""

    def subscribe(
        self,
        subscription: Subscription,
        batch: int,
        now_us: int,
        on_begun: Callable[[int, int], None],
        on_pages: OnPages,
        on_failure: OnEnd,
    ) -> None:
        """Has a subscription taken up.

        `on_begun` hears of how many stored matches are known when it stands, `on_pages` then gets
        the first batches.
        """
        ...

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        """Has a subscription forgotten."""
        ...

    def stop(self, source: Source, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        """Has one broker forget a subscription that nobody here knows of."""
        ...

    def search(self, make: MakePage, now_us: int, on_pages: OnPages, on_failure: OnEnd) -> None:
        """Gets the first pages of the past from wherever there are any."""
        ...

    def read_on(
        self,
        source: Source,
        make: MakePage,
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        """Gets the next page from one broker."""
        ...


class OneBroker:
    """The broker is one node, known to all."""

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
    """Each object has one node that answers for it."""

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
    """Has one node forget a subscription."""

    def on_reply(reply: Reply, now_us: int) -> None:
        on_end(*(("", "") if isinstance(reply, Done) else failure_of(reply)), now_us)

    operations.start(
        broker_id, lambda number: StopSubscription(number, key), now_us, on_reply, on_end
    )


def failure_of(reply: Reply) -> tuple[str, str]:
    """The failure that a reply means where another kind of reply was due."""
    if isinstance(reply, Refused):
        return reply.code, reply.detail
    return "failed", f"an answer that makes no sense here: {reply.label}"
