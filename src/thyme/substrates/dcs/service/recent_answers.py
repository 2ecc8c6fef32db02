"""Recent answers: finds matches missed when insert and subscribe reach different nodes of a cell.

The node that activates a subscription answers with the past matches it knows, and the node that
indexes an object notifies the subscriptions it knows. A pair whose two messages reach different
nodes at the same time, or of which one was lost in the cell and is repaired later, would be missed
by both nodes. `RecentAnswers` finds such pairs; `cell_service` sends the notifications.
Clauses: M26, B2.
"""

from __future__ import annotations

from thyme.model.bounded import drop_before
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.substrates.dcs.state.cell_index import CellIndex


class RecentAnswers:
    """The subscriptions and objects for which this node recently replied on behalf of its cell."""

    def __init__(self, index: CellIndex, race_window_us: int, late_window_us: int) -> None:
        self._index = index
        self._race_window_us = race_window_us
        self._window_us = max(race_window_us, late_window_us)
        self._subscribed_us: dict[SubscriptionKey, int] = {}
        self._indexed_us: dict[Key, int] = {}

    def add_subscription(self, key: SubscriptionKey, now_us: int) -> None:
        """Records a subscription that this node activated for its cell."""
        self._prune(now_us)
        self._subscribed_us.pop(key, None)
        self._subscribed_us[key] = now_us

    def add_object(self, key: Key, now_us: int) -> None:
        """Records an object that this node indexed for its cell."""
        self._prune(now_us)
        self._indexed_us.pop(key, None)
        self._indexed_us[key] = now_us

    def select_recent(
        self, matched: list[SubscriptionRecord], now_us: int
    ) -> list[SubscriptionRecord]:
        """Of the subscriptions that match an object, those that this node activated just now: the
        node that indexed the object first may not have them yet (M26)."""
        self._prune(now_us)
        since_us = now_us - self._race_window_us
        return [
            subscription
            for subscription in matched
            if self._subscribed_us.get(subscription.key, -1) >= since_us
        ]

    def missed_subscriptions(self, metadata: Metadata, now_us: int) -> list[SubscriptionRecord]:
        """The matching subscriptions that this node activated without knowing the object."""
        self._prune(now_us)
        active = map(self._index.get_subscription, self._subscribed_us)
        return [
            subscription
            for subscription in active
            if subscription is not None and subscription.matches(metadata)
        ]

    def missed_objects(self, subscription: SubscriptionRecord, now_us: int) -> list[Metadata]:
        """The matching objects that this node indexed without knowing the subscription."""
        self._prune(now_us)
        indexed = map(self._index.get_object, self._indexed_us)
        return [metadata for metadata in indexed if metadata and subscription.matches(metadata)]

    def _prune(self, now_us: int) -> None:
        since_us = now_us - self._window_us
        drop_before(self._subscribed_us, since_us)
        drop_before(self._indexed_us, since_us)
