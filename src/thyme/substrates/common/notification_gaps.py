"""Notification gaps: what a subscriber missed is kept as a position in history, until it is read.

Entry point: `NotificationGaps`, of one broker. A subscription without a gap is notified of each new
object. Once a notification is given up, or too many are unacknowledged, the subscription has a gap:
the position in history after which objects are missing. New matches then wait in history; they cost
no memory and no messages. The broker tells the subscriber (`Missed`) until it reads the history
from the gap on (`FetchMissed`), oldest first and at its own speed. When it has reached the end, the
gap is closed, in the same step in which the next object would be notified again, so nothing falls
between (M26). Objects that retention removes before they were read are counted as lost.

The store holds for each subscription with unacknowledged notifications or a gap a position before
the first of them, which becomes a gap after a restart. The position of unacknowledged notifications
is updated from time to time only: the subscriber drops what it had.
`notification_sender` and `dcs.service.notification_delivery` decide what was missed; the
subscriber's side is `gap_reader`.
Clauses: M16, M23, M26, M34.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from thyme.model.errors import NotFoundError, NotOwnerError
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.replies import Missed, MissedPage
from thyme.protocol.messages.requests import FetchMissed
from thyme.protocol.outbox import Outbox
from thyme.query.cursor import Cursor, cursor_at
from thyme.storage.store import RecordTable, Store
from thyme.substrates.common.broker import Broker
from thyme.substrates.common.catalogue import DELETED, EVICTED, EXPIRED

PAGE_MAX = 200
PAGE_BYTES_MAX = 256 * 1024
"""Maximum number of objects in one page of missed objects, and of bytes of their summaries; a page
has at least one object."""
_WAIT_US_MIN = SECOND_US // 2
_WAIT_US_MAX = 8 * SECOND_US
"""How long to wait before `Missed` is sent again, twice as long each time within these limits."""
_READ_WAIT_US = 2 * SECOND_US
"""How long a subscriber that is reading may pause before `Missed` is sent again."""
_UPKEEP_US = 5 * SECOND_US


class StoredGap(msgspec.Struct, frozen=True, array_like=True):
    """The position after which a subscriber may miss objects, and the number of lost ones."""

    key: SubscriptionKey
    since: Cursor
    lost: int = 0


class GapTimer(msgspec.Struct, frozen=True):
    """Timer at which `Missed` is sent to a subscriber again."""

    key: SubscriptionKey


class GapUpkeepTimer(msgspec.Struct, frozen=True):
    """Timer at which the stored positions are updated."""


GAPS = RecordTable("notification gap", StoredGap)
SendMissed = Callable[[SubscriptionKey, Missed, int], None]
"""Sends a message to the subscriber of a subscription."""
LowestPending = Callable[[SubscriptionKey], Cursor | None]
"""Returns the position before the first unacknowledged notification of a subscription."""


@dataclass(slots=True)
class _Gap:
    number: int
    since: Cursor
    """The subscriber has everything up to here."""
    round: int = 1
    read_to: Cursor | None = None
    """The end of the last page in this round."""
    again: Cursor | None = None
    """The position from which the next round must read: objects arrived behind `read_to`."""
    lost: int = 0
    wait_us: int = _WAIT_US_MIN
    quiet_until_us: int = 0
    active_us: int = 0
    """When the subscriber last answered, or the gap was opened."""

    def lowest(self) -> Cursor:
        """The position before the first object that the subscriber does not have."""
        return self.since if self.again is None else min(self.since, self.again)

    def is_unread(self, cursor: Cursor) -> bool:
        """Whether the subscriber may still read an object at this position."""
        return cursor > (self.since if self.read_to is None else self.read_to) or (
            self.again is not None and cursor > self.again
        )


def position_before(metadata: Metadata) -> Cursor:
    """A position in history before an object."""
    return Cursor(metadata.published_us - 1, metadata.key)


class NotificationGaps:
    """The gaps of all subscriptions of one broker."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        outbox: Outbox,
        send_missed: SendMissed,
        lowest_pending: LowestPending,
        *,
        absent_us_max: int | None = None,
        on_absent: Callable[[NodeId, int], None] | None = None,
    ) -> None:
        """`on_absent` receives a subscriber that has a gap and did not answer for `absent_us_max`
        (D22)."""
        self._broker = broker
        self._absent_us_max = absent_us_max
        self._on_absent = on_absent
        self._store = store
        self._outbox = outbox
        self._send_missed = send_missed
        self._lowest_pending = lowest_pending
        self._gaps: dict[SubscriptionKey, _Gap] = {}
        self._by_subscriber: dict[NodeId, set[SubscriptionKey]] = {}
        self._stored: dict[SubscriptionKey, StoredGap] = {}
        self._last_number = 0
        self.missed = 0
        """Number of matches that were not notified at once."""
        self.lost = 0
        """Number of matches that were removed before they could be notified."""
        broker.catalogue.on_removed = self._on_removed

    def __len__(self) -> int:
        return len(self._gaps)

    def start(self, now_us: int) -> None:
        """Opens a gap for each subscription that was not completely notified before the start."""
        for text, stored in list(self._store.load(GAPS)):
            if self._broker.get_active(stored.key) is None:
                self._store.remove(GAPS, text)
                continue
            self._stored[stored.key] = stored
            self._open(stored.key, stored.since, now_us).lost = stored.lost
        self._set_upkeep_timer(now_us)

    def is_open(self, key: SubscriptionKey) -> bool:
        """Whether a subscription has a gap, so that new matches wait in history."""
        return key in self._gaps

    # Missed notifications

    def protect(self, key: SubscriptionKey, metadata: Metadata, now_us: int) -> None:
        """Stores that a notification is under way, in case the broker restarts."""
        self._protect_from(key, position_before(metadata), now_us)

    def _protect_from(self, key: SubscriptionKey, before: Cursor, now_us: int) -> None:
        stored = self._stored.get(key)
        if stored is None or stored.since.published_us > before.published_us:
            if not self._stored:
                self._set_upkeep_timer(now_us, first=True)
            lost = 0 if stored is None else stored.lost
            self._put(StoredGap(key, before, lost))

    def miss(self, key: SubscriptionKey, metadata: Metadata, now_us: int) -> None:
        """Records that a subscriber was not notified of an object, which it will read later, or
        which was removed meanwhile."""
        if metadata.key not in self._broker.catalogue.history:
            self.lose(key, metadata.key, metadata.published_us, now_us)
            return
        if self._broker.get_active(key) is None:
            return
        self.missed += 1
        gap, before = self._gaps.get(key), position_before(metadata)
        if gap is None:
            gap = self._open(key, before, now_us)
        elif not gap.is_unread(cursor_at(metadata)):
            if gap.read_to is None:
                gap.since = min(gap.since, before)
            else:
                gap.again = before if gap.again is None else min(gap.again, before)
        self.protect(key, metadata, now_us)

    def lose(self, key: SubscriptionKey, object_key: Key, published_us: int, now_us: int) -> None:
        """Counts an object that retention removed before its subscriber was notified of it."""
        if self._broker.get_active(key) is None:
            return
        if self._broker.catalogue.state(object_key) in (EXPIRED, EVICTED):
            self.lost += 1
            before = Cursor(published_us - 1, object_key)
            gap = self._gaps.get(key) or self._open(key, before, now_us)
            gap.lost += 1
            self._protect_from(key, before, now_us)

    def _on_removed(self, metadata: Metadata, reason: str) -> None:
        """Counts an object that retention removed before some subscribers read it."""
        if not self._gaps or reason == DELETED:
            return
        for subscription in self._broker.matching_subscriptions(metadata):
            gap = self._gaps.get(subscription.key)
            if gap is not None and gap.is_unread(cursor_at(metadata)):
                gap.lost += 1
                self.lost += 1

    # Reading

    def read(self, sender: NodeId, request: FetchMissed, now_us: int) -> MissedPage:
        """Serves a page of missed objects; closes the gap if there are none left."""
        key = request.key
        if key.subscriber != sender:
            raise NotOwnerError(f"subscription {key} belongs to another node")
        subscription = self._broker.get_active(key)
        if subscription is None:
            raise NotFoundError(f"subscription {key} is not active here")
        self._broker.expire(now_us)
        gap = self._gaps.get(key)
        if request.gap == 0 or gap is None:
            items = (
                self._items(subscription, request.after, request.count) if not request.gap else ()
            )
            return MissedPage(
                request.request_id, request.gap, request.round, items, not items, request.lost
            )
        return self._read_gap(subscription, gap, request, now_us)

    def _read_gap(
        self, subscription: SubscriptionRecord, gap: _Gap, request: FetchMissed, now_us: int
    ) -> MissedPage:
        key = subscription.key
        gap.wait_us, gap.active_us = _WAIT_US_MIN, now_us
        gap.quiet_until_us = now_us + _READ_WAIT_US
        self._outbox.set_timer(GapTimer(key), now_us + _READ_WAIT_US)
        if request.gap == gap.number and request.round == gap.round and request.after is not None:
            gap.since = max(gap.since, request.after)
        items = self._items(subscription, gap.since, request.count)
        if not items and gap.again is not None:
            gap.round += 1
            gap.since, gap.again, gap.read_to = gap.again, None, None
            items = self._items(subscription, gap.since, request.count)
        ended = not items and request.gap == gap.number and request.lost == gap.lost
        if items:
            last = cursor_at(items[-1])
            gap.read_to = last if gap.read_to is None else max(gap.read_to, last)
        elif ended:
            self._close(key)
        return MissedPage(request.request_id, gap.number, gap.round, items, ended, gap.lost)

    def _items(
        self, subscription: SubscriptionRecord, after: Cursor | None, count: int
    ) -> tuple[Metadata, ...]:
        found = self._broker.catalogue.history.earliest_matches(
            subscription.conjunctions, subscription.frame, max(1, min(count, PAGE_MAX)), after
        )
        items: list[Metadata] = []
        size = 0
        for metadata in found:
            size += len(metadata.summary)
            if items and size > PAGE_BYTES_MAX:
                break
            items.append(metadata)
        return tuple(items)

    # Telling

    def on_subscriber_active(
        self, subscriber: NodeId, now_us: int, *, answered: bool = True
    ) -> None:
        """Sends `Missed` to a subscriber that was just active, unless it was sent a moment ago.

        `answered` is whether it has answered this broker, which shows that it receives.
        """
        keys = self._by_subscriber.get(subscriber)
        if not keys:
            return
        for key in sorted(keys):
            gap = self._gaps[key]
            gap.active_us = now_us if answered else gap.active_us
            if now_us >= gap.quiet_until_us:
                gap.wait_us = _WAIT_US_MIN
                self._tell(key, now_us)

    def on_timer(self, timer: GapTimer, now_us: int) -> None:
        """Tells a subscriber again that it missed objects."""
        if timer.key not in self._gaps:
            return
        if self._broker.get_active(timer.key) is None:
            self._close(timer.key)
            return
        self._tell(timer.key, now_us)
        gap, absent_us_max = self._gaps[timer.key], self._absent_us_max
        if absent_us_max is not None and now_us >= gap.active_us + absent_us_max:
            gap.active_us = now_us
            if self._on_absent is not None:
                self._on_absent(timer.key.subscriber, now_us)

    def _tell(self, key: SubscriptionKey, now_us: int) -> None:
        gap = self._gaps[key]
        next_us = now_us + gap.wait_us
        if self._absent_us_max is not None:
            next_us = min(next_us, max(now_us + 1, gap.active_us + self._absent_us_max))
        self._outbox.set_timer(GapTimer(key), next_us)
        gap.quiet_until_us = now_us + _WAIT_US_MIN
        gap.wait_us = min(2 * gap.wait_us, _WAIT_US_MAX)
        self._send_missed(key, Missed(key.sid, gap.number), now_us)

    def _open(self, key: SubscriptionKey, since: Cursor, now_us: int) -> _Gap:
        # The time of a restarted broker is later, so that the numbers of its gaps are new.
        self._last_number = max(self._last_number + 1, now_us)
        gap = self._gaps[key] = _Gap(self._last_number, since, active_us=now_us)
        self._by_subscriber.setdefault(key.subscriber, set()).add(key)
        self._tell(key, now_us)
        return gap

    def _close(self, key: SubscriptionKey) -> None:
        del self._gaps[key]
        keys = self._by_subscriber[key.subscriber]
        keys.discard(key)
        if not keys:
            del self._by_subscriber[key.subscriber]
        self._outbox.cancel_timer(GapTimer(key))

    # Storing

    def on_upkeep_timer(self, now_us: int) -> None:
        """Updates the stored positions."""
        for key, stored in list(self._stored.items()):
            if key in self._gaps and self._broker.get_active(key) is None:
                self._close(key)
            pending, gap = self._lowest_pending(key), self._gaps.get(key)
            positions = [position for position in (pending, gap and gap.lowest()) if position]
            if not positions or self._broker.get_active(key) is None:
                del self._stored[key]
                self._store.remove(GAPS, str(key))
            elif (updated := StoredGap(key, min(positions), gap.lost if gap else 0)) != stored:
                self._put(updated)
        self._set_upkeep_timer(now_us)

    def _put(self, stored: StoredGap) -> None:
        self._stored[stored.key] = stored
        self._store.put(GAPS, str(stored.key), stored)

    def _set_upkeep_timer(self, now_us: int, *, first: bool = False) -> None:
        if self._stored or first:
            self._outbox.set_timer(GapUpkeepTimer(), now_us + _UPKEEP_US)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert set(self._gaps) == {key for keys in self._by_subscriber.values() for key in keys}
        assert all(key in self._stored for key in self._gaps)
