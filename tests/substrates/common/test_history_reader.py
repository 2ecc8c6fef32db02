"""Reading the past of many brokers: in order, each item once, none skipped (M17, L7)."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, photo, subscribe
from thyme.model.ids import NodeId, as_node_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.protocol.app_interface import NotificationEvent
from thyme.protocol.messages.replies import Page
from thyme.protocol.node import Emit
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Ok, OnResult, Result
from thyme.query.cursor import cursor_at
from thyme.query.history_index.index import HistoryIndex
from thyme.storage.store import MemoryStore
from thyme.substrates.common.client_interfaces import BrokerId, PageQuery, Pages
from thyme.substrates.common.history_reader import HistoryRead, HistoryReader, merge_pages
from thyme.substrates.common.subscriber import Subscriber, SubscriberConfig

OWNERS = [NodeId(bytes([number])) for number in range(1, 5)]


class BrokersAtHand:
    """Brokers that answer at once, from what lies before them."""

    def __init__(self, items: list[Metadata], page_max: int) -> None:
        self.page_max = page_max
        self.histories = {owner: HistoryIndex() for owner in OWNERS}
        for item in items:
            self.histories[item.owner].add(item)

    def subscribe(
        self,
        subscription: SubscriptionRecord,
        batch: int,
        now_us: int,
        on_begun: Callable[[int, int], None],
        on_result: OnResult[Pages],
    ) -> None:
        raise NotImplementedError

    def unsubscribe(self, key: SubscriptionKey, now_us: int, on_result: OnResult[object]) -> None:
        raise NotImplementedError

    def drop_subscription(
        self, source: BrokerId, key: SubscriptionKey, now_us: int, on_result: OnResult[object]
    ) -> None:
        raise NotImplementedError

    def search(self, query: PageQuery, now_us: int, on_result: OnResult[Pages]) -> None:
        on_result(Ok({owner: self._page(owner, query) for owner in OWNERS}), now_us)

    def fetch_next_page(
        self, source: BrokerId, query: PageQuery, now_us: int, on_result: OnResult[Page]
    ) -> None:
        on_result(Ok(self._page(as_node_id(source), query)), now_us)

    def _page(self, owner: NodeId, request: PageQuery) -> Page:
        count = min(request.count, self.page_max)
        history = self.histories[owner]
        found = history.latest_matches(
            request.conjunctions, request.frame, count + 1, request.before
        )
        total = history.count_matches(request.conjunctions, request.frame)
        return Page(0, total, tuple(found[:count]), len(found) > count)


class Reader:
    """A subscriber that reads the past of some tables."""

    def __init__(self, tables: BrokersAtHand) -> None:
        self._outbox = Outbox()
        self._subscriber = Subscriber(ALICE, self._outbox, MemoryStore(), SubscriberConfig())
        self._past = HistoryReader(tables, self._subscriber)
        self._own = self._subscriber.open(subscribe(), batch=0)
        self.ends: list[Result[object]] = []

    def read(self, count: int, *, first: bool = False) -> list[Metadata]:
        """Reads so many from the newest on, or on from where it stopped; what was told."""
        places = {s: place for s, place in (self._own.positions or {}).items() if place.more}
        reading = HistoryRead(
            self._own,
            lambda result, _: self.ends.append(result),
            remaining=count,
            new_only=not first,
            positions={} if first else places,
        )
        if first:
            self._past.read_newest(reading, 0)
        elif places:
            self._past.read_next(reading, 0)
        return [
            action.event.notification.metadata
            for action in self._outbox.drain_actions()
            if isinstance(action, Emit) and isinstance(action.event, NotificationEvent)
        ]


albums = st.lists(st.tuples(st.integers(0, 30), st.sampled_from(OWNERS)), max_size=25).map(
    lambda drawn: [
        photo(number, by=owner, at_us=at_us) for number, (at_us, owner) in enumerate(drawn)
    ]
)


def newest_first(items: list[Metadata]) -> list[Metadata]:
    return sorted(items, key=cursor_at, reverse=True)


@given(albums, st.lists(st.integers(1, 9), min_size=30, max_size=30), st.integers(1, 9))
def test_m17_l7_batches_of_any_size_tell_everything_newest_first_and_once(
    items: list[Metadata], counts: list[int], page_max: int
) -> None:
    reader = Reader(BrokersAtHand(items, page_max))
    told = reader.read(counts[0], first=True)
    assert len(told) == min(counts[0], len(items))
    for count in counts[1:]:
        batch = reader.read(count)
        assert len(batch) == min(count, len(items) - len(told))
        told += batch
    assert told == newest_first(items)
    assert set(reader.ends) == {Ok(None)}


@given(albums, st.data())
def test_m14_what_is_deleted_between_batches_is_not_told(
    items: list[Metadata], data: st.DataObject
) -> None:
    tables = BrokersAtHand(items, page_max=3)
    reader = Reader(tables)
    told = reader.read(4, first=True)
    gone = data.draw(st.lists(st.sampled_from(items), unique_by=lambda m: m.key)) if items else []
    for metadata in gone:
        tables.histories[metadata.owner].remove(metadata.key)
    told += [item for _ in range(30) for item in reader.read(2)]
    left = [item for item in items if item not in gone or item in told[:4]]
    assert told == newest_first(left)


@given(albums, st.integers(0, 9), st.integers(1, 9))
def test_l7_what_is_merged_leaves_nothing_more_recent_behind(
    items: list[Metadata], count: int, page_max: int
) -> None:
    pages = {}
    for owner in OWNERS:
        owned = newest_first([item for item in items if item.owner == owner])
        pages[owner] = Page(0, len(owned), tuple(owned[:page_max]), len(owned) > page_max)
    found = merge_pages(pages, count)
    assert found == newest_first(items)[: len(found)]
    assert len(found) <= count
    if count <= page_max:
        assert len(found) == min(count, len(items))


def test_an_item_that_two_brokers_have_is_merged_once() -> None:
    item = photo(1, by=ALICE)
    page = Page(0, 1, (item,), False)
    assert merge_pages({OWNERS[0]: page, OWNERS[1]: page}, 5) == [item]


def test_a_broker_that_claims_more_but_shows_nothing_is_not_asked_for_ever() -> None:
    tables = BrokersAtHand([photo(1, by=OWNERS[0])], page_max=0)
    reader = Reader(tables)
    assert reader.read(5, first=True) == []
    assert reader.ends == [Ok(None)]
