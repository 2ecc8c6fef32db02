"""Notification sender: sends notifications to subscribers, a limited number of them at a time.

Entry point: `NotificationSender.notify`. Without acknowledgements (profile `paper`) each
notification is sent once. Otherwise a subscriber has a window of unacknowledged notifications. What
does not fit, or is given up, waits in history as a gap of the subscription (`notification_gaps`):
a subscriber that is slow, overloaded or absent costs the broker a bounded amount of memory.
Clauses: E2, M23, M33, M34, M35.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from thyme.model.ids import NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.messages.replies import Missed, MissedPage, Notify
from thyme.protocol.messages.requests import FetchMissed
from thyme.protocol.outbox import Outbox
from thyme.protocol.reliable_send import ReliableSender
from thyme.query.cursor import Cursor
from thyme.storage.store import Store
from thyme.substrates.common.broker import Broker
from thyme.substrates.common.notification_gaps import (
    GapTimer,
    GapUpkeepTimer,
    NotificationGaps,
    position_before,
)

WINDOW_MAX = 512
WINDOW_BYTES_MAX = 2**20
"""Maximum number of unacknowledged notifications to one subscriber, and of bytes of their
summaries."""


@dataclass(slots=True)
class _Window:
    """The unacknowledged notifications of one subscriber."""

    notifications: dict[int, tuple[Metadata, tuple[SubscriptionId, ...]]] = field(
        default_factory=dict
    )
    bytes: int = 0


class NotificationSender:
    """Notifies the subscribers of one broker."""

    def __init__(
        self,
        node_id: NodeId,
        broker: Broker,
        store: Store,
        outbox: Outbox,
        reliable_sender: ReliableSender,
    ) -> None:
        self._node_id = node_id
        self._broker = broker
        self._outbox = outbox
        self._reliable_sender = reliable_sender
        self._windows: dict[NodeId, _Window] = {}
        self._next_serial = 0
        self.gaps = NotificationGaps(broker, store, outbox, self._send_missed, self._lowest_pending)

    def start(self, now_us: int) -> None:
        """Continues where an earlier incarnation of the broker stopped."""
        self.gaps.start(now_us)

    def notify(self, subscriber: NodeId, notify: Notify, now_us: int) -> None:
        """Notifies a subscriber of an object, now or as soon as it can take it."""
        if subscriber == self._node_id or self._reliable_sender.is_plain:
            self._outbox.send(subscriber, notify)
            return
        window = self._windows.get(subscriber)
        full = window is not None and (
            len(window.notifications) >= WINDOW_MAX or window.bytes >= WINDOW_BYTES_MAX
        )
        sids = []
        for sid in notify.sids:
            key = SubscriptionKey(sid, subscriber)
            if full or self.gaps.is_open(key):
                self.gaps.miss(key, notify.metadata, now_us)
            else:
                self.gaps.protect(key, notify.metadata, now_us)
                sids.append(sid)
        if sids:
            self._send(subscriber, Notify(notify.metadata, tuple(sids)), now_us)

    def _send(self, subscriber: NodeId, notify: Notify, now_us: int) -> None:
        """Sends a notification until it is acknowledged, as long as its object is stored."""
        history, key = self._broker.catalogue.history, notify.metadata.key
        window = self._windows.setdefault(subscriber, _Window())
        serial, self._next_serial = self._next_serial, self._next_serial + 1
        window.notifications[serial] = (notify.metadata, notify.sids)
        window.bytes += len(notify.metadata.summary)

        def on_settled(settled: bool, now_us: int) -> None:
            if serial not in window.notifications:
                return
            if settled:
                del window.notifications[serial]
                window.bytes -= len(notify.metadata.summary)
                if not window.notifications:
                    self._windows.pop(subscriber, None)
            else:
                self._give_up(subscriber, now_us)

        def make_message(now_us: int) -> Notify | None:
            if serial not in window.notifications:
                return None
            if key in history:
                return notify
            for sid in notify.sids:  # counted as lost, unless its owner deleted it
                self.gaps.miss(SubscriptionKey(sid, subscriber), notify.metadata, now_us)
            return None

        self._reliable_sender.send(subscriber, make_message, now_us, on_settled)

    def _give_up(self, subscriber: NodeId, now_us: int) -> None:
        """Gives up all unacknowledged notifications of a subscriber that did not acknowledge one:
        it reads them in order later."""
        window = self._windows.pop(subscriber)
        notifications, window.notifications = window.notifications, {}
        for metadata, sids in notifications.values():
            for sid in sids:
                self.gaps.miss(SubscriptionKey(sid, subscriber), metadata, now_us)

    def on_fetch_missed(self, sender: NodeId, request: FetchMissed, now_us: int) -> MissedPage:
        """Serves a page of missed objects."""
        return self.gaps.read(sender, request, now_us)

    def on_subscriber_active(self, subscriber: NodeId, now_us: int) -> None:
        """Sends `Missed` to a subscriber that was just active."""
        self.gaps.on_subscriber_active(subscriber, now_us)

    def on_timer(self, timer: GapTimer | GapUpkeepTimer, now_us: int) -> None:
        """Handles the timers of the gaps."""
        if isinstance(timer, GapTimer):
            self.gaps.on_timer(timer, now_us)
        else:
            self.gaps.on_upkeep_timer(now_us)

    def _send_missed(self, key: SubscriptionKey, missed: Missed, now_us: int) -> None:
        self._outbox.send(key.subscriber, missed)

    def _lowest_pending(self, key: SubscriptionKey) -> Cursor | None:
        window = self._windows.get(key.subscriber)
        if window is None:
            return None
        return min(
            (
                position_before(metadata)
                for metadata, sids in window.notifications.values()
                if key.sid in sids
            ),
            default=None,
        )

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.gaps.check()
        assert all(window.notifications for window in self._windows.values())
        assert all(len(one.notifications) <= WINDOW_MAX for one in self._windows.values())
