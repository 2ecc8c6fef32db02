"""Notification delivery: sends notifications, and sends undelivered ones again.

Entry points: `NotificationDelivery.send_notification`, `on_ack`, `on_delivery_failure` and
`on_subscriber_seen`. Routing reports a subscriber that is not in its cell. The notification then
waits for the subscriber's location update and is sent to its new cell; if so configured, it is also
retried after a while, since the radio may have failed. Where notifications are acknowledged, a
missing acknowledgement counts as undelivered, and notifications to one subscriber are sent again in
one message; a subscriber has a limited number of unacknowledged notifications, and the others, as
well as those given up after some tries, wait in the index until the subscriber reads them
(`substrates.common.notification_gaps`). Where notifications are not acknowledged, they are dropped
after a maximum wait and a last attempt. A subscriber that is absent for the maximum wait is
suspected; before it counts as failed, each node of the cell probes it and relies on its own result.
Clauses: D8, D9, D22, B3, B5, M34.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.subscriptions import SubscriptionKey
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import CellNotify, CellNotifyBatch, NotifyAck
from thyme.protocol.messages.replies import Missed
from thyme.protocol.outbox import Outbox
from thyme.protocol.round_trip import RoundTripTimes
from thyme.query.cursor import Cursor
from thyme.routing.cells import CellRouting, Delivery, DeliveryFailure, Destination
from thyme.storage.store import Store
from thyme.substrates.common.notification_gaps import NotificationGaps, position_before
from thyme.substrates.dcs.config import NotificationDeliveryConfig
from thyme.substrates.dcs.service.notification_aggregation import (
    Matches,
    NotificationAggregator,
    Targets,
)
from thyme.substrates.dcs.service.notification_messages import NotificationMessages
from thyme.substrates.dcs.service.pending_notifications import (
    NotificationRetryTimer,
    PendingNotification,
    PendingNotifications,
)
from thyme.substrates.dcs.state.cell_index import CellIndex

PROBE_WAIT_US = SECOND_US
WINDOW_MAX = 256
WINDOW_BYTES_MAX = 2**20
"""Maximum number of unacknowledged notifications to one subscriber, and of bytes of their
summaries."""
PROBES_MAX = 3
"""How often a subscriber is probed before it counts as failed."""

Recipients = Mapping[tuple[CellId, NodeId], list[SubscriptionId]]
"""The subscribers to notify: cell and node, each with the matching subscriptions."""

_FREE_CHANNEL_DIVISOR = 4
"""How much shorter frequent acknowledgements wait on a channel that is not slow."""


class NotificationDelivery:
    """The notifications of one node that are unacknowledged or undelivered."""

    def __init__(
        self,
        routing: CellRouting,
        outbox: Outbox,
        index: CellIndex,
        store: Store,
        config: NotificationDeliveryConfig,
        messages: NotificationMessages,
        round_trips: RoundTripTimes | None,
        on_subscriber_failed: Callable[[NodeId, int], None],
        on_subscriber_absent: Callable[[NodeId, CellId], None],
    ) -> None:
        """`round_trips`: what the wait for acknowledgements depends on; None for the settings
        alone (D28). `on_subscriber_failed` receives a subscriber that could not be notified for the
        maximum wait (D22), `on_subscriber_absent` one that did not answer the probes, and the cell
        in which it was probed."""
        self._routing = routing
        self._outbox = outbox
        self._index = index
        self._config = config
        self._messages = messages
        self._round_trips = round_trips
        self._sent: BoundedDict[int, tuple[PendingNotification, ...]] = BoundedDict(
            self._config.pending_max
        )
        """The notifications in a message by its number, since it may be returned."""
        self._pending = PendingNotifications(outbox)
        self.aggregator = NotificationAggregator(
            outbox,
            config.aggregation_us,
            self._is_slow,
            self._send_matches,
        )
        self._on_subscriber_failed = on_subscriber_failed
        self._on_subscriber_absent = on_subscriber_absent
        self.gaps = NotificationGaps(
            index.broker,
            store,
            outbox,
            self._send_missed,
            self._lowest_pending,
            absent_us_max=config.wait_us_max,
            on_absent=on_subscriber_failed,
        )
        self.undelivered = 0
        self.resent = 0
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._pending)

    # Sending

    def send_notification(self, key: Key, recipients: Recipients, now_us: int) -> None:
        """Sends one message to all subscribers; it is split where their routes part (D9)."""
        if self._config.ack_timeout_us is not None:
            recipients = self._without_gaps(key, recipients, now_us)
        ordered = sorted(recipients.items())
        for start in range(0, len(ordered), self._config.destinations_max):
            group = ordered[start : start + self._config.destinations_max]
            sids = tuple(sorted(sid for _, matching in group for sid in matching))
            targets = tuple(Destination(cell, subscriber) for (cell, subscriber), _ in group)
            if self._config.ack_timeout_us is None or not self._config.aggregation_us:
                self._send_matches(targets, {key: sids}, now_us, None)
            else:
                self.aggregator.add(targets, key, sids, now_us)

    def _send_matches(
        self, targets: Targets, matches: Matches, now_us: int, gap_us: int | None
    ) -> None:
        """Sends new notifications; while they are frequent, acknowledgements may wait, longer if
        the channel is slow (D28)."""
        notifications = [
            self._make_notification(key, sids, now_us) for key, sids in matches.items()
        ]
        ack_delay_us = 0
        if gap_us is not None and gap_us < self._config.busy_ack_delay_us:
            ack_delay_us = self._config.busy_ack_delay_us
            if not self._is_slow():
                ack_delay_us //= _FREE_CHANNEL_DIVISOR
        self._send_notifications(targets, notifications, now_us, ack_delay_us)

    def _is_slow(self) -> bool:
        """Whether messages wait for others; without measurements they do."""
        return self._round_trips is None or self._round_trips.is_slow

    def _make_notification(
        self, key: Key, sids: tuple[SubscriptionId, ...], now_us: int
    ) -> PendingNotification:
        metadata = self._index.get_object(key)
        if metadata is None:
            return PendingNotification(key, sids, now_us, now_us)
        return PendingNotification(
            key,
            sids,
            now_us,
            now_us,
            published_us=metadata.published_us,
            summary_bytes=len(metadata.summary),
        )

    def _without_gaps(self, key: Key, recipients: Recipients, now_us: int) -> Recipients:
        """The subscribers that can be notified now; the others will read the object later."""
        metadata = self._index.get_object(key)
        ready: dict[tuple[CellId, NodeId], list[SubscriptionId]] = {}
        for (cell, subscriber), sids in recipients.items():
            pending = self._pending.of(subscriber)
            is_full = len(pending) >= WINDOW_MAX or pending.summary_bytes >= WINDOW_BYTES_MAX
            for sid in sids if metadata is not None else ():
                sub_key = SubscriptionKey(sid, subscriber)
                assert metadata is not None
                if is_full or self.gaps.is_open(sub_key):
                    self.gaps.miss(sub_key, metadata, now_us)
                else:
                    self.gaps.protect(sub_key, metadata, now_us)
                    ready.setdefault((cell, subscriber), []).append(sid)
        return ready

    def _send_notifications(
        self,
        targets: Targets,
        notifications: list[PendingNotification],
        now_us: int,
        ack_delay_us: int = 0,
    ) -> None:
        items = self._messages.find_objects(notifications)
        if not items:
            return
        if self._config.ack_timeout_us is None:
            for notification, item in items:
                message = CellNotify(item.indexed, item.sids)
                self._sent[self._routing.send(targets, message, now_us)] = (notification,)
            return
        batch = self._messages.make_batch([item for _, item in items], ack_delay_us)
        number = self._routing.send(targets, batch, now_us)
        sent = tuple(notification for notification, _ in items)
        self._sent[number] = sent
        wait_us = self._ack_wait_us(self._config.ack_timeout_us) * min(each.tries for each in sent)
        wait_us += ack_delay_us
        for to in targets:
            assert to.node is not None
            self._await_acks(to.node, sent, now_us + wait_us, now_us)

    def _ack_wait_us(self, usual_us: int) -> int:
        """How long to wait for an acknowledgement that is sent at once, or soon."""
        return usual_us if self._round_trips is None else self._round_trips.wait_us(usual_us)

    def _await_acks(
        self,
        subscriber: NodeId,
        notifications: Iterable[PendingNotification],
        due_us: int,
        now_us: int,
    ) -> None:
        for notification in notifications:
            if len(self) < self._config.pending_max:
                pending = msgspec.structs.replace(notification, due_us=due_us, is_undelivered=False)
                self._pending.put(subscriber, pending)
            else:
                self._miss(subscriber, notification, now_us)
        self._pending.set_timer(subscriber)

    def _miss(self, subscriber: NodeId, notification: PendingNotification, now_us: int) -> None:
        """Lets the subscriber read an object later of which it could not be notified."""
        if self._config.ack_timeout_us is None or notification.key is None:
            return
        metadata = self._index.get_object(notification.key)
        for key in self._active_keys(subscriber, notification):
            if metadata is None:
                self.gaps.lose(key, notification.key, notification.published_us, now_us)
            else:
                self.gaps.miss(key, metadata, now_us)

    def _give_up_all(self, subscriber: NodeId, now_us: int) -> None:
        """Gives up all notifications of a subscriber, which reads them in order later."""
        pending = self._pending.of(subscriber)
        for notification in [each for each in pending.values() if each.key is not None]:
            del pending[notification.key]
            self.given_up += 1
            self._miss(subscriber, notification, now_us)
        self._pending.set_timer(subscriber)

    def _send_missed(self, key: SubscriptionKey, missed: Missed, now_us: int) -> None:
        if self._index.get_subscription(key) is not None:
            target = Destination(self._index.subscriber_cell(key), key.subscriber)
            self._routing.send((target,), missed, now_us)

    def _lowest_pending(self, key: SubscriptionKey) -> Cursor | None:
        pending = self._pending.of(key.subscriber).values()
        objects = (
            self._index.get_object(notification.key)
            for notification in pending
            if notification.key is not None and key.sid in notification.sids
        )
        found = (position_before(metadata) for metadata in objects if metadata is not None)
        return min(found, default=None)

    def on_ack(self, delivery: Delivery, ack: NotifyAck, now_us: int) -> None:
        """Removes the pending notifications that a subscriber acknowledged."""
        subscriber = delivery.origin
        self.gaps.on_subscriber_active(subscriber, now_us)
        pending = self._pending.of(subscriber)
        if not pending:
            return
        for number in ack.numbers:
            for notification in self._sent.get(number, ()):
                pending.remove(notification.key)
        if not pending:
            self._pending.forget(subscriber)

    # Probing

    def probe_subscriber(self, subscriber: NodeId, cell: CellId, now_us: int) -> None:
        """Probes a subscriber, unless a probe is pending."""
        if None not in self._pending.of(subscriber):
            self._send_probe(subscriber, cell, 1, now_us)

    def _send_probe(self, subscriber: NodeId, cell: CellId, tries: int, now_us: int) -> None:
        """Sends an empty notification batch, which the subscriber acknowledges."""
        probe = PendingNotification(None, (), now_us, now_us, tries, probed_cell=cell)
        number = self._routing.send((Destination(cell, subscriber),), CellNotifyBatch(()), now_us)
        self._sent[number] = (probe,)
        self._await_acks(subscriber, (probe,), now_us + PROBE_WAIT_US, now_us)

    def _on_probe_timeout(
        self, subscriber: NodeId, probe: PendingNotification, now_us: int
    ) -> None:
        assert probe.probed_cell is not None
        if probe.tries < PROBES_MAX:
            self._send_probe(subscriber, probe.probed_cell, probe.tries + 1, now_us)
        else:
            self._on_subscriber_absent(subscriber, probe.probed_cell)

    # Undelivered notifications

    def on_delivery_failure(self, failure: DeliveryFailure, now_us: int) -> bool:
        """Keeps an undelivered notification for another attempt. Returns whether the failed message
        was a notification."""
        notifications, subscriber = self._sent.get(failure.number), failure.node
        if notifications is None:
            return False
        for notification in notifications:
            if notification.key is not None:  # a probe waits on: the subscriber may be moving
                self._keep_undelivered(subscriber, notification, now_us)
        self._pending.set_timer(subscriber)
        if self._config.ack_timeout_us is not None:
            if any(notification.tries >= self._config.tries_max for notification in notifications):
                self._give_up_all(subscriber, now_us)
        elif any(notification.is_last_try for notification in notifications):
            self._on_subscriber_failed(subscriber, now_us)
        return True

    def _keep_undelivered(
        self, subscriber: NodeId, notification: PendingNotification, now_us: int
    ) -> None:
        self.undelivered += 1
        if notification.is_last_try or len(self) >= self._config.pending_max:
            self._pending.of(subscriber).remove(notification.key)
            self.given_up += 1
            self._miss(subscriber, notification, now_us)
            return
        retry_us = self._config.retry_us
        due_us = notification.first_sent_us + self._config.wait_us_max
        if retry_us is not None and notification.tries < self._config.tries_max:
            due_us = min(due_us, now_us + retry_us * notification.tries)
        undelivered = msgspec.structs.replace(notification, due_us=due_us, is_undelivered=True)
        self._pending.put(subscriber, undelivered)

    def on_timer(self, timer: NotificationRetryTimer, now_us: int) -> None:
        """Sends due notifications again, drops those after their last attempt, and lets the others
        wait on."""
        pending = self._pending.of(timer.subscriber)
        retries: list[PendingNotification] = []
        failed = given_up = False
        # Notifications that will be due soon are sent along with the due ones.
        until_us = now_us + (self._config.ack_timeout_us or 0) // 2
        for notification in [
            notification for notification in pending.values() if notification.due_us <= until_us
        ]:
            end_us = notification.first_sent_us + self._config.wait_us_max
            if notification.key is None:
                del pending[None]
                self._on_probe_timeout(timer.subscriber, notification, now_us)
            elif notification.is_last_try:
                del pending[notification.key]
                self.given_up += 1
                failed = True
            elif now_us >= end_us:
                # One last attempt: the radio may have failed, not the subscriber.
                del pending[notification.key]
                retries.append(msgspec.structs.replace(notification, is_last_try=True))
            elif notification.tries < self._config.tries_max:
                del pending[notification.key]
                retries.append(notification)
            elif self._config.ack_timeout_us is not None:
                given_up = True
            else:
                pending[notification.key] = msgspec.structs.replace(
                    notification, due_us=end_us, is_undelivered=True
                )
        self._resend(timer.subscriber, retries, now_us)
        self._pending.set_timer(timer.subscriber)
        if given_up:
            self._give_up_all(timer.subscriber, now_us)
        if failed:
            self._on_subscriber_failed(timer.subscriber, now_us)

    def on_subscriber_seen(self, subscriber: NodeId, now_us: int) -> None:
        """Sends the undelivered notifications of a subscriber that has reported its location."""
        self.gaps.on_subscriber_active(subscriber, now_us)
        pending = self._pending.of(subscriber)
        if not pending:
            return
        pending.remove(None)
        undelivered = [
            notification for notification in pending.values() if notification.is_undelivered
        ]
        for notification in undelivered:
            del pending[notification.key]
        self._resend(subscriber, undelivered, now_us)
        self._pending.set_timer(subscriber)

    def _resend(
        self, subscriber: NodeId, notifications: list[PendingNotification], now_us: int
    ) -> None:
        """Sends notifications of subscriptions that are still active to the cell in which the
        subscriber was last seen (M23). If an object was removed meanwhile, the subscriber will be
        informed of the loss; the others it reads then, in order (M34)."""
        if self._lose_removed(subscriber, notifications, now_us):
            for notification in notifications:
                key = notification.key
                if key is not None and self._index.get_object(key) is not None:
                    self._miss(subscriber, notification, now_us)
            self._give_up_all(subscriber, now_us)
            return
        by_cell: dict[CellId, list[PendingNotification]] = {}
        for notification in notifications:
            active = list(self._active_keys(subscriber, notification))
            if active:
                sids = tuple(key.sid for key in active)
                next_try = msgspec.structs.replace(
                    notification, sids=sids, tries=notification.tries + 1, is_undelivered=False
                )
                by_cell.setdefault(self._index.subscriber_cell(active[0]), []).append(next_try)
        for cell, batch in by_cell.items():
            self.resent += len(batch)
            self._send_notifications((Destination(cell, subscriber),), batch, now_us)

    def _lose_removed(
        self, subscriber: NodeId, notifications: list[PendingNotification], now_us: int
    ) -> bool:
        """Counts the objects that retention removed; returns whether there were any."""
        lost = self.gaps.lost
        for notification in notifications:
            if notification.key is not None and self._index.get_object(notification.key) is None:
                self._miss(subscriber, notification, now_us)
        return self.gaps.lost > lost

    def _active_keys(
        self, subscriber: NodeId, notification: PendingNotification
    ) -> Iterator[SubscriptionKey]:
        keys = (SubscriptionKey(sid, subscriber) for sid in notification.sids)
        return (key for key in keys if self._index.get_subscription(key) is not None)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._sent) <= self._config.pending_max
        assert len(self) <= self._config.pending_max
        self._pending.check()
        self.gaps.check()
        self.aggregator.check()
