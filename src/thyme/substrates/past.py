"""Past: reading stored matches page by page, newest first.

A reading goes on until it has as many as were wanted, has gone back as far as it must, or there is
nothing older. Whatever it meets that was told before is dropped by the subscriber, so readings may
overlap each other and the live path without harm.
Clauses: M16, M17, M26, M27.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from thyme.model.errors import EndedError
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.protocol.messages import FetchPage, Page, Refused, Reply
from thyme.protocol.operations import Operations
from thyme.query.cursor import Cursor, cursor_of
from thyme.substrates.subscriber import Own, Subscriber

PAGE_WHEN_CATCHING_UP = 100


@dataclass(slots=True)
class Reading:
    """One walk into the past of a subscription."""

    own: Own
    on_end: Callable[[str, str, int], None]
    """Called once with a failure's code (empty for success), its detail, and the instant."""
    wanted: int
    fresh_only: bool = False
    """Whether only items that were not told before count as wanted."""
    since_us: int | None = None
    before: Cursor | None = None
    told: int = 0

    def advance(self, items: tuple[Metadata, ...], told: int) -> None:
        """Takes note of one page."""
        self.told += told
        self.wanted -= told if self.fresh_only else len(items)
        if items:
            self.before = cursor_of(items[-1])

    def satisfied(self) -> bool:
        """Whether no further page is needed."""
        far_enough = self.since_us is None or (
            self.before is not None and self.before.published_us < self.since_us
        )
        return self.wanted <= 0 and far_enough


class Past:
    """Runs readings against one broker."""

    def __init__(self, broker_id: NodeId, operations: Operations, subscriber: Subscriber) -> None:
        self._broker_id = broker_id
        self._operations = operations
        self._subscriber = subscriber

    def read(self, reading: Reading, now_us: int) -> None:
        """Asks for pages until the reading is satisfied."""
        reading.own.readings += 1
        self._ask(reading, now_us)

    def on_page(self, reading: Reading, page: Page, now_us: int) -> None:
        """Tells a page and asks for the next one if need be."""
        if self._subscriber.get(reading.own.sid) is not reading.own:
            self._end(reading, EndedError.code, "the subscription was cancelled", now_us)
            return
        told = self._subscriber.tell_past(reading.own, page.items, now_us)
        reading.advance(page.items, told)
        if page.more and not reading.satisfied():
            self._ask(reading, now_us)
            return
        self._subscriber.read_to(reading.own, reading.before, page.more)
        self._end(reading, "", "", now_us)

    def _ask(self, reading: Reading, now_us: int) -> None:
        subscription = reading.own.subscription
        count = reading.wanted if reading.wanted > 0 else PAGE_WHEN_CATCHING_UP
        before = reading.before

        def on_reply(reply: Reply, now_us: int) -> None:
            if isinstance(reply, Page):
                self.on_page(reading, reply, now_us)
            else:
                code, detail = failure_of(reply)
                self._end(reading, code, detail, now_us)

        self._operations.start(
            self._broker_id,
            lambda number: FetchPage(
                number, subscription.conjunctions, subscription.frame, count, before
            ),
            now_us,
            on_reply,
            lambda code, detail, now_us: self._end(reading, code, detail, now_us),
        )

    def _end(self, reading: Reading, code: str, detail: str, now_us: int) -> None:
        reading.own.readings = max(0, reading.own.readings - 1)
        reading.on_end(code, detail, now_us)
        self._subscriber.on_end_of_frame(reading.own.sid, now_us)


def failure_of(reply: Reply) -> tuple[str, str]:
    """The failure that a reply means where another kind of reply was due."""
    if isinstance(reply, Refused):
        return reply.code, reply.detail
    return "failed", f"an answer that makes no sense here: {type(reply).__name__}"
