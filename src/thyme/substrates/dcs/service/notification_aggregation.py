"""Notification aggregation: sends notifications to the same subscribers together while they are
frequent.

The first notification is sent at once. While replies are slow, those that follow within the
interval wait until it is over and travel as one message (as Nagle's algorithm does for small
segments, RFC 896). So nothing waits on a free channel, and on a full one a cell with many new
objects sends few messages.
Entry point: `NotificationAggregator.add`.
Clauses: D9, D28, B3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.ids import Key, SubscriptionId
from thyme.protocol.messages.list_limits import RECORDS_MAX
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import Destination

_TARGETS_MAX = 1_000
"""How many groups of subscribers are remembered; others count as not notified recently."""

Targets: TypeAlias = tuple[Destination, ...]
Matches: TypeAlias = dict[Key, tuple[SubscriptionId, ...]]
"""Objects and the matching subscriptions."""


class AggregationTimer(msgspec.Struct, frozen=True):
    """The timer at which waiting notifications are sent."""


class SendMatches(Protocol):
    """Sends objects to their subscribers."""

    def __call__(self, targets: Targets, matches: Matches, now_us: int, gap_us: int | None) -> None:
        """`gap_us`: the time since the message before to the same subscribers; None for none."""
        ...


class NotificationAggregator:
    """The notifications of one node that wait for others."""

    def __init__(
        self,
        outbox: Outbox,
        interval_us: int,
        is_slow: Callable[[], bool],
        send: SendMatches,
    ) -> None:
        """`is_slow`: whether the channel is so full at present that notifications should wait."""
        self._outbox = outbox
        self._interval_us = interval_us
        self._is_slow = is_slow
        self._send = send
        self._waiting: dict[Targets, Matches] = {}
        self._sent_us: BoundedDict[Targets, int] = BoundedDict(_TARGETS_MAX)
        """When the last message to these subscribers was sent."""

    def add(
        self, targets: Targets, key: Key, sids: tuple[SubscriptionId, ...], now_us: int
    ) -> None:
        """Sends a notification, at once or together with the next ones."""
        due_us = self._due_us(targets)
        if targets not in self._waiting and (due_us <= now_us or not self._is_slow()):
            self._send_now(targets, {key: sids}, now_us)
            return
        if not self._waiting:
            self._outbox.set_timer(AggregationTimer(), due_us)
        matches = self._waiting.setdefault(targets, {})
        matches[key] = tuple(dict.fromkeys((*matches.get(key, ()), *sids)))

    def on_timer(self, now_us: int) -> None:
        """Sends the notifications that have waited long enough."""
        due = [targets for targets in self._waiting if self._due_us(targets) <= now_us]
        for targets in due:
            self._send_now(targets, self._waiting.pop(targets), now_us)
        if self._waiting:
            self._outbox.set_timer(AggregationTimer(), min(map(self._due_us, self._waiting)))

    def flush(self, now_us: int) -> None:
        """Sends all waiting notifications: this node leaves its cell."""
        waiting, self._waiting = self._waiting, {}
        for targets, matches in waiting.items():
            self._send_now(targets, matches, now_us)

    def _due_us(self, targets: Targets) -> int:
        """When the next message to these subscribers may be sent."""
        sent_us = self._sent_us.get(targets)
        return 0 if sent_us is None else sent_us + self._interval_us

    def _send_now(self, targets: Targets, matches: Matches, now_us: int) -> None:
        sent_us = self._sent_us.get(targets)
        self._sent_us.refresh(targets, now_us)
        waited_us = None if sent_us is None else now_us - sent_us
        keys = list(matches)
        for start in range(0, len(keys), RECORDS_MAX):
            part = {key: matches[key] for key in keys[start : start + RECORDS_MAX]}
            self._send(targets, part, now_us, waited_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert all(self._waiting.values())
