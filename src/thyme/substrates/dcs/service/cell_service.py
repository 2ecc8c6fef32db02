"""Cell service: the requests that a node serves for its cell, or for itself.

Entry point: `CellService.answering`, which turns an operation, such as `index_object`, into the
handler of a request. The first node of a cell to receive a message replies, matches and notifies;
the other nodes apply the same change to their copies (`Delivery.is_first`). All operations are
idempotent. Notifications are sent by `notification_delivery`.
Clauses: D7, D9, D11–D18, D28, M26, M34.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionRecord
from thyme.model.time_frames import SECOND_US, earliest
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, CellSubscription, Replica
from thyme.protocol.messages.chunks import ChunkHolder
from thyme.protocol.messages.compact import compact_page
from thyme.protocol.outbox import Outbox
from thyme.protocol.round_trip import RoundTripTimes
from thyme.routing.cells import CellRouting, Delivery, Destination
from thyme.storage.store import Store
from thyme.substrates.common.broker_service import read_requested_page
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.dcs.client.cell_requests import CellRequests
from thyme.substrates.dcs.client.large_replicas import LargeReplicas
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.service.notification_delivery import NotificationDelivery
from thyme.substrates.dcs.service.notification_messages import NotificationMessages
from thyme.substrates.dcs.service.peer_reads import PeerReads
from thyme.substrates.dcs.service.recent_answers import RecentAnswers
from thyme.substrates.dcs.state.cell_index import CellIndex
from thyme.substrates.dcs.state.cell_state import MergeResult
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore, StoredReplica
from thyme.substrates.dcs.state.small_objects import SmallObjects

R = TypeVar("R", bound=wire.CellRequest)
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
        large_replicas: LargeReplicas,
        store: Store,
        requests: CellRequests,
        config: DcsConfig,
        round_trips: RoundTripTimes | None,
        on_subscriber_failed: Callable[[NodeId, int], None],
        on_subscriber_absent: Callable[[NodeId, CellId], None],
    ) -> None:
        self._routing = routing
        self._outbox = outbox
        self.index = index
        self._replicas = replicas
        self._large_replicas = large_replicas
        self._config = config
        self._expiry_us: int | None = None
        self.small_objects = SmallObjects(config.small_object_bytes_max)
        late_us = _LATE_WINDOW_US if config.anti_entropy else 0
        self._recent_answers = RecentAnswers(index, _RACE_WINDOW_US, late_us)
        self.notification_delivery = NotificationDelivery(
            routing,
            outbox,
            index,
            store,
            config.notification_delivery,
            NotificationMessages(
                index, self.small_objects.get if config.compact_messages else None
            ),
            round_trips,
            on_subscriber_failed,
            on_subscriber_absent,
        )
        self.peer_reads: PeerReads | None = None
        if config.replication.ask_peers:
            self.peer_reads = PeerReads(routing, requests, replicas, self._send_reply)
        self.notifications_sent = 0
        self.dropped: Counter[str] = Counter()

    # Messages

    def answering(
        self, execute: Callable[[Delivery, R, int], wire.CellReply | None]
    ) -> Callable[[Delivery, R, int], None]:
        """Returns the handler of a request to the cell or to this node: executes the request, and
        replies if this node is the first of the cell to receive it (D7)."""

        def on_request(delivery: Delivery, request: R, now_us: int) -> None:
            if request.reads_only and not delivery.is_first:
                return
            reply: wire.CellReply | None
            try:
                reply = execute(delivery, request, now_us)
            except OperationError as error:
                if not delivery.is_first:
                    self.dropped[error.code] += 1
                    return
                if self._is_passed_on(delivery, request, error, now_us):
                    return
                reply = wire.Refused(request.request_id, error.code, str(error))
            if reply is not None and delivery.is_first:
                self._send_reply(delivery, reply, now_us)

        return on_request

    def _is_passed_on(
        self, delivery: Delivery, request: wire.CellRequest, error: OperationError, now_us: int
    ) -> bool:
        """Whether other nodes of the cell are asked before a read is refused (D18)."""
        if self.peer_reads is None or not isinstance(request, wire.FetchObject):
            return False
        return self.peer_reads.on_request(delivery, request, error, now_us)

    def _send_reply(self, delivery: Delivery, reply: wire.CellReply, now_us: int) -> None:
        """Replies once all nodes of the cell have acknowledged the request."""
        if self._config.compact_messages and isinstance(reply, cell_wire.CellPage) and reply.items:
            reply = compact_page(reply, self.small_objects.get)
        message: wire.Message = reply
        if not delivery.is_unicast:
            message = wire.ReplyFromCell(delivery.cell, reply)
        target = Destination(delivery.origin_cell, delivery.origin)

        def send_reply(now_us: int) -> None:
            self._routing.send([target], message, now_us)

        self._routing.when_acknowledged(delivery, send_reply, now_us)

    def on_announce_replica(
        self, delivery: Delivery, message: cell_wire.AnnounceReplica, now_us: int
    ) -> None:
        """Adds the sender to an object's replication list (D13)."""
        replica = Replica(delivery.origin_cell, delivery.origin)
        if not self.index.add_replica(message.key, replica):
            self.dropped["replica of nothing"] += 1

    def on_announce_replicas(
        self, delivery: Delivery, message: cell_wire.AnnounceReplicas, now_us: int
    ) -> None:
        """Adds the sender to the replication lists of the objects that this node indexes (D28)."""
        replica = Replica(delivery.origin_cell, delivery.origin)
        if not [key for key in message.keys if self.index.add_replica(key, replica)]:
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
            source = ChunkHolder(delivery.origin, delivery.origin_cell)
            self._large_replicas.store(stored, message.data, [source], now_us)
        except OperationError as error:
            self.dropped[error.code] += 1

    # Requests

    def index_object(
        self, delivery: Delivery, request: cell_wire.IndexObject, now_us: int
    ) -> wire.Done:
        """Indexes an object and notifies its subscribers (D11)."""
        metadata = request.indexed.metadata
        matched = self.index.add_object(request.indexed, delivery.origin, now_us)
        if isinstance(request, cell_wire.IndexSmallObject):
            self._keep_small(metadata, request.data)
        if delivery.is_first:
            self._recent_answers.add_object(metadata.key, now_us)
        else:
            matched = self._recent_answers.select_recent(matched, now_us)
        self.notify_subscribers(metadata, matched, now_us)
        return wire.Done(request.request_id)

    def _keep_small(self, metadata: Metadata, data: bytes) -> None:
        """Keeps a small object, to send it with its metadata (D28)."""
        if self.small_objects.is_small(metadata) and metadata.matches_content(data):
            self.small_objects.add(metadata, data)

    def delete_object(
        self, delivery: Delivery, request: wire.DeleteObject, now_us: int
    ) -> wire.Done:
        """Deletes an object and its replica (D15)."""
        self.index.delete_object(request.key, delivery.origin, now_us, request.proof)
        self._replicas.remove_with_tombstone(request.key, DELETED, now_us)
        self.small_objects.remove(request.key)
        return wire.Done(request.request_id)

    def start_subscription(
        self, delivery: Delivery, request: wire.StartSubscription, now_us: int
    ) -> cell_wire.CellPage | None:
        """Activates a subscription; the first node of the cell reads its past matches (D16)."""
        origin = delivery.origin
        self.index.add_subscription(_cell_subscription(delivery, request, now_us), origin, now_us)
        if delivery.is_first:
            self._recent_answers.add_subscription(request.subscription.key, now_us)
        self.notification_delivery.on_subscriber_seen(origin, now_us)
        if not delivery.is_first:
            return None
        return self.read_page(delivery, first_page_request(request), now_us)

    def stop_subscription(
        self, delivery: Delivery, request: wire.StopSubscription, now_us: int
    ) -> wire.Done:
        """Removes a subscription."""
        self.index.unsubscribe(request.key, delivery.origin, now_us, request.proof)
        return wire.Done(request.request_id)

    def read_page(
        self, delivery: Delivery, request: wire.FetchPage, now_us: int
    ) -> cell_wire.CellPage:
        """Reads past matches, with the replication lists of the objects."""
        page = read_requested_page(self.index.broker, request, now_us)
        items = tuple(map(self.index.with_replication_list, page.items))
        return cell_wire.CellPage(request.request_id, page.total, items, page.more)

    def read_missed(
        self, delivery: Delivery, request: wire.FetchMissed, now_us: int
    ) -> wire.MissedPage:
        """Reads objects that a subscriber missed (M34)."""
        return self.notification_delivery.gaps.read(delivery.origin, request, now_us)

    def read_object(
        self, delivery: Delivery, request: wire.FetchObject, now_us: int
    ) -> wire.ObjectData:
        """Reads the bytes of a replica (D18)."""
        self._replicas.expire(now_us)
        data = self._replicas.read_data(request.key)
        return wire.ObjectData(request.request_id, request.key, data)

    def read_status(
        self, delivery: Delivery, request: wire.FetchStatus, now_us: int
    ) -> cell_wire.CellStatus:
        """Reads the status of an object, with its replication list."""
        status = self.index.broker.look_up(request.key, now_us)
        metadata = status.metadata
        indexed = None if metadata is None else self.index.with_replication_list(metadata)
        return cell_wire.CellStatus(request.request_id, status.state, indexed)

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
        for key in result.objects:
            if (metadata := self.index.get_object(key)) is not None:
                self.notify_subscribers(
                    metadata, self._recent_answers.missed_subscriptions(metadata, now_us), now_us
                )
        for sub_key in result.subscriptions:
            if (subscription := self.index.get_subscription(sub_key)) is not None:
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
        due_us = earliest(self.index.broker.next_expiry_us(), self._replicas.next_expiry_us())
        if due_us is not None and due_us != self._expiry_us:
            self._outbox.set_timer(ExpiryTimer(), due_us)
        self._expiry_us = due_us

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self.notification_delivery.check()
        if self.peer_reads is not None:
            self.peer_reads.check()


def _cell_subscription(
    delivery: Delivery, request: wire.StartSubscription, now_us: int
) -> CellSubscription:
    """The subscription as the cell stores it: with the subscriber's signed location, else with the
    cell from which the request came (D16)."""
    location = request.location
    if location is not None:
        return CellSubscription(
            request.subscription, location.cell, (delivery.cell,), location.since
        )
    return CellSubscription(request.subscription, delivery.origin_cell, (delivery.cell,), now_us)


def first_page_request(request: wire.StartSubscription) -> wire.FetchPage:
    """The request for the first page of past matches, with which a new subscription is answered."""
    subscription = request.subscription
    return wire.FetchPage(
        request.request_id, subscription.conjunctions, subscription.frame, request.batch
    )
