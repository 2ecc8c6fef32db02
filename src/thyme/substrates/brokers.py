"""Brokers: whom a client asks, and how. The one interface by which substrates differ for it.

`OneBroker` is the way of Thyme-ES: a single node answers everything. A substrate with many brokers
answers the same questions with a page of each of them.
Clauses: E2, E4, L4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from thyme.model.ids import Key, NodeId
from thyme.model.subscriptions import Subscription, SubscriptionKey
from thyme.protocol.messages import (
    Ask,
    Done,
    FetchPage,
    Page,
    Refused,
    Reply,
    RequestNumber,
    StartSubscription,
    StopSubscription,
)
from thyme.protocol.operations import Operations

Pages = dict[NodeId, Page]
"""What each broker that had something to say said."""
OnPages = Callable[[Pages, int], None]
OnEnd = Callable[[str, str, int], None]
"""Called with a failure's code (empty for success), its detail, and the instant."""
MakePage = Callable[[RequestNumber], FetchPage]


class Brokers(Protocol):
    """The brokers of a substrate, seen from one client."""

    def home(self, key: Key) -> NodeId:
        """Who answers for an object."""
        ...

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

    def search(self, make: MakePage, now_us: int, on_pages: OnPages, on_failure: OnEnd) -> None:
        """Gets the first pages of the past from wherever there are any."""
        ...

    def read_on(
        self,
        source: NodeId,
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

    def home(self, key: Key) -> NodeId:
        return self._broker_id

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
        def on_reply(reply: Reply, now_us: int) -> None:
            on_end(*(("", "") if isinstance(reply, Done) else failure_of(reply)), now_us)

        self._operations.start(
            self._broker_id,
            lambda number: StopSubscription(number, key),
            now_us,
            on_reply,
            on_end,
        )

    def search(self, make: MakePage, now_us: int, on_pages: OnPages, on_failure: OnEnd) -> None:
        def on_page(page: Page, now_us: int) -> None:
            on_pages({self._broker_id: page}, now_us)

        self._ask(make, now_us, on_page, on_failure)

    def read_on(
        self,
        source: NodeId,
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


def failure_of(reply: Reply) -> tuple[str, str]:
    """The failure that a reply means where another kind of reply was due."""
    if isinstance(reply, Refused):
        return reply.code, reply.detail
    return "failed", f"an answer that makes no sense here: {type(reply).__name__}"
