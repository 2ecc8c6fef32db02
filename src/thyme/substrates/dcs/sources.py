"""Key cells: the client side of subscribe, unsubscribe and search, over the key cells of a query.

Each cell receives the conjunctions that are keyed to it and replies with its own page; an operation
is complete when every cell has replied. The replication lists in pages are cached in
`ReplicaLocations`. Entry point: `KeyCellBrokers`; `key_choice` selects the cells.
Clauses: D11, D16, D17, M17, M20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from thyme.model.ids import Key
from thyme.model.subscriptions import Conjunction, Subscription, SubscriptionKey
from thyme.protocol.cell_messages import CellPage
from thyme.protocol.cells import CellId, Indexed, as_cell_id
from thyme.protocol.messages import FetchPage, Page, StartSubscription, StopSubscription
from thyme.routing.cells import To
from thyme.substrates.brokers import MakePage, OnEnd, OnPages, Pages, Source
from thyme.substrates.dcs.asks import CellAsks, Replies
from thyme.substrates.dcs.keys import Keys
from thyme.substrates.past import total_of
from thyme.substrates.subscriber import Subscriber


class Whereabouts:
    """A bounded cache of the replication lists that this node received."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Key, Indexed] = {}

    def __len__(self) -> int:
        return len(self._known)

    def note(self, indexed: Indexed) -> None:
        """Caches an object's metadata and replication list."""
        self._known.pop(indexed.metadata.key, None)
        self._known[indexed.metadata.key] = indexed
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]

    def get(self, key: Key) -> Indexed | None:
        """The latest cached entry of an object."""
        return self._known.get(key)


class KeyCells:
    """The `BrokerClient` of a Thyme-DCS node: its brokers are the key cells of its queries."""

    def __init__(
        self, asks: CellAsks, keys: Keys, whereabouts: Whereabouts, subscriber: Subscriber
    ) -> None:
        self._asks = asks
        self._keys = keys
        self._whereabouts = whereabouts
        self._subscriber = subscriber

    def subscribe(
        self,
        subscription: Subscription,
        batch: int,
        now_us: int,
        on_begun: Callable[[int, int], None],
        on_pages: OnPages,
        on_failure: OnEnd,
    ) -> None:
        def make(request_id: int) -> Mapping[To, StartSubscription]:
            cells = self._keys.of_subscription(subscription)
            return {
                To(cell): StartSubscription(
                    request_id, subscription.with_conjunctions(conjunctions), batch
                )
                for cell, conjunctions in cells.items()
            }

        def on_replies(replies: Replies, now_us: int) -> None:
            pages = self._pages(replies)
            on_begun(total_of(pages), now_us)
            on_pages(pages, now_us)

        subscriber = self._subscriber
        self._keys.forget_all_but(lambda sid: subscriber.get(sid) is not None, len(subscriber))
        self._asks.start(make, now_us, on_replies, on_failure)

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        cells = self._keys.cells(key.sid)

        def on_ended(code: str, detail: str, now_us: int) -> None:
            self._keys.forget(key.sid)
            on_end(code, detail, now_us)

        self._stop(cells, key, now_us, on_ended)

    def stop(self, source: Source, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        self._stop([_cell(source)], key, now_us, on_end)

    def _stop(self, cells: list[CellId], key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        def make(request_id: int) -> Mapping[To, StopSubscription]:
            return dict.fromkeys(map(To, cells), StopSubscription(request_id, key))

        self._asks.start(make, now_us, lambda _, now_us: on_end("", "", now_us), on_end)

    def search(self, make: MakePage, now_us: int, on_pages: OnPages, on_failure: OnEnd) -> None:
        cells = self._keys.by_cell(make(0).conjunctions)
        self._ask(
            {cell: partial(_for_cell, make, conjunctions) for cell, conjunctions in cells.items()},
            now_us,
            on_pages,
            on_failure,
        )

    def read_on(
        self,
        source: Source,
        make: MakePage,
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        cell = _cell(source)
        # If the key choice was forgotten, all conjunctions are sent: only the request is longer.
        conjunctions = self._keys.by_cell(make(0).conjunctions).get(cell) or make(0).conjunctions
        self._ask(
            {cell: partial(_for_cell, make, conjunctions)},
            now_us,
            lambda pages, now_us: on_page(pages[cell], now_us),
            on_failure,
        )

    def _ask(
        self, makes: Mapping[CellId, MakePage], now_us: int, on_pages: OnPages, on_failure: OnEnd
    ) -> None:
        self._asks.start(
            lambda request_id: {To(cell): make(request_id) for cell, make in makes.items()},
            now_us,
            lambda replies, now_us: on_pages(self._pages(replies), now_us),
            on_failure,
        )

    def _pages(self, replies: Replies) -> Pages:
        pages: Pages = {}
        for to, reply in replies.items():
            if isinstance(reply, CellPage):
                for indexed in reply.items:
                    self._whereabouts.note(indexed)
                items = tuple(indexed.metadata for indexed in reply.items)
                pages[to.cell] = Page(reply.request, reply.total, items, reply.more)
            else:
                pages[to.cell] = Page(reply.request, 0, (), False)  # unexpected reply: no items
        return pages


def _for_cell(make: MakePage, some: tuple[Conjunction, ...], number: int) -> FetchPage:
    return msgspec.structs.replace(make(number), conjunctions=some)


def _cell(source: Source) -> CellId:
    assert isinstance(source, int), "in Thyme-DCS a broker is a cell"
    return as_cell_id(source)
