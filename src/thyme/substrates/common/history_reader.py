"""History reader: reads stored matches page by page, newest first, from one or several brokers.

Entry point: `HistoryReader`. A read continues until it has the requested number of items, has
reached its `since_us`, or there are no older items. `subscriber` drops items that were emitted
before, so reads may overlap with each other and with live notifications. Between two rounds only
the read position of each broker is kept, so that objects deleted meanwhile are not emitted.
Clauses: M16, M17, M26, M27, L7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from thyme.model.errors import ClosedError
from thyme.model.metadata import Metadata
from thyme.protocol.messages.replies import Page
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.query.cursor import Cursor, cursor_at
from thyme.substrates.common.client_interfaces import (
    NO_ANSWER,
    BrokerClient,
    BrokerId,
    PageQuery,
    Pages,
)
from thyme.substrates.common.subscriber import OwnSubscription, ReadPosition, Subscriber

CATCH_UP_PAGE_SIZE = 100


def merge_pages(pages: Mapping[BrokerId, Page], count: int) -> list[Metadata]:
    """The most recent items of several pages, newest first, without duplicates.

    Items older than the last item of an incomplete page are left out, because that page's broker
    may have more recent ones.
    """
    limit = max(
        (cursor_at(page.items[-1]) for page in pages.values() if _is_incomplete(page)), default=None
    )
    items = {item.key: item for page in pages.values() for item in page.items}
    ordered = sorted(items.values(), key=cursor_at, reverse=True)
    return [item for item in ordered[:count] if limit is None or cursor_at(item) >= limit]


def total_matches(pages: Mapping[BrokerId, Page]) -> int:
    """The number of matches of several brokers; items that appear in two pages count once.

    Exact if the pages show all items; duplicates in the unread parts of two brokers count twice.
    """
    shown = [item.key for page in pages.values() for item in page.items]
    return sum(page.total for page in pages.values()) - len(shown) + len(set(shown))


def unanswered_brokers(pages: Mapping[BrokerId, Page]) -> list[BrokerId]:
    """The brokers that did not answer."""
    return [broker for broker, page in pages.items() if page is NO_ANSWER]


def _is_incomplete(page: Page) -> bool:
    return page.has_more and bool(page.items)


@dataclass(slots=True)
class HistoryRead:
    """One read of the stored matches of a subscription."""

    own: OwnSubscription
    on_result: OnResult[object]
    """Called once, at the end of the read."""
    remaining: int
    new_only: bool = False
    """Whether only newly emitted items count towards the requested number."""
    since_us: int | None = None
    positions: dict[BrokerId, ReadPosition] = field(default_factory=dict)
    emitted: int = 0
    finished: bool = False

    @property
    def page_size(self) -> int:
        """Number of items to request from each broker."""
        return self.remaining if self.remaining > 0 else CATCH_UP_PAGE_SIZE

    def query_before(self, before: Cursor | None) -> PageQuery:
        """The query for the next page before a cursor, or for the newest page."""
        subscription = self.own.subscription
        return PageQuery(subscription.conjunctions, subscription.frame, self.page_size, before)

    def unread_cursors(self) -> dict[BrokerId, Cursor | None]:
        """The brokers that have older items, with the cursors to continue from."""
        return {
            broker_id: position.before
            for broker_id, position in self.positions.items()
            if position.more
        }

    def record_round(self, pages: Pages, items: Sequence[Metadata], emitted: int) -> None:
        """Records one round: the pages received, the items used, and the number emitted."""
        self.emitted += emitted
        self.remaining -= emitted if self.new_only else len(items)
        used = {item.key for item in items}
        for broker_id, page in pages.items():
            read = [item for item in page.items if item.key in used]
            before = self.positions[broker_id].before if broker_id in self.positions else None
            self.positions[broker_id] = ReadPosition(
                cursor_at(read[-1]) if read else before,
                page.has_more or len(read) < len(page.items),
            )

    def is_satisfied(self) -> bool:
        """Whether no further page is needed."""
        since_us = self.since_us
        far_enough = since_us is None or all(
            before is not None and before.published_us < since_us
            for before in self.unread_cursors().values()
        )
        return self.remaining <= 0 and far_enough


class HistoryReader:
    """Runs the reads of one node."""

    def __init__(self, brokers: BrokerClient, subscriber: Subscriber) -> None:
        self._brokers = brokers
        self._subscriber = subscriber

    def read_newest(self, read: HistoryRead, now_us: int) -> None:
        """Starts a read at the newest items of all brokers."""
        read.own.reads_active += 1

        def on_result(result: Result[Pages], now_us: int) -> None:
            if isinstance(result, Failure):
                self._finish(read, result, now_us)
            else:
                self.on_pages(read, result.value, now_us)

        self._brokers.search(read.query_before(None), now_us, on_result)

    def read_next(self, read: HistoryRead, now_us: int) -> None:
        """Starts a read at its read positions."""
        read.own.reads_active += 1
        self._request_pages(read, now_us)

    def on_pages(self, read: HistoryRead, pages: Pages, now_us: int) -> None:
        """Emits the most recent items of several pages, and requests the next pages if needed."""
        own = read.own
        if self._subscriber.get(own.sid) is not own:
            cancelled = Failure(ClosedError.code, "the subscription was cancelled")
            self._finish(read, cancelled, now_us)
            return
        items = merge_pages(pages, read.page_size)
        read.record_round(pages, items, self._subscriber.emit_past(own, items, now_us))
        if read.unread_cursors() and not read.is_satisfied():
            self._request_pages(read, now_us)
            return
        self._finish(read, Ok(None), now_us)

    def _request_pages(self, read: HistoryRead, now_us: int) -> None:
        """Requests a page from every broker with older items; continues after all replies."""
        cursors = read.unread_cursors()
        pages: Pages = {}

        def on_result(broker_id: BrokerId, result: Result[Page], now_us: int) -> None:
            if isinstance(result, Failure):
                self._finish(read, result, now_us)
                return
            page = result.value
            # A broker that claims more items but returns none would be queried forever.
            pages[broker_id] = page if page.items else Page(page.request_id, page.total, (), False)
            if len(pages) == len(cursors) and not read.finished:
                self.on_pages(read, pages, now_us)

        for broker_id, before in cursors.items():
            query = read.query_before(before)
            self._brokers.fetch_next_page(broker_id, query, now_us, partial(on_result, broker_id))

    def _finish(self, read: HistoryRead, result: Result[object], now_us: int) -> None:
        if read.finished:
            return
        read.finished = True
        self._subscriber.save_positions(read.own, read.positions)
        read.own.reads_active = max(0, read.own.reads_active - 1)
        read.on_result(result, now_us)
        self._subscriber.on_frame_end(read.own.sid, now_us)
