"""Key cells: the client side of subscribe, unsubscribe and search, over the key cells of a query.

Each cell receives the conjunctions that are keyed to it and replies with its own page; an operation
is complete when every cell has replied. The replication lists in pages are cached in
`ReplicaLocations`. Entry point: `KeyCellBrokers`; `key_choice` selects the cells.
Clauses: D11, D16, D17, M17, M20.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from thyme.model.ids import Key
from thyme.model.subscriptions import (
    CONJUNCTIONS_ACCEPTED_MAX,
    Conjunction,
    SubscriptionKey,
    SubscriptionRecord,
    conjoin,
)
from thyme.model.time_frames import TimeFrame
from thyme.protocol.messages.cell_records import CellId, as_cell_id
from thyme.protocol.messages.cells import CellPage
from thyme.protocol.messages.replies import Page
from thyme.protocol.messages.requests import FetchPage, StartSubscription, StopSubscription
from thyme.protocol.results import Ok, OnResult, Result
from thyme.routing.cells import Destination
from thyme.substrates.common.client_interfaces import BrokerId, PageQuery, Pages
from thyme.substrates.common.history_reader import total_matches
from thyme.substrates.common.subscriber import Subscriber
from thyme.substrates.dcs.client.cell_requests import CellRequests, Replies
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations


class KeyCellBrokers:
    """The `BrokerClient` of a Thyme-DCS node: its brokers are the key cells of its queries."""

    def __init__(
        self,
        requests: CellRequests,
        key_chooser: KeyChooser,
        replica_locations: ReplicaLocations,
        subscriber: Subscriber,
        second_opinions: int = 0,
    ) -> None:
        """`second_opinions`: how often a cell without a match is asked again."""
        self._second_opinions = second_opinions
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
        on_result: OnResult[Pages],
    ) -> None:
        def on_pages(result: Result[Pages], now_us: int) -> None:
            if isinstance(result, Ok):
                on_started(total_matches(result.value), now_us)
            on_result(result, now_us)

        def on_replies(result: Result[Replies], now_us: int) -> None:
            query = PageQuery(subscription.conjunctions, subscription.frame, page_size)
            pages = result.map(self._collect_pages)
            self._confirm_empty(cells, query, pages, now_us, on_confirmed)

        def on_confirmed(pages: Result[Pages], now_us: int) -> None:
            self._correct_totals(cells, subscription.frame, pages, now_us, on_pages)

        subscriber = self._subscriber
        self._key_chooser.prune_ended(lambda sid: subscriber.get(sid) is not None, len(subscriber))
        request_id = self._requests.next_id()
        cells = self._key_chooser.assign_cells(subscription)
        requests = {
            Destination(cell): StartSubscription(
                request_id, subscription.with_conjunctions(conjunctions), page_size
            )
            for cell, conjunctions in cells.items()
        }
        self._requests.send_requests(requests, now_us, on_replies)

    def _correct_totals(
        self,
        cells: Mapping[CellId, tuple[Conjunction, ...]],
        frame: TimeFrame,
        found: Result[Pages],
        now_us: int,
        on_result: OnResult[Pages],
    ) -> None:
        """Corrects the totals of first pages, so that an object counts once. If the pages do not
        show all objects, each cell is asked how many of its matches the cells before it count."""
        pages = found.value if isinstance(found, Ok) else {}
        shared = overlaps(cells) if any(page.has_more for page in pages.values()) else {}
        if not shared:
            on_result(found, now_us)
            return

        def on_counts(result: Result[Pages], now_us: int) -> None:
            counts = result.value if isinstance(result, Ok) else {}
            twice = {cell: page.total for cell, page in counts.items()}
            in_order: Pages = {cell: pages[cell] for cell in cells}
            on_result(Ok(subtract_unseen(in_order, twice)), now_us)

        self._fetch_pages(shared, PageQuery((), frame, 0), now_us, on_counts)

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_result: OnResult[object]) -> None:
        cells = self._key_chooser.cells_of(key.sid)

        def on_ended(result: Result[object], now_us: int) -> None:
            self._key_chooser.forget_subscription(key.sid)
            on_result(result, now_us)

        self._send_stop(cells, key, now_us, on_ended)

    def drop_subscription(
        self, broker: BrokerId, key: SubscriptionKey, now_us: int, on_result: OnResult[object]
    ) -> None:
        self._send_stop([_as_cell(broker)], key, now_us, on_result)

    def _send_stop(
        self, cells: list[CellId], key: SubscriptionKey, now_us: int, on_result: OnResult[object]
    ) -> None:
        request = StopSubscription(self._requests.next_id(), key)
        requests = dict.fromkeys(map(Destination, cells), request)
        self._requests.send_requests(requests, now_us, on_result)

    def search(self, query: PageQuery, now_us: int, on_result: OnResult[Pages]) -> None:
        cells = self._key_chooser.group_by_cell(query.conjunctions)

        def on_pages(result: Result[Pages], now_us: int) -> None:
            self._confirm_empty(cells, query, result, now_us, on_confirmed)

        def on_confirmed(result: Result[Pages], now_us: int) -> None:
            self._correct_totals(cells, query.frame, result, now_us, on_result)

        self._fetch_pages(cells, query, now_us, on_pages)

    def _confirm_empty(
        self,
        cells: Mapping[CellId, tuple[Conjunction, ...]],
        query: PageQuery,
        found: Result[Pages],
        now_us: int,
        on_result: OnResult[Pages],
        tries: int = 0,
    ) -> None:
        """Asks cells that have no match again: another node of the cell may answer, one that did
        not drop what it was to keep. A failure then leaves the first answer."""
        pages = found.value if isinstance(found, Ok) else {}
        empty = {cell: cells[cell] for cell in cells if cell in pages and not pages[cell].total}
        if not empty or tries == self._second_opinions:
            on_result(found, now_us)
            return

        def on_again(result: Result[Pages], now_us: int) -> None:
            if isinstance(result, Ok):
                better = Ok({**pages, **result.value})
                self._confirm_empty(cells, query, better, now_us, on_result, tries + 1)
            else:
                on_result(found, now_us)

        self._fetch_pages(empty, query, now_us, on_again)

    def fetch_next_page(
        self, broker: BrokerId, query: PageQuery, now_us: int, on_result: OnResult[Page]
    ) -> None:
        cell = _as_cell(broker)
        # If the key choice was forgotten, all conjunctions are sent: only the request is longer.
        conjunctions = (
            self._key_chooser.group_by_cell(query.conjunctions).get(cell) or query.conjunctions
        )
        self._fetch_pages(
            {cell: conjunctions},
            query,
            now_us,
            lambda result, now_us: on_result(result.map(lambda pages: pages[cell]), now_us),
        )

    def _fetch_pages(
        self,
        cells: Mapping[CellId, tuple[Conjunction, ...]],
        query: PageQuery,
        now_us: int,
        on_result: OnResult[Pages],
    ) -> None:
        """Fetches a page from each cell, of the conjunctions that are keyed to it."""
        request_id = self._requests.next_id()
        requests = {
            Destination(cell): FetchPage(
                request_id, conjunctions, query.frame, query.count, query.before
            )
            for cell, conjunctions in cells.items()
        }
        self._requests.send_requests(
            requests,
            now_us,
            lambda result, now_us: on_result(result.map(self._collect_pages), now_us),
        )

    def _collect_pages(self, replies: Replies) -> Pages:
        pages: Pages = {}
        for to, reply in replies.items():
            if isinstance(reply, CellPage):
                for indexed in reply.items:
                    self._replica_locations.add(indexed, to.cell)
                items = tuple(indexed.metadata for indexed in reply.items)
                pages[to.cell] = Page(reply.request_id, reply.total, items, reply.has_more)
            else:
                pages[to.cell] = Page(reply.request_id, 0, (), False)  # unexpected reply: no items
        return pages


def overlaps(
    cells: Mapping[CellId, tuple[Conjunction, ...]],
) -> dict[CellId, tuple[Conjunction, ...]]:
    """For each cell the conjunctions of the objects that match its own conjunctions and those of a
    cell before it; none for a cell without such objects, or with too many such conjunctions."""
    found: dict[CellId, tuple[Conjunction, ...]] = {}
    earlier: tuple[Conjunction, ...] = ()
    for cell, own in cells.items():
        both = {conjoin(one, other) for one in own for other in earlier}
        conjunctions = tuple(sorted(each for each in both if each is not None))
        if 0 < len(conjunctions) <= CONJUNCTIONS_ACCEPTED_MAX:
            found[cell] = conjunctions
        earlier += own
    return found


def subtract_unseen(pages: Pages, twice: Mapping[BrokerId, int]) -> Pages:
    """Subtracts from the total of each page the matches that a page before it counts, too, but for
    those that both pages show: `total_matches` subtracts these."""
    corrected: Pages = {}
    shown: set[Key] = set()
    for broker, page in pages.items():
        keys = {item.key for item in page.items}
        unseen = max(0, twice.get(broker, 0) - len(keys & shown))
        corrected[broker] = Page(page.request_id, page.total - unseen, page.items, page.has_more)
        shown |= keys
    return corrected


def _as_cell(source: BrokerId) -> CellId:
    assert isinstance(source, int), "in Thyme-DCS a broker is a cell"
    return as_cell_id(source)
