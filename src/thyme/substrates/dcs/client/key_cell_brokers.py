"""Key cells: the client side of subscribe, unsubscribe and search, over the key cells of a query.

Each cell receives the conjunctions that are keyed to it and replies with its own page; an operation
is complete when every cell has replied. The replication lists in pages are cached in
`ReplicaLocations`. Entry point: `KeyCellBrokers`; `key_choice` selects the cells.
Clauses: D11, D16, D17, M17, M20.
"""

from __future__ import annotations

from collections import Counter
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

_HIDDEN_TRIES_MAX = 8
"""How often a cell is asked again of whose matches another of its nodes counts more."""
Counts = Counter[BrokerId]
"""How many matches nodes of cells counted, the largest number of each cell."""


class KeyCellBrokers:
    """The `BrokerClient` of a Thyme-DCS node: its brokers are the key cells of its queries."""

    def __init__(
        self,
        requests: CellRequests,
        key_chooser: KeyChooser,
        replica_locations: ReplicaLocations,
        subscriber: Subscriber,
        second_opinions: int = 0,
        *,
        compare_counts: bool = False,
    ) -> None:
        """`second_opinions`: how often a cell is asked again whose answer is in doubt, because it
        has no match or, with `compare_counts`, fewer than another answer of the cell counts."""
        self._second_opinions = second_opinions
        self._compare_counts = compare_counts
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
            self._confirm(cells, query, pages, None, now_us, on_confirmed)

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

        def on_pages(result: Result[Pages], counts: Counts | None, now_us: int) -> None:
            self._confirm(cells, query, result, counts, now_us, on_confirmed)

        def on_confirmed(result: Result[Pages], now_us: int) -> None:
            self._correct_totals(cells, query.frame, result, now_us, on_result)

        self._fetch_with_counts(cells, query, now_us, on_pages)

    def _confirm(
        self,
        cells: Mapping[CellId, tuple[Conjunction, ...]],
        query: PageQuery,
        found: Result[Pages],
        counts: Counts | None,
        now_us: int,
        on_result: OnResult[Pages],
        tries: int = 0,
    ) -> None:
        """Asks cells again whose answer is in doubt: another node of the cell may answer, one that
        did not drop what it was to keep. A failure then leaves the first answer. `counts` is None
        if numbers of matches are not compared."""
        pages = found.value if isinstance(found, Ok) else {}
        counted = Counter() if counts is None else counts
        hidden = {cell for cell in cells if cell in pages and pages[cell].total < counted[cell]}
        empty = {cell for cell in cells if cell in pages and not pages[cell].total}
        doubtful = hidden if tries < _HIDDEN_TRIES_MAX else set()
        if tries < self._second_opinions:
            doubtful |= empty
        if not doubtful:
            on_result(found, now_us)
            return

        def on_again(result: Result[Pages], more: Counts | None, now_us: int) -> None:
            if not isinstance(result, Ok):
                on_result(found, now_us)
                return
            better = {
                broker: max(page, pages[broker], key=lambda each: (len(each.items), each.total))
                for broker, page in result.value.items()
            }
            both, largest = Ok({**pages, **better}), None if more is None else counted | more
            self._confirm(cells, query, both, largest, now_us, on_result, tries + 1)

        again = {cell: cells[cell] for cell in cells if cell in doubtful}
        self._fetch_with_counts(again, query, now_us, on_again, compare=counts is not None)

    def _fetch_with_counts(
        self,
        cells: Mapping[CellId, tuple[Conjunction, ...]],
        query: PageQuery,
        now_us: int,
        on_result: Callable[[Result[Pages], Counts | None, int], None],
        *,
        compare: bool = True,
    ) -> None:
        """Fetches a page from each cell, and beside it the number of matches, for which another
        node of the cell may be asked; a number that does not come is not waited for again."""
        if not (compare and self._compare_counts):
            self._fetch_pages(
                cells, query, now_us, lambda pages, now_us: on_result(pages, None, now_us)
            )
            return
        arrived: list[Result[Pages]] = []
        counted: list[Result[Pages]] = []

        def on_arrived(now_us: int) -> None:
            if arrived and counted:
                counts = counted[0].value if isinstance(counted[0], Ok) else {}
                totals = {broker: page.total for broker, page in counts.items()}
                on_result(arrived[0], Counter(totals), now_us)

        def on_pages(result: Result[Pages], now_us: int) -> None:
            arrived.append(result)
            on_arrived(now_us)

        def on_counts(result: Result[Pages], now_us: int) -> None:
            counted.append(result)
            on_arrived(now_us)

        self._fetch_pages(cells, query, now_us, on_pages)
        count_only = PageQuery(query.conjunctions, query.frame, 0)
        self._fetch_pages(cells, count_only, now_us, on_counts, tries_max=1)

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
        tries_max: int | None = None,
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
            tries_max=tries_max,
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
