"""Gap reader: reads the objects that a subscriber of this node missed, oldest first.

Entry points: `GapReader.on_missed`, for what a broker did not deliver (`notification_gaps`), and
`continue_reading`, for what this node dropped itself while the application took no notifications. A
read fetches page after page until the broker has no more; `subscriber` drops what was emitted
before. While the application is paused, its reads wait. If a broker does not reply, it repeats its
message later; a read of this node's own drops is repeated by a timer.
Clauses: M16, M27, M33, M34.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from thyme.model.errors import UnsupportedError
from thyme.model.ids import SubscriptionId, as_node_id
from thyme.model.time_frames import SECOND_US
from thyme.protocol.app_interface import NotificationsLost
from thyme.protocol.messages.replies import Missed, MissedPage
from thyme.protocol.messages.requests import FetchMissed
from thyme.protocol.outbox import Outbox
from thyme.protocol.request_tracker import RequestTracker
from thyme.protocol.results import Failure, OnResult, Result
from thyme.query.cursor import Cursor, cursor_at
from thyme.substrates.common.client_interfaces import MissedSource
from thyme.substrates.common.subscriber import OwnSubscription, Subscriber

PAGE_SIZE = 200
_RETRY_US = 5 * SECOND_US

FetchMissedPage = Callable[[MissedSource, FetchMissed, int, OnResult[MissedPage]], None]
"""Sends a request to a broker."""
OnIdle = Callable[[int], None]


def missed_pages_from_nodes(request_tracker: RequestTracker) -> FetchMissedPage:
    """Reads missed objects from brokers that are nodes."""

    def fetch(
        source: MissedSource, request: FetchMissed, now_us: int, on_result: OnResult[MissedPage]
    ) -> None:
        assert isinstance(source, bytes), "this broker is a node"
        request_tracker.send_request(as_node_id(source), request, MissedPage, now_us, on_result)

    return fetch


def refuse_missed_pages(
    source: MissedSource, request: FetchMissed, now_us: int, on_result: OnResult[MissedPage]
) -> None:
    """For substrates without brokers: a node has all objects itself."""
    on_result(Failure(UnsupportedError.code, "there is no broker to read from"), now_us)


class GapRetryTimer(msgspec.Struct, frozen=True):
    """Timer at which a read that failed is repeated."""

    sid: SubscriptionId


@dataclass(slots=True)
class _GapRead:
    own: OwnSubscription
    source: MissedSource
    gap: int
    """The number of the broker's gap; 0 for notifications that this node dropped."""
    round: int = 0
    after: Cursor | None = None
    lost: int = 0
    requested: bool = False
    """Whether a request is without a reply."""


class GapReader:
    """The reads of missed objects of one node."""

    def __init__(
        self,
        subscriber: Subscriber,
        outbox: Outbox,
        next_id: Callable[[], int],
        fetch: FetchMissedPage,
    ) -> None:
        self._subscriber = subscriber
        self._outbox = outbox
        self._next_id = next_id
        self._fetch = fetch
        self._reads: dict[tuple[SubscriptionId, MissedSource, bool], _GapRead] = {}

    def __len__(self) -> int:
        return len(self._reads)

    def on_missed(self, source: MissedSource, message: Missed, now_us: int) -> bool:
        """Starts to read what a broker could not deliver; returns False if this node does not have
        the subscription."""
        own = self._subscriber.get(message.sid)
        if own is None:
            return False
        name = (message.sid, source, False)
        if own.attached and own.started and name not in self._reads:
            read = self._reads[name] = _GapRead(own, source, message.gap)
            own.reads_active += 1
            self._request_page(name, read, now_us)
        return True

    def continue_reading(self, own: OwnSubscription, now_us: int) -> None:
        """Continues the reads of a subscription after a pause, and reads what was dropped."""
        for source, since in self._subscriber.drain_dropped(own).items():
            name = (own.sid, source, True)
            read = self._reads.get(name)
            if read is None:
                read = self._reads[name] = _GapRead(own, source, 0, after=since)
                own.reads_active += 1
            elif read.after is None or since < read.after:
                read.after = since
        for name, read in self._reads_of(own):
            self._request_page(name, read, now_us)

    def on_retry_timer(self, timer: GapRetryTimer, now_us: int) -> None:
        """Repeats the reads of a subscription that failed."""
        own = self._subscriber.get(timer.sid)
        if own is not None:
            for name, read in self._reads_of(own):
                self._request_page(name, read, now_us)

    def call_when_idle(self, own: OwnSubscription, callback: OnIdle, now_us: int) -> None:
        """Calls a function once a subscription has no reads that can continue now."""
        own.after_gaps.append(callback)
        self._call_if_idle(own, now_us)

    def is_reading(self, own: OwnSubscription) -> bool:
        """Whether some missed objects are not emitted yet."""
        return bool(self._reads_of(own)) or bool(own.dropped)

    def _reads_of(
        self, own: OwnSubscription
    ) -> list[tuple[tuple[SubscriptionId, MissedSource, bool], _GapRead]]:
        return [(name, read) for name, read in self._reads.items() if read.own is own]

    def _request_page(
        self, name: tuple[SubscriptionId, MissedSource, bool], read: _GapRead, now_us: int
    ) -> None:
        if read.requested or read.own.paused:
            return
        read.requested = True
        key = read.own.subscription.key
        request = FetchMissed(
            self._next_id(), key, read.gap, read.round, read.after, PAGE_SIZE, read.lost
        )

        def on_result(result: Result[MissedPage], now_us: int) -> None:
            read.requested = False
            if self._subscriber.get(read.own.sid) is not read.own:
                self._reads.pop(name, None)
            elif isinstance(result, Failure):
                self._on_failure(name, read, now_us)
            else:
                self._on_page(name, read, result.value, now_us)

        self._fetch(read.source, request, now_us, on_result)

    def _on_page(
        self,
        name: tuple[SubscriptionId, MissedSource, bool],
        read: _GapRead,
        page: MissedPage,
        now_us: int,
    ) -> None:
        own = read.own
        if page.gap != read.gap:  # the broker restarted: its count begins again
            read.gap, read.lost = page.gap, 0
        if page.lost > read.lost:
            self._outbox.emit(NotificationsLost(own.sid, page.lost - read.lost))
            read.lost = page.lost
        if page.round != read.round:
            read.round, read.after = page.round, None
        for metadata in page.items:
            if own.paused:
                break
            self._subscriber.emit_missed(own, metadata, read.source, now_us)
            read.after = cursor_at(metadata)
        if page.ended:
            self._finish(name, read, now_us)
        elif own.paused:
            self._call_if_idle(own, now_us)
        else:
            self._request_page(name, read, now_us)

    def _on_failure(
        self, name: tuple[SubscriptionId, MissedSource, bool], read: _GapRead, now_us: int
    ) -> None:
        """Waits for the broker to repeat its message, or repeats the read of own drops."""
        if read.gap:
            self._finish(name, read, now_us)
        else:
            self._outbox.set_timer(GapRetryTimer(read.own.sid), now_us + _RETRY_US)

    def _finish(
        self, name: tuple[SubscriptionId, MissedSource, bool], read: _GapRead, now_us: int
    ) -> None:
        del self._reads[name]
        own = read.own
        own.reads_active = max(0, own.reads_active - 1)
        self._call_if_idle(own, now_us)
        self._subscriber.on_frame_end(own.sid, now_us)

    def _call_if_idle(self, own: OwnSubscription, now_us: int) -> None:
        if own.paused or not self._reads_of(own):
            callbacks, own.after_gaps = own.after_gaps, []
            for callback in callbacks:
                callback(now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert all(read.own.sid == name[0] for name, read in self._reads.items())
