"""Notification receiver: handles the notifications that cells send to a subscriber.

Entry points: `NotificationReceiver.on_notify`, `on_notify_batch` and `on_missed`. The notifications
are sent by `service.notification_delivery`; the client hands them to the application. If so
configured, acknowledgements wait a while, and one message then acknowledges the notifications of
several senders.
Clauses: D17, D28, B3, M34.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from thyme.protocol.messages.cell_records import MatchedObject
from thyme.protocol.messages.cells import CellNotify, CellNotifyBatch, NotifyAck
from thyme.protocol.messages.replies import Missed, Notify
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import CellRouting, Delivery, Destination
from thyme.substrates.common.client import Client
from thyme.substrates.common.subscriber import Subscriber
from thyme.substrates.dcs.client.replica_locations import ReplicaLocations

_UNKNOWN_SIDS_MAX = 8
_ACKS_MAX = 64
"""How many acknowledgements wait at most."""
_ACK_BYTES_MAX = 2**18
"""For how many bytes of summaries they wait at most: the sender has a window of four times that."""


class AckTimer(msgspec.Struct, frozen=True):
    """The timer at which waiting acknowledgements are sent."""


class NotificationReceiver:
    """Receives the notifications of one node."""

    def __init__(
        self,
        routing: CellRouting,
        outbox: Outbox,
        client: Client,
        subscriber: Subscriber,
        replica_locations: ReplicaLocations,
        dropped: Counter[str],
        ack_delay_us: int,
    ) -> None:
        self._routing = routing
        self._outbox = outbox
        self._client = client
        self._subscriber = subscriber
        self._replica_locations = replica_locations
        self._dropped = dropped
        self._ack_delay_us = ack_delay_us
        self._waiting_acks: dict[int, Destination] = {}
        """The senders of notifications to acknowledge, by the number of the message."""
        self._acks_due_us: int | None = None
        self._waiting_bytes = 0
        """The summaries of notifications to acknowledge."""

    def on_notify(self, delivery: Delivery, message: CellNotify, now_us: int) -> None:
        """Handles one notification."""
        self._on_match(delivery, MatchedObject(message.indexed, message.sids), now_us)

    def on_notify_batch(self, delivery: Delivery, message: CellNotifyBatch, now_us: int) -> None:
        """Acknowledges and handles several notifications."""
        self._waiting_acks[delivery.number] = Destination(delivery.origin_cell, delivery.origin)
        delay_us = delivery.ack_delay_us or self._ack_delay_us
        is_probe = not message.items
        self._waiting_bytes += sum(len(item.indexed.metadata.summary) for item in message.items)
        is_full = len(self._waiting_acks) >= _ACKS_MAX or self._waiting_bytes >= _ACK_BYTES_MAX
        if is_probe or not delay_us or is_full:
            self.send_acks(now_us)
        elif self._acks_due_us is None or now_us + delay_us < self._acks_due_us:
            self._acks_due_us = now_us + delay_us
            self._outbox.set_timer(AckTimer(), self._acks_due_us)
        for matched in message.items:
            self._on_match(delivery, matched, now_us)

    def send_acks(self, now_us: int) -> None:
        """Sends the waiting acknowledgements in one message to all senders; each of them knows the
        numbers of its own messages."""
        waiting, self._waiting_acks = self._waiting_acks, {}
        self._waiting_bytes = 0
        if self._acks_due_us is not None:
            self._acks_due_us = None
            self._outbox.cancel_timer(AckTimer())
        if waiting:
            self._routing.send(list(waiting.values()), NotifyAck(tuple(waiting)), now_us)

    def on_missed(self, delivery: Delivery, message: Missed, now_us: int) -> None:
        """Handles the message of a node that could not notify this one (M34)."""
        source = (delivery.origin_cell, delivery.origin)
        self._client.on_missed(delivery.origin_cell, source, message, now_us)

    def _on_match(self, delivery: Delivery, matched: MatchedObject, now_us: int) -> None:
        """Handles a notification for some subscriptions. If none of them is this node's and they
        are few, the client asks the sending cell to drop them."""
        metadata = matched.indexed.metadata
        own = tuple(sid for sid in matched.sids if self._subscriber.get(sid) is not None)
        if own:
            rank = matched.sids.index(own[0])
            self._replica_locations.add(
                matched.indexed, delivery.origin_cell, len(matched.sids), rank
            )
        elif len(matched.sids) <= _UNKNOWN_SIDS_MAX:
            own = matched.sids
        else:
            self._dropped["news for nobody here"] += 1
            return
        self._client.on_notify(delivery.origin_cell, Notify(metadata, own), now_us)
