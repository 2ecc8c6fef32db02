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
from thyme.model.subscriptions import Conjunction, SubscriptionKey, SubscriptionRecord
from thyme.protocol.messages.cell_records import CellId, IndexedMetadata, as_cell_id
from thyme.protocol.messages.cells import CellPage
from thyme.protocol.messages.common import FetchPage, Page, StartSubscription, StopSubscription
from thyme.routing.cells import Destination
from thyme.substrates.common.client_interfaces import BrokerId, MakeFetchPage, OnEnd, OnPages, Pages
from thyme.substrates.common.history_reader import total_matches
from thyme.substrates.common.subscriber import Subscriber
from thyme.substrates.dcs.client.cell_requests import CellRequests, Replies
from thyme.substrates.dcs.client.key_choice import KeyChooser

_LOCATIONS_MAX = 10_000
"""The maximum number of objects whose replication list a node caches."""


class ReplicaLocations:
    """A bounded cache of the replication lists that this node received."""

    def __init__(self, entries_max: int = _LOCATIONS_MAX) -> None:
        self._entries_max = entries_max
        self._entries: dict[Key, IndexedMetadata] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, indexed: IndexedMetadata) -> None:
        """Caches an object's metadata and replication list."""
        self._entries.pop(indexed.metadata.key, None)
        self._entries[indexed.metadata.key] = indexed
        if len(self._entries) > self._entries_max:
            del self._entries[next(iter(self._entries))]

    def get(self, key: Key) -> IndexedMetadata | None:
        """The latest cached entry of an object."""
        return self._entries.get(key)


class KeyCellBrokers:
    """The `BrokerClient` of a Thyme-DCS node: its brokers are the key cells of its queries."""

    def __init__(
        self,
        requests: CellRequests,
        key_chooser: KeyChooser,
        replica_locations: ReplicaLocations,
        subscriber: Subscriber,
    ) -> None:
        self._requests = requests
        self._key_chooser = key_chooser
        self._replica_locations = replica_locations
        self._subscriber = subscriber

    def subscribe(
        self,
        subscription: SubscriptionRecord,
        page_size: int,
        now_us: int,
        on_started: Callable[[int, int], None],
        on_pages: OnPages,
        on_failure: OnEnd,
    ) -> None:
        def make(request_id: int) -> Mapping[Destination, StartSubscription]:
            cells = self._key_chooser.assign_cells(subscription)
            return {
                Destination(cell): StartSubscription(
                    request_id, subscription.with_conjunctions(conjunctions), page_size
                )
                for cell, conjunctions in cells.items()
            }

        def on_replies(replies: Replies, now_us: int) -> None:
            pages = self._collect_pages(replies)
            on_started(total_matches(pages), now_us)
            on_pages(pages, now_us)

        subscriber = self._subscriber
        self._key_chooser.prune_ended(lambda sid: subscriber.get(sid) is not None, len(subscriber))
        self._requests.send_requests(make, now_us, on_replies, on_failure)

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_end: OnEnd) -> None:
        cells = self._key_chooser.cells_of(key.sid)

        def on_ended(code: str, detail: str, now_us: int) -> None:
            self._key_chooser.forget_subscription(key.sid)
            on_end(code, detail, now_us)

        self._send_stop(cells, key, now_us, on_ended)

    def drop_subscription(
        self, broker: BrokerId, key: SubscriptionKey, now_us: int, on_end: OnEnd
    ) -> None:
        self._send_stop([_as_cell(broker)], key, now_us, on_end)

    def _send_stop(
        self, cells: list[CellId], key: SubscriptionKey, now_us: int, on_end: OnEnd
    ) -> None:
        def make(request_id: int) -> Mapping[Destination, StopSubscription]:
            return dict.fromkeys(map(Destination, cells), StopSubscription(request_id, key))

        self._requests.send_requests(make, now_us, lambda _, now_us: on_end("", "", now_us), on_end)

    def search(
        self, make: MakeFetchPage, now_us: int, on_pages: OnPages, on_failure: OnEnd
    ) -> None:
        cells = self._key_chooser.group_by_cell(make(0).conjunctions)
        self._fetch_pages(
            {
                cell: partial(_page_request, make, conjunctions)
                for cell, conjunctions in cells.items()
            },
            now_us,
            on_pages,
            on_failure,
        )

    def fetch_next_page(
        self,
        broker: BrokerId,
        make: MakeFetchPage,
        now_us: int,
        on_page: Callable[[Page, int], None],
        on_failure: OnEnd,
    ) -> None:
        cell = _as_cell(broker)
        # If the key choice was forgotten, all conjunctions are sent: only the request is longer.
        conjunctions = (
            self._key_chooser.group_by_cell(make(0).conjunctions).get(cell) or make(0).conjunctions
        )
        self._fetch_pages(
            {cell: partial(_page_request, make, conjunctions)},
            now_us,
            lambda pages, now_us: on_page(pages[cell], now_us),
            on_failure,
        )

    def _fetch_pages(
        self,
        makes: Mapping[CellId, MakeFetchPage],
        now_us: int,
        on_pages: OnPages,
        on_failure: OnEnd,
    ) -> None:
        self._requests.send_requests(
            lambda request_id: {
                Destination(cell): make(request_id) for cell, make in makes.items()
            },
            now_us,
            lambda replies, now_us: on_pages(self._collect_pages(replies), now_us),
            on_failure,
        )

    def _collect_pages(self, replies: Replies) -> Pages:
        pages: Pages = {}
        for to, reply in replies.items():
            if isinstance(reply, CellPage):
                for indexed in reply.items:
                    self._replica_locations.add(indexed)
                items = tuple(indexed.metadata for indexed in reply.items)
                pages[to.cell] = Page(reply.request_id, reply.total, items, reply.has_more)
            else:
                pages[to.cell] = Page(reply.request_id, 0, (), False)  # unexpected reply: no items
        return pages


def _page_request(
    make: MakeFetchPage, conjunctions: tuple[Conjunction, ...], request_id: int
) -> FetchPage:
    return msgspec.structs.replace(make(request_id), conjunctions=conjunctions)


def _as_cell(source: BrokerId) -> CellId:
    assert isinstance(source, int), "in Thyme-DCS a broker is a cell"
    return as_cell_id(source)
