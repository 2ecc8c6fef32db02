"""Past: reading stored matches page by page, newest first, from one broker or from many.

A reading goes on until it has as many as were wanted, has gone back as far as it must, or there is
nothing older. Whatever it meets that was told before is dropped by the subscriber, so readings may
overlap each other and the live path without harm. Between rounds nothing is kept but the place
reached with each broker, so that what was deleted meanwhile is not told.
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
    """The most recent items of several pages, newest first, each once.

    None of them has a more recent one left behind: a page that has more to follow speaks only for
    the time down to its last item.
    """
    reach = max((cursor_of(page.items[-1]) for page in pages.values() if _cut(page)), default=None)
    items = {item.key: item for page in pages.values() for item in page.items}
    ordered = sorted(items.values(), key=cursor_of, reverse=True)
    return [item for item in ordered[:count] if reach is None or cursor_of(item) >= reach]


def total_of(pages: Mapping[Source, Page]) -> int:
    """How many there are in several pages, those counted once that show up in two of them.

    Exact where no page is cut. What only the unseen rest of two pages has in common counts twice.
    """
    shown = [item.key for page in pages.values() for item in page.items]
    return sum(page.total for page in pages.values()) - len(shown) + len(set(shown))


def _cut(page: Page) -> bool:
    return page.more and bool(page.items)


@dataclass(slots=True)
class Reading:
    """One walk into the past of a subscription."""

    own: Own
    on_end: OnEnd
    """Called once."""
    wanted: int
    fresh_only: bool = False
    """Whether only items that were not told before count as wanted."""
    since_us: int | None = None
    places: dict[Source, Place] = field(default_factory=dict)
    told: int = 0
    over: bool = False

    @property
    def page_size(self) -> int:
        """How many to ask of each broker."""
        return self.wanted if self.wanted > 0 else PAGE_WHEN_CATCHING_UP

    def unread(self) -> dict[Source, Cursor | None]:
        """The brokers that have older ones, and the places to read on from."""
        return {source: place.before for source, place in self.places.items() if place.more}

    def advance(self, pages: Pages, items: Sequence[Metadata], told: int) -> None:
        """Takes note of one round: its pages, and which of their items were used."""
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
    """Runs readings."""

    def __init__(self, brokers: Brokers, subscriber: Subscriber) -> None:
        self._brokers = brokers
        self._subscriber = subscriber

    def read_newest(self, reading: Reading, now_us: int) -> None:
        """Reads from the newest on, wherever it is."""
        reading.own.readings += 1
        self._brokers.search(
            _page_of(reading, None),
            now_us,
            lambda pages, now_us: self.on_pages(reading, pages, now_us),
            lambda code, detail, now_us: self._end(reading, code, detail, now_us),
        )

    def read_on(self, reading: Reading, now_us: int) -> None:
        """Reads on from the reading's places."""
        reading.own.readings += 1
        self._ask(reading, now_us)

    def on_pages(self, reading: Reading, pages: Pages, now_us: int) -> None:
        """Tells what is most recent in some pages, and asks for the next ones if need be."""
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
        """Asks every broker that has older ones; goes on when all have answered."""
        sources = reading.unread()
        pages: Pages = {}

        def on_page(source: Source, page: Page, now_us: int) -> None:
            # A broker that has more but shows nothing would be asked for ever.
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
