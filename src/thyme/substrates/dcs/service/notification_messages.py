"""Notification messages: makes the messages that notify subscribers of indexed objects.

Entry point: `NotificationMessages`, which `notification_delivery` uses.
Clauses: D17, D28, B3.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thyme.protocol.messages.cell_records import MatchedObject
from thyme.protocol.messages.cells import CellNotifyBatch
from thyme.protocol.messages.compact import CompactNotifyBatch, SmallObjectOf, compact_batch
from thyme.substrates.dcs.service.pending_notifications import PendingNotification
from thyme.substrates.dcs.state.cell_index import CellIndex


class NotificationMessages:
    """Makes the notification messages of one node."""

    def __init__(self, index: CellIndex, small_object_of: SmallObjectOf | None) -> None:
        """`small_object_of` finds objects that are sent with their metadata; None if notifications
        are not sent in compact form (D28)."""
        self._index = index
        self._small_object_of = small_object_of

    def find_objects(
        self, notifications: Iterable[PendingNotification]
    ) -> list[tuple[PendingNotification, MatchedObject]]:
        """The notifications whose objects are still indexed, with these objects."""
        found = (
            (each, self._index.get_object(each.key))
            for each in notifications
            if each.key is not None
        )
        return [
            (each, MatchedObject(self._index.with_replication_list(metadata), each.sids))
            for each, metadata in found
            if metadata is not None
        ]

    def make_batch(
        self, items: Sequence[MatchedObject], ack_delay_us: int
    ) -> CellNotifyBatch | CompactNotifyBatch:
        """A message that subscribers acknowledge, at most `ack_delay_us` later if that is not 0."""
        if self._small_object_of is None:
            return CellNotifyBatch(tuple(items))
        return compact_batch(items, self._small_object_of, ack_delay_us)
