"""Notification delivery: sends notifications, and sends undelivered ones again.

Entry points: `NotificationDelivery.send_notification`, `on_ack`, `on_delivery_failure` and
`on_subscriber_seen`. Routing reports a subscriber that is not in its cell. The notification then
waits for the subscriber's location update and is sent to its new cell; if so configured, it is also
retried after a while, since the radio may have failed. Where notifications are acknowledged, a
missing acknowledgement counts as undelivered, and notifications to one subscriber are sent again in
one message. After a maximum wait and a last attempt the notification is dropped and its subscriber
suspected. Before a subscriber counts as failed, each node of the cell probes it and relies on its
own result.
Clauses: D8, D9, D22, B3, B5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.subscriptions import SubscriptionKey
from thyme.protocol.cell_messages import CellNews, CellNotify, NewsCame
from thyme.protocol.cells import CellId, Matched
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import CellRouting, NotThere, To
from thyme.substrates.dcs.config import ReturnedConfig
from thyme.substrates.dcs.index import CellIndex

ASK_WAIT_US = SECOND_US
ASKS_MAX = 3
"""How often a subscriber is probed before it counts as failed."""

Audience = Mapping[tuple[CellId, NodeId], list[SubscriptionId]]
"""The subscribers to notify: cell and node, each with the matching subscriptions."""


class ReturnedTimer(msgspec.Struct, frozen=True):
    """The timer of the next attempt for a subscriber."""

    subscriber: NodeId


class GatherTimer(msgspec.Struct, frozen=True):
    """The timer at which delayed notifications are sent."""


class Note(msgspec.Struct, frozen=True):
    """A notification for one subscriber: the object and the matching subscriptions."""

    key: Key | None
    """None in a probe of the subscriber."""
    sids: tuple[SubscriptionId, ...]
    first_us: int
    due_us: int
    """When the notification must be handled next."""
    tries: int = 1
    back: bool = False
    """Whether the notification is known to be undelivered."""
    last: bool = False
    """Whether this was the last attempt, after which the subscriber is suspected to have failed
    (D22)."""
    at: CellId | None = None
    """The cell in which the subscriber is probed."""


class Returned:
    """The notifications of one node that are unacknowledged or undelivered."""

    def __init__(
        self, routing: CellRouting, outbox: Outbox, index: CellIndex, config: ReturnedConfig
    ) -> None:
        self._routing = routing
        self._outbox = outbox
        self._index = index
        self._config = config
        self._sent: dict[int, tuple[Note, ...]] = {}
        self._waiting: dict[NodeId, dict[Key | None, Note]] = {}
        self._gathered: dict[tuple[To, ...], dict[Key, tuple[SubscriptionId, ...]]] = {}
        self.on_failed: Callable[[NodeId, int], None] | None = None
        """Called with a subscriber that could not be notified for the maximum wait (D22)."""
        self.on_absent: Callable[[NodeId, CellId], None] | None = None
        """Called with a subscriber that did not answer the probes, and the cell in which it was
        probed."""
        self.returned = 0
        self.resent = 0
        self.given_up = 0

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    # Sending

    def notify(self, key: Key, audience: Audience, now_us: int) -> None:
        """Sends one message to all subscribers; it is split where their routes part (D9)."""
        ordered = sorted(audience.items())
        for start in range(0, len(ordered), self._config.targets_max):
            group = ordered[start : start + self._config.targets_max]
            sids = tuple(sorted(sid for _, matching in group for sid in matching))
            targets = tuple(To(cell, subscriber) for (cell, subscriber), _ in group)
            if self._config.receipt_us is None or not self._config.gather_us:
                self._send(targets, [Note(key, sids, now_us, now_us)], now_us)
                continue
            if not self._gathered:
                self._outbox.set_timer(GatherTimer(), now_us + self._config.gather_us)
            aggregated = self._gathered.setdefault(targets, {})
            aggregated[key] = tuple(dict.fromkeys((*aggregated.get(key, ()), *sids)))

    def on_gathered(self, now_us: int) -> None:
        """Sends all delayed notifications."""
        aggregated, self._gathered = self._gathered, {}
        for targets, items in aggregated.items():
            notifications = [Note(key, sids, now_us, now_us) for key, sids in items.items()]
            self._send(targets, notifications, now_us)

    def _send(self, targets: tuple[To, ...], notes: list[Note], now_us: int) -> None:
        history = self._index.broker.catalogue.history
        found = [
            (notification, history.get(notification.key))
            for notification in notes
            if notification.key is not None
        ]
        items = [
            (notification, Matched(self._index.indexed(metadata), notification.sids))
            for notification, metadata in found
            if metadata is not None
        ]
        if not items:
            return
        if self._config.receipt_us is None:
            for notification, item in items:
                message = CellNotify(item.indexed, item.sids)
                self._remember(self._routing.send(targets, message, now_us), (notification,))
            return
        number = self._routing.send(targets, CellNews(tuple(item for _, item in items)), now_us)
        sent = tuple(notification for notification, _ in items)
        self._remember(number, sent)
        wait_us = self._config.receipt_us * min(notification.tries for notification in sent)
        for to in targets:
            assert to.node is not None
            self._await(to.node, sent, now_us + wait_us)

    def _remember(self, number: int, notes: tuple[Note, ...]) -> None:
        """Remembers the notifications in a message by its number, since it may be returned."""
        self._sent[number] = notes
        if len(self._sent) > self._config.notes_max:
            del self._sent[next(iter(self._sent))]

    def _await(self, subscriber: NodeId, notes: Iterable[Note], due_us: int) -> None:
        for notification in notes:
            if len(self) < self._config.notes_max:
                pending = msgspec.structs.replace(notification, due_us=due_us, back=False)
                self._waiting.setdefault(subscriber, {})[notification.key] = pending
        self._set_timer(subscriber)

    def on_came(self, subscriber: NodeId, came: NewsCame) -> None:
        """Removes the pending notifications that a subscriber acknowledged."""
        pending = self._waiting.get(subscriber)
        if pending is None:
            return
        for number in came.numbers:
            for notification in self._sent.get(number, ()):
                pending.pop(notification.key, None)
        if not pending:
            self._forget(subscriber)

    # Probing

    def ask(self, subscriber: NodeId, cell: CellId, now_us: int) -> None:
        """Probes a subscriber, unless a probe is pending."""
        if None not in self._waiting.get(subscriber, {}):
            self._ask(subscriber, cell, 1, now_us)

    def _ask(self, subscriber: NodeId, cell: CellId, tries: int, now_us: int) -> None:
        """Sends an empty notification batch, which the subscriber acknowledges."""
        probe = Note(None, (), now_us, now_us, tries, at=cell)
        number = self._routing.send((To(cell, subscriber),), CellNews(()), now_us)
        self._remember(number, (probe,))
        self._await(subscriber, (probe,), now_us + ASK_WAIT_US)

    def _unanswered(self, subscriber: NodeId, question: Note, now_us: int) -> None:
        assert question.at is not None
        if question.tries < ASKS_MAX:
            self._ask(subscriber, question.at, question.tries + 1, now_us)
        elif self.on_absent is not None:
            self.on_absent(subscriber, question.at)

    # Undelivered notifications

    def on_not_there(self, failure: NotThere, now_us: int) -> bool:
        """Keeps an undelivered notification for another attempt. Returns whether the failed message
        was a notification."""
        notifications, subscriber = self._sent.get(failure.number), failure.node
        if notifications is None:
            return False
        for notification in notifications:
            if notification.key is not None:  # a probe waits on: the subscriber may be moving
                self._came_back(subscriber, notification, now_us)
        self._set_timer(subscriber)
        if any(notification.last for notification in notifications):
            self._failed(subscriber, now_us)
        return True

    def _failed(self, subscriber: NodeId, now_us: int) -> None:
        if self.on_failed is not None:
            self.on_failed(subscriber, now_us)

    def _came_back(self, subscriber: NodeId, note: Note, now_us: int) -> None:
        self.returned += 1
        if note.last or len(self) >= self._config.notes_max:
            self._waiting.get(subscriber, {}).pop(note.key, None)
            self.given_up += 1
            return
        retry_us = self._config.retry_us
        due_us = note.first_us + self._config.wait_us
        if retry_us is not None and note.tries < self._config.tries_max:
            due_us = min(due_us, now_us + retry_us * note.tries)
        undelivered = msgspec.structs.replace(note, due_us=due_us, back=True)
        self._waiting.setdefault(subscriber, {})[note.key] = undelivered

    def on_timer(self, timer: ReturnedTimer, now_us: int) -> None:
        """Sends due notifications again, drops those after their last attempt, and lets the others
        wait on."""
        pending = self._waiting.get(timer.subscriber, {})
        retries: list[Note] = []
        failed = False
        # Notifications that will be due soon are sent along with the due ones.
        until_us = now_us + (self._config.receipt_us or 0) // 2
        for notification in [
            notification for notification in pending.values() if notification.due_us <= until_us
        ]:
            end_us = notification.first_us + self._config.wait_us
            if notification.key is None:
                del pending[None]
                self._unanswered(timer.subscriber, notification, now_us)
            elif notification.last:
                del pending[notification.key]
                self.given_up += 1
                failed = True
            elif now_us >= end_us:
                # One last attempt: the radio may have failed, not the subscriber.
                del pending[notification.key]
                retries.append(msgspec.structs.replace(notification, last=True))
            elif notification.tries < self._config.tries_max:
                del pending[notification.key]
                retries.append(notification)
            else:
                pending[notification.key] = msgspec.structs.replace(
                    notification, due_us=end_us, back=True
                )
        self._resend(timer.subscriber, retries, now_us)
        self._set_timer(timer.subscriber)
        if failed:
            self._failed(timer.subscriber, now_us)

    def on_heard(self, subscriber: NodeId, now_us: int) -> None:
        """Sends the undelivered notifications of a subscriber that has reported its location."""
        pending = self._waiting.get(subscriber)
        if pending is None:
            return
        pending.pop(None, None)
        undelivered = [notification for notification in pending.values() if notification.back]
        for notification in undelivered:
            del pending[notification.key]
        self._resend(subscriber, undelivered, now_us)
        self._set_timer(subscriber)

    def _resend(self, subscriber: NodeId, notes: list[Note], now_us: int) -> None:
        """Sends notifications of subscriptions that are still active to the cell in which the
        subscriber was last seen (M23)."""
        by_cell: dict[CellId, list[Note]] = {}
        for notification in notes:
            active = list(self._standing(subscriber, notification))
            if active:
                sids = tuple(key.sid for key in active)
                next_try = msgspec.structs.replace(
                    notification, sids=sids, tries=notification.tries + 1, back=False
                )
                by_cell.setdefault(self._index.cell_of(active[0]), []).append(next_try)
        for cell, batch in by_cell.items():
            self.resent += len(batch)
            self._send((To(cell, subscriber),), batch, now_us)

    def _standing(self, subscriber: NodeId, note: Note) -> Iterator[SubscriptionKey]:
        keys = (SubscriptionKey(sid, subscriber) for sid in note.sids)
        return (key for key in keys if self._index.broker.standing(key) is not None)

    def _set_timer(self, subscriber: NodeId) -> None:
        pending = self._waiting.get(subscriber)
        if pending:
            due_us = min(notification.due_us for notification in pending.values())
            self._outbox.set_timer(ReturnedTimer(subscriber), due_us)
        else:
            self._forget(subscriber)

    def _forget(self, subscriber: NodeId) -> None:
        if self._waiting.pop(subscriber, None) is not None:
            self._outbox.cancel_timer(ReturnedTimer(subscriber))

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._sent) <= self._config.notes_max
        assert len(self) <= self._config.notes_max
        assert all(self._waiting.values())
