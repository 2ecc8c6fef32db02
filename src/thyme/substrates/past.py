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

from thyme.model.errors import EndedError
from thyme.model.metadata import Metadata
from thyme.protocol.messages import FetchPage, Page
from thyme.query.cursor import Cursor, cursor_of
from thyme.substrates.brokers import Brokers, MakePage, OnEnd, Pages, Source
from thyme.substrates.subscriber import Own, Place, Subscriber

PAGE_WHEN_CATCHING_UP = 100


def merged(pages: Mapping[Source, Page], count: int) -> list[Metadata]:
    """The most recent items of several pages, newest first, without duplicates.

    Items older than the last item of an incomplete page are left out, because that page's broker
    may have more recent ones.
    """
    limit = max((cursor_of(page.items[-1]) for page in pages.values() if _cut(page)), default=None)
    items = {item.key: item for page in pages.values() for item in page.items}
    ordered = sorted(items.values(), key=cursor_of, reverse=True)
    return [item for item in ordered[:count] if limit is None or cursor_of(item) >= limit]


def total_of(pages: Mapping[Source, Page]) -> int:
    """The number of matches of several brokers; items that appear in two pages count once.

    Exact if all pages are complete. Duplicates in the unread parts of two brokers count twice.
    """
    shown = [item.key for page in pages.values() for item in page.items]
    return sum(page.total for page in pages.values()) - len(shown) + len(set(shown))


def _cut(page: Page) -> bool:
    return page.more and bool(page.items)


@dataclass(slots=True)
class Reading:
    """One read of the stored matches of a subscription."""

    own: Own
    on_end: OnEnd
    """Called once, at the end of the read."""
    wanted: int
    fresh_only: bool = False
    """Whether only newly emitted items count towards the requested number."""
    since_us: int | None = None
    places: dict[Source, Place] = field(default_factory=dict)
    told: int = 0
    over: bool = False

    @property
    def page_size(self) -> int:
        """Number of items to request from each broker."""
        return self.wanted if self.wanted > 0 else PAGE_WHEN_CATCHING_UP

    def unread(self) -> dict[Source, Cursor | None]:
        """The brokers that have older items, with the cursors to continue from."""
        return {source: place.before for source, place in self.places.items() if place.more}

    def advance(self, pages: Pages, items: Sequence[Metadata], told: int) -> None:
        """Records one round: the pages received, the items used, and the number emitted."""
        self.told += told
        self.wanted -= told if self.fresh_only else len(items)
        used = {item.key for item in items}
        for source, page in pages.items():
            read = [item for item in page.items if item.key in used]
            before = self.places[source].before if source in self.places else None
            self.places[source] = Place(
                cursor_of(read[-1]) if read else before,
                page.more or len(read) < len(page.items),
            )

    def satisfied(self) -> bool:
        """Whether no further page is needed."""
        since_us = self.since_us
        far_enough = since_us is None or all(
            before is not None and before.published_us < since_us
            for before in self.unread().values()
        )
        return self.wanted <= 0 and far_enough


class Past:
    """Runs the reads of one node."""

    def __init__(self, brokers: Brokers, subscriber: Subscriber) -> None:
        self._brokers = brokers
        self._subscriber = subscriber

    def read_newest(self, reading: Reading, now_us: int) -> None:
        """Starts a read at the newest items of all brokers."""
        reading.own.readings += 1
        self._brokers.search(
            _page_of(reading, None),
            now_us,
            lambda pages, now_us: self.on_pages(reading, pages, now_us),
            lambda code, detail, now_us: self._end(reading, code, detail, now_us),
        )

    def read_on(self, reading: Reading, now_us: int) -> None:
        """Starts a read at its read positions."""
        reading.own.readings += 1
        self._ask(reading, now_us)

    def on_pages(self, reading: Reading, pages: Pages, now_us: int) -> None:
        """Emits the most recent items of several pages, and requests the next pages if needed."""
        own = reading.own
        if self._subscriber.get(own.sid) is not own:
            self._end(reading, EndedError.code, "the subscription was cancelled", now_us)
            return
        items = merged(pages, reading.page_size)
        reading.advance(pages, items, self._subscriber.tell_past(own, items, now_us))
        if reading.unread() and not reading.satisfied():
            self._ask(reading, now_us)
            return
        self._end(reading, "", "", now_us)

    def _ask(self, reading: Reading, now_us: int) -> None:
        """Requests a page from every broker with older items; continues after all replies."""
        sources = reading.unread()
        pages: Pages = {}

        def on_page(source: Source, page: Page, now_us: int) -> None:
            # A broker that claims more items but returns none would be queried forever.
            pages[source] = page if page.items else Page(page.request, page.total, (), False)
            if len(pages) == len(sources) and not reading.over:
                self.on_pages(reading, pages, now_us)

        for source, before in sources.items():
            self._brokers.read_on(
                source,
                _page_of(reading, before),
                now_us,
                partial(on_page, source),
                lambda code, detail, now_us: self._end(reading, code, detail, now_us),
            )

    def _end(self, reading: Reading, code: str, detail: str, now_us: int) -> None:
        if reading.over:
            return
        reading.over = True
        self._subscriber.read_to(reading.own, reading.places)
        reading.own.readings = max(0, reading.own.readings - 1)
        reading.on_end(code, detail, now_us)
        self._subscriber.on_end_of_frame(reading.own.sid, now_us)


def _page_of(reading: Reading, before: Cursor | None) -> MakePage:
    subscription, count = reading.own.subscription, reading.page_size
    conjunctions, frame = subscription.conjunctions, subscription.frame
    return lambda number: FetchPage(number, conjunctions, frame, count, before)
