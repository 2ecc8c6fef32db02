"""Pending notifications: those of one node that are unacknowledged or undelivered, by subscriber.

Entry point: `PendingNotifications`, which also sets the timer of each subscriber's next attempt;
`notification_delivery` decides what happens then.
Clauses: D22, B3.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.outbox import Outbox


class NotificationRetryTimer(msgspec.Struct, frozen=True):
    """The timer of the next attempt for a subscriber."""

    subscriber: NodeId


class PendingNotification(msgspec.Struct, frozen=True):
    """A notification for one subscriber: the object and the matching subscriptions."""

    key: Key | None
    """None in a probe of the subscriber."""
    sids: tuple[SubscriptionId, ...]
    first_sent_us: int
    due_us: int
    """When the notification must be handled next."""
    tries: int = 1
    is_undelivered: bool = False
    """Whether the notification is known to be undelivered."""
    is_last_try: bool = False
    """Whether this was the last attempt, after which the subscriber is suspected to have failed
    (D22)."""
    probed_cell: CellId | None = None
    """The cell in which the subscriber is probed."""
    published_us: int = 0
    """When the object was published, which may be removed before its subscriber is notified."""
    summary_bytes: int = 0


class SubscriberNotifications(dict[Key | None, PendingNotification]):
    """The pending notifications of one subscriber by object, and the bytes of their summaries; that
    of a probe has no object."""

    def __init__(self) -> None:
        super().__init__()
        self.summary_bytes = 0

    def __setitem__(self, key: Key | None, notification: PendingNotification) -> None:
        if key in self:
            self.summary_bytes -= self[key].summary_bytes
        super().__setitem__(key, notification)
        self.summary_bytes += notification.summary_bytes

    def __delitem__(self, key: Key | None) -> None:
        self.summary_bytes -= self[key].summary_bytes
        super().__delitem__(key)

    def remove(self, key: Key | None) -> None:
        """Removes the notification about an object, if there is one."""
        if key in self:
            del self[key]


class PendingNotifications:
    """The pending notifications of one node."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._by_subscriber: dict[NodeId, SubscriberNotifications] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_subscriber.values()))

    def of(self, subscriber: NodeId) -> SubscriberNotifications:
        """The pending notifications of a subscriber."""
        return self._by_subscriber.get(subscriber) or SubscriberNotifications()

    def put(self, subscriber: NodeId, notification: PendingNotification) -> None:
        """Adds a notification, or replaces the one about the same object."""
        pending = self._by_subscriber.get(subscriber)
        if pending is None:
            pending = self._by_subscriber[subscriber] = SubscriberNotifications()
        pending[notification.key] = notification

    def set_timer(self, subscriber: NodeId) -> None:
        """Sets the timer of the next attempt; forgets a subscriber without notifications."""
        pending = self._by_subscriber.get(subscriber)
        if pending:
            due_us = min(notification.due_us for notification in pending.values())
            self._outbox.set_timer(NotificationRetryTimer(subscriber), due_us)
        else:
            self.forget(subscriber)

    def forget(self, subscriber: NodeId) -> None:
        """Drops all notifications of a subscriber."""
        if self._by_subscriber.pop(subscriber, None) is not None:
            self._outbox.cancel_timer(NotificationRetryTimer(subscriber))

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert all(self._by_subscriber.values())
        for pending in self._by_subscriber.values():
            assert pending.summary_bytes == sum(each.summary_bytes for each in pending.values())
