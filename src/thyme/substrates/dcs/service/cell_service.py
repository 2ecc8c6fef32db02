"""Cell service: the requests that a node serves for its cell, or for itself.

Entry point: `CellService.on_request`. The first node of a cell to receive a message replies,
matches and notifies; the other nodes apply the same change to their copies (`Delivery.is_first`).
All operations are idempotent. Notifications are sent by `notification_delivery`.
Clauses: D7, D9, D11–D18, M26.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

import msgspec

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionRecord
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellSubscription, Replica
from thyme.protocol.outbox import Outbox
from thyme.routing.cells import CellRouting, Delivery, Destination
from thyme.substrates.common.broker_service import read_requested_page
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.service.notification_delivery import NotificationDelivery
from thyme.substrates.dcs.service.recent_answers import RecentAnswers
from thyme.substrates.dcs.state.cell_index import CellIndex
from thyme.substrates.dcs.state.cell_state import MergeResult
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore, StoredReplica

_RACE_WINDOW_US = SECOND_US // 2
"""How long the node that activated a subscription also matches objects that other nodes of the cell
index: they may not have received the subscription yet (M26)."""
_LATE_WINDOW_US = 60 * SECOND_US
"""The maximum age of a node's own answer for which it still sends notifications when it receives a
missing record from a cell peer (B2)."""


class ExpiryTimer(msgspec.Struct, frozen=True):
    """The timer at which the next record expires."""


class CellService:
    """The serving side of a node."""

    def __init__(
        self,
        routing: CellRouting,
        outbox: Outbox,
        index: CellIndex,
        replicas: ReplicaStore,
        config: DcsConfig,
    ) -> None:
        self._routing = routing
        self._outbox = outbox
        self.index = index
        self._replicas = replicas
        self._config = config
        self._expiry_us: int | None = None
        late_us = _LATE_WINDOW_US if config.anti_entropy else 0
        self._recent_answers = RecentAnswers(index, _RACE_WINDOW_US, late_us)
        self.notification_delivery = NotificationDelivery(
            routing, outbox, index, config.notification_delivery
        )
        self.notifications_sent = 0
        self.dropped: Counter[str] = Counter()

    # Messages

    def on_request(self, delivery: Delivery, request: wire.CellRequest, now_us: int) -> None:
        """Executes a request to the cell or to this node; the first node of the cell replies."""
        if not delivery.is_first:
            try:
                self._apply_as_follower(delivery, request, now_us)
            except OperationError as error:
                self.dropped[error.code] += 1
            return
        try:
            reply = self._process_request(delivery, request, now_us)
        except OperationError as error:
            reply = wire.Refused(request.request_id, error.code, str(error))
        message: wire.Message = reply
        if not delivery.is_unicast:
            message = wire.ReplyFromCell(delivery.cell, reply)
        target = Destination(delivery.origin_cell, delivery.origin)

        def send_reply(now_us: int) -> None:
            self._routing.send([target], message, now_us)

        self._routing.when_acknowledged(delivery, send_reply, now_us)

    def on_announce_replica(self, delivery: Delivery, message: cell_wire.AnnounceReplica) -> None:
        """Adds the sender to an object's replication list (D13)."""
        replica = Replica(delivery.origin_cell, delivery.origin)
        if not self.index.add_replica(message.key, replica):
            self.dropped["replica of nothing"] += 1

    def on_store_replica(
        self, delivery: Delivery, message: cell_wire.StoreReplica, now_us: int
    ) -> None:
        """Stores an active replica for this cell (D11), or for an empty cell whose proxy it is
        (D24)."""
        is_proxy = not delivery.is_unicast and delivery.cell != self._routing.cell
        active = (Replica(delivery.cell),) if is_proxy else ()
        try:
            stored = StoredReplica(message.metadata, ReplicaRole.ACTIVE, active)
            self._replicas.add_replica(stored, message.data, now_us)
        except OperationError as error:
            self.dropped[error.code] += 1

    def _process_request(
        self, delivery: Delivery, request: wire.CellRequest, now_us: int
    ) -> wire.CellReply:
        index, request_id, origin = self.index, request.request_id, delivery.origin
        match request:
            case cell_wire.IndexObject():
                matched = index.add_object(request.indexed, origin, now_us)
                self._recent_answers.add_object(request.indexed.metadata.key, now_us)
                self.notify_subscribers(request.indexed.metadata, matched, now_us)
                return wire.Done(request_id)
            case wire.DeleteObject():
                self._delete_object(request, origin, now_us)
                return wire.Done(request_id)
            case wire.StartSubscription():
                index.add_subscription(
                    _cell_subscription(delivery, request, now_us), origin, now_us
                )
                self._recent_answers.add_subscription(request.subscription.key, now_us)
                self.notification_delivery.on_subscriber_seen(origin, now_us)
                return self._read_page(first_page_request(request), now_us)
            case wire.StopSubscription():
                index.unsubscribe(request.key, origin, now_us, wire.message_proof(request))
                return wire.Done(request_id)
            case wire.FetchPage():
                return self._read_page(request, now_us)
            case wire.FetchObject():
                self._replicas.expire(now_us)
                return wire.ObjectData(
                    request_id, request.key, self._replicas.read_data(request.key)
                )
            case wire.FetchStatus():
                status = index.broker.look_up(request.key, now_us)
                metadata = status.metadata
                indexed = None if metadata is None else index.with_replication_list(metadata)
                return cell_wire.CellStatus(request_id, status.state, indexed)
            case _:
                assert_never(request)

    def _apply_as_follower(
        self, delivery: Delivery, request: wire.CellRequest, now_us: int
    ) -> None:
        """Applies a request that another node of the cell replies to (D7)."""
        index, origin = self.index, delivery.origin
        match request:
            case cell_wire.IndexObject():
                matched = index.add_object(request.indexed, origin, now_us)
                self.notify_subscribers(
                    request.indexed.metadata,
                    self._recent_answers.select_recent(matched, now_us),
                    now_us,
                )
            case wire.DeleteObject():
                self._delete_object(request, origin, now_us)
            case wire.StartSubscription():
                index.add_subscription(
                    _cell_subscription(delivery, request, now_us), origin, now_us
                )
                self.notification_delivery.on_subscriber_seen(origin, now_us)
            case wire.StopSubscription():
                index.unsubscribe(request.key, origin, now_us, wire.message_proof(request))
            case wire.FetchPage() | wire.FetchObject() | wire.FetchStatus():
                pass  # the first node of the cell replies
            case _:
                assert_never(request)

    def _delete_object(self, request: wire.DeleteObject, origin: NodeId, now_us: int) -> None:
        self.index.delete_object(request.key, origin, now_us, wire.message_proof(request))
        self._replicas.remove_with_tombstone(request.key, DELETED, now_us)

    def _read_page(self, request: wire.FetchPage, now_us: int) -> cell_wire.CellPage:
        page = read_requested_page(self.index.broker, request, now_us)
        items = tuple(map(self.index.with_replication_list, page.items))
        return cell_wire.CellPage(request.request_id, page.total, items, page.more)

    # Notifications

    def notify_subscribers(
        self, metadata: Metadata, matched: list[SubscriptionRecord], now_us: int
    ) -> None:
        """Notifies the subscribers of the matching subscriptions (D17)."""
        recipients = self.index.recipients(matched)
        self.notification_delivery.send_notification(metadata.key, recipients, now_us)
        self.notifications_sent += sum(map(len, recipients.values()))

    def on_merged(self, result: MergeResult, now_us: int) -> None:
        """Notifies subscribers of matches that this node missed because it lacked the merged
        records when it answered (B2)."""
        history = self.index.broker.catalogue.history
        for key in result.objects:
            if (metadata := history.get(key)) is not None:
                self.notify_subscribers(
                    metadata, self._recent_answers.missed_subscriptions(metadata, now_us), now_us
                )
        for sub_key in result.subscriptions:
            if (subscription := self.index.broker.get_active(sub_key)) is not None:
                for metadata in self._recent_answers.missed_objects(subscription, now_us):
                    self.notify_subscribers(metadata, [subscription], now_us)

    # Expiry

    def on_expiry_timer(self, now_us: int) -> None:
        """Removes expired records."""
        self._expiry_us = None
        self.index.broker.expire(now_us)
        self._replicas.expire(now_us)

    def set_expiry_timer(self) -> None:
        """Sets the timer for the next expiry; to be called after each input."""
        expiries = (self.index.broker.next_expiry_us(), self._replicas.next_expiry_us())
        due_us = min((at_us for at_us in expiries if at_us is not None), default=None)
        if due_us is not None and due_us != self._expiry_us:
            self._outbox.set_timer(ExpiryTimer(), due_us)
        self._expiry_us = due_us


def _cell_subscription(
    delivery: Delivery, request: wire.StartSubscription, now_us: int
) -> CellSubscription:
    """The subscription as the cell stores it: with the subscriber's signed location, else with the
    cell from which the request came (D16)."""
    if isinstance(request, wire.LocatedSubscription):
        return CellSubscription(
            request.subscription, request.location.cell, (delivery.cell,), request.location.since
        )
    return CellSubscription(request.subscription, delivery.origin_cell, (delivery.cell,), now_us)


def first_page_request(request: wire.StartSubscription) -> wire.FetchPage:
    """The request for the first page of past matches, with which a new subscription is answered."""
    subscription = request.subscription
    return wire.FetchPage(
        request.request_id, subscription.conjunctions, subscription.frame, request.batch
    )
