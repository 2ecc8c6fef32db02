"""Node of Thyme-LS: broker of its own objects, for the subscriptions of all nodes.

Entry point: `LsNode.handle`. Inserts and deletes are local (L1). Subscriptions arrive by flooding
(`thyme.routing.flooding`) or by joining (`subscription_fetch`); each is matched against the node's
objects when it arrives (L3), and every new object against all subscriptions. Unicast messages are
sent as if every node were a neighbour; `RoutedNode` forwards them over several hops (L4).
Clauses: L1–L7, M21, M24, M34, M37, B5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random
from typing import assert_never

from thyme.model.errors import OperationError
from thyme.model.ids import NodeId
from thyme.model.signed_records import RecordSigner
from thyme.model.subscriptions import SubscriptionRecord
from thyme.protocol.app_interface import MarkConsumed
from thyme.protocol.message_auth import MessageAuthenticator, verify_incoming
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.node import (
    Action,
    AppRequested,
    ClocksCompared,
    Input,
    Leaving,
    PositionChanged,
    Received,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.outbox import Outbox
from thyme.protocol.reliable_send import ReliableSender, ResendTimer
from thyme.protocol.request_tracker import RequestTracker, RetryTimer
from thyme.routing.flooding import FloodExpiryTimer, Flooding, RebroadcastTimer
from thyme.storage.store import Store
from thyme.substrates.chunks.exchange import ChunkExchange
from thyme.substrates.chunks.fetcher import ChunkTransferTimer
from thyme.substrates.chunks.large_objects import LargeInsertTimer
from thyme.substrates.common.broker import Broker
from thyme.substrates.common.broker_service import (
    BrokerExpiryTimer,
    BrokerService,
    page_reply,
    read_requested_page,
)
from thyme.substrates.common.client import Client
from thyme.substrates.common.client_interfaces import Guarantees, SingleHolder
from thyme.substrates.common.gap_reader import (
    GapReader,
    GapRetryTimer,
    missed_pages_from_nodes,
)
from thyme.substrates.common.loopback import deliver_to_self
from thyme.substrates.common.notification_gaps import GapTimer, GapUpkeepTimer
from thyme.substrates.common.notification_sender import NotificationSender
from thyme.substrates.common.subscriber import FrameEndTimer, Subscriber
from thyme.substrates.common.world_lifetime import WorldEndTimer, WorldLifetime
from thyme.substrates.ls.config import LsConfig
from thyme.substrates.ls.digest_timing import DigestTimer
from thyme.substrates.ls.flooded_queries import (
    CollectionTimer,
    FloodedBrokers,
    NodesInReach,
)
from thyme.substrates.ls.subscription_comparison import (
    ComparisonTimer,
    SubscriptionComparison,
)
from thyme.substrates.ls.subscription_fetch import (
    JoinReplyTimer,
    LsJoining,
    LsJoinPhase,
    LsJoinTimer,
)


class LsNode:
    """A node of Thyme-LS; all nodes are equal."""

    def __init__(
        self,
        node_id: NodeId,
        store: Store,
        rng: Random,
        config: LsConfig,
        authenticator: MessageAuthenticator | None = None,
    ) -> None:
        self._node_id = node_id
        self._authenticator = authenticator
        signer = None if authenticator is None else authenticator.signer
        self._store = store
        self._rng = rng
        self._config = config
        self._outbox = outbox = Outbox()
        self._request_tracker = RequestTracker(outbox, config.retries, rng)
        self._reliable_sender = ReliableSender(outbox, config.notify_retries, rng)
        self._world_lifetime = WorldLifetime(outbox, config.world_ends_us)
        self.flooding = Flooding(
            node_id, outbox, rng, config.flooding, self._on_flood, self._recent_neighbours
        )
        self._chunk_exchange = chunks = ChunkExchange(
            node_id, store, outbox, self._request_tracker, lambda key: key.owner, config.limits
        )
        # Expired records of an earlier incarnation are removed at `Started`, which has the time.
        self.broker = Broker(store, config.broker, 0, node_id, chunks.cache)
        self._notification_sender = NotificationSender(
            node_id, self.broker, store, outbox, self._reliable_sender
        )
        self._broker_service = BrokerService(
            self.broker, outbox, self._notification_sender, chunks.cache, chunks.fetcher
        )
        self.joining = LsJoining(
            outbox, rng, config.joining, self.broker.active_subscriptions, self._add_subscription
        )
        self.comparison = self._make_comparison(signer)
        self.subscriber = Subscriber(node_id, outbox, store, config.subscriber, signer)
        self._flooded_brokers = FloodedBrokers(
            self._broker_service,
            node_id,
            outbox,
            self._request_tracker,
            self.flooding,
            rng,
            config.collecting,
        )
        self._gap_reader = GapReader(
            self.subscriber,
            outbox,
            self._request_tracker.next_id,
            missed_pages_from_nodes(self._request_tracker),
        )
        self._client = self._make_client(signer)
        self.dropped: Counter[str] = Counter() if authenticator is None else authenticator.dropped

    def _make_comparison(self, signer: RecordSigner | None) -> SubscriptionComparison | None:
        """Creates the component that compares subscriptions with neighbours, if they do."""
        if self._config.comparing is None:
            return None
        return SubscriptionComparison(
            self._node_id,
            self._outbox,
            self._rng,
            self._config.comparing,
            self.broker,
            self._add_subscription,
            signer,
        )

    def _make_client(self, signer: RecordSigner | None) -> Client:
        """Creates the component that carries out the application's requests."""
        return Client(
            self._node_id,
            SingleHolder(lambda key: key.owner, self._request_tracker),
            self._flooded_brokers,
            self._outbox,
            self.subscriber,
            self._rng,
            self._config.limits,
            lambda: Guarantees(durable=self._store.durable),
            self._gap_reader,
            signer,
            self._chunk_exchange.objects if self._config.in_chunks else None,
        )

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def ask_nodes_in_reach(self, nodes_in_reach: NodesInReach) -> None:
        """Makes searches and subscriptions wait for the nodes to which there is a route."""
        self._flooded_brokers.nodes_in_reach = nodes_in_reach

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input; returns the resulting actions in order."""
        if isinstance(event, AppRequested) and isinstance(event.request, MarkConsumed):
            # One for each notification: it is only stored, and nothing can follow from it.
            self.subscriber.consume(event.request.sid, event.request.key)
            return self._outbox.drain_actions()
        self._dispatch(event, now_us)
        actions = deliver_to_self(
            self._outbox,
            self._node_id,
            lambda message: self._on_message(self._node_id, message, now_us),
        )
        self._broker_service.set_expiry_timer()
        if self.comparison is not None:
            if self.joining.phase is not LsJoinPhase.JOINING:
                self.comparison.start(now_us)
            self.comparison.after_input(now_us)
        actions += self._outbox.drain_actions()
        return (
            actions
            if self._authenticator is None
            else self._authenticator.sign_actions(actions, now_us)
        )

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        for part in (
            self.subscriber,
            self.broker,
            self.flooding,
            self.joining,
            self._reliable_sender,
            self._notification_sender,
            self._gap_reader,
            self._chunk_exchange,
        ):
            part.check()
        if self.comparison is not None:
            self.comparison.check()

    def _dispatch(self, event: Input, now_us: int) -> None:
        match event:
            case Started():
                self.broker.expire(now_us)
                self._notification_sender.start(now_us)
                self.subscriber.set_frame_end_timers()
                self._world_lifetime.set_timer()
                self.joining.start(now_us)
            case AppRequested():
                if not self._world_lifetime.reject_if_ended(event.request, now_us):
                    self._client.on_request(event.request, now_us)
            case Received():
                message = verify_incoming(self._authenticator, event.sender, event.message)
                if message is not None:
                    self._on_message(event.sender, message, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case SendFailed():
                self.dropped["unreachable"] += 1  # timers of requests and reliable sends try again
            case PositionChanged():
                pass
            case ClocksCompared():
                pass  # a node stores its own objects only, with timestamps of its own clock
            case Leaving():
                pass  # objects leave with their owner (L6); there is no state to transfer
            case _:
                assert_never(event)

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        match event.timer:
            case GapTimer() | GapUpkeepTimer():
                self._notification_sender.on_timer(event.timer, now_us)
            case GapRetryTimer():
                self._gap_reader.on_retry_timer(event.timer, now_us)
            case RetryTimer():
                self._request_tracker.on_timer(event.timer, now_us)
            case ResendTimer():
                self._reliable_sender.on_timer(event.timer, now_us)
            case RebroadcastTimer():
                self.flooding.on_rebroadcast_timer(event.timer, now_us)
            case FloodExpiryTimer():
                self.flooding.on_expiry_timer(now_us)
            case CollectionTimer():
                self._flooded_brokers.on_collection_timer(event.timer, now_us)
            case FrameEndTimer():
                self.subscriber.on_frame_end(event.timer.sid, now_us)
            case BrokerExpiryTimer():
                self._broker_service.on_expiry_timer(now_us)
            case LsJoinTimer():
                self.joining.on_join_timer(now_us)
            case JoinReplyTimer():
                self.joining.on_reply_timer(event.timer)
            case DigestTimer() if self.comparison is not None:
                self.comparison.on_digest_timer(now_us)
            case ComparisonTimer() if self.comparison is not None:
                self.comparison.on_comparison_timer(now_us)
            case WorldEndTimer():
                self.subscriber.end_all("the life span of its world is over")
            case ChunkTransferTimer() | LargeInsertTimer():
                self._chunk_exchange.on_timer(event.timer, now_us)

    def _on_message(self, sender: NodeId, message: wire.Message, now_us: int) -> None:
        match message:
            case wire.Flooded():
                self._record_neighbour(sender, now_us)
                self.flooding.on_flooded(sender, message, now_us)
            case wire.JoinRequest():
                self._record_neighbour(sender, now_us)
                self.joining.on_request(sender, message, now_us)
            case (
                wire.SubscriptionDigest()
                | wire.CompareSubscriptions()
                | wire.MissingSubscriptions()
            ) if self.comparison is not None:
                self._on_comparison(self.comparison, sender, message, now_us)
            case wire.JoinReply():
                self.joining.on_reply(sender, message, now_us)
            case wire.ReliableMessage(message=wire.Notify() | wire.PastMatches() | wire.Page()):
                self._on_message(sender, self._reliable_sender.on_message(sender, message), now_us)
            case wire.ReliableAck():
                self._reliable_sender.on_ack(sender, message, now_us)
            case wire.Missed():
                self._client.on_missed(sender, sender, message, now_us)
            case wire.Notify() | wire.PastMatches():
                self._on_matches(sender, message, now_us)
            case wire.Page() if self._flooded_brokers.on_page(sender, message, now_us):
                pass
            case wire.Refused() if self._chunk_exchange.on_message(sender, message, now_us):
                pass
            case (
                wire.Done()
                | wire.Refused()
                | wire.Page()
                | wire.MissedPage()
                | wire.ObjectData()
                | wire.ObjectStatus()
                | chunk_wire.ChunksMissing()
            ):
                self._request_tracker.on_reply(sender, message, now_us)
            case wire.InsertObject() | chunk_wire.InsertLargeObject() | wire.DeleteObject() if (
                sender == self._node_id
            ):
                self._broker_service.handle_request(sender, message, now_us)
            case (
                wire.StopSubscription()
                | wire.FetchPage()
                | wire.FetchMissed()
                | wire.FetchObject()
                | wire.FetchStatus()
            ):
                self._broker_service.handle_request(sender, message, now_us)
            case _:
                if not self._chunk_exchange.on_message(sender, message, now_us):
                    self.dropped["not spoken here"] += 1

    def _on_comparison(
        self,
        comparison: SubscriptionComparison,
        sender: NodeId,
        message: wire.ComparisonMessage,
        now_us: int,
    ) -> None:
        """Handles a message by which neighbours compare their subscriptions."""
        match message:
            case wire.SubscriptionDigest():
                self._record_neighbour(sender, now_us)
                comparison.on_digest(sender, message, now_us)
            case wire.CompareSubscriptions():
                comparison.on_compare(sender, message, now_us)
            case wire.MissingSubscriptions():
                comparison.on_missing(sender, message, now_us)

    def _record_neighbour(self, sender: NodeId, now_us: int) -> None:
        if self.joining.neighbours.record_message(sender, now_us) and self.comparison is not None:
            self.comparison.on_neighbours_changed(now_us)

    def _recent_neighbours(self, now_us: int) -> Collection[NodeId]:
        return self.joining.neighbours.recent(now_us)

    def _on_matches(self, sender: NodeId, message: wire.NotificationMessage, now_us: int) -> None:
        """Handles a notification or stored matches; only the owner of an object may send these."""
        objects = (message.metadata,) if isinstance(message, wire.Notify) else message.items
        if any(metadata.owner != sender for metadata in objects):
            self.dropped["news from a stranger"] += 1
        elif isinstance(message, wire.Notify):
            self._client.on_notify(sender, message, now_us)
        elif not self._flooded_brokers.on_past_matches(sender, message, now_us):
            self._client.on_late_page(sender, message, now_us)

    # Subscriptions of other nodes

    def _on_flood(self, origin: NodeId, message: wire.Message, now_us: int) -> None:
        """Handles a flooded request; a node without matches does not reply."""
        keys = self._authenticator
        opened = message if keys is None else keys.open_flooded(origin, message)
        if opened is not None:
            self._on_flooded_request(origin, opened, now_us)

    def _on_flooded_request(self, origin: NodeId, message: wire.Message, now_us: int) -> None:
        try:
            match message:
                case wire.StartSubscription():
                    self.broker.activate(message.subscription, origin, now_us)
                    self._send_past_matches(message.subscription, message.batch, now_us)
                    self._notification_sender.on_subscriber_active(origin, now_us)
                case wire.StopSubscription():
                    self.broker.unsubscribe(message.key, origin, now_us, message.proof)
                case wire.FetchPage():
                    self._reliable_sender.send(
                        origin, lambda now_us: self._search_page(message, now_us), now_us
                    )
                case _:
                    self.dropped["not for everybody"] += 1
        except OperationError as error:
            self.dropped[error.code] += 1

    def _add_subscription(
        self, subscription: SubscriptionRecord, sender: NodeId, now_us: int
    ) -> None:
        """Activates a subscription received from a neighbour while joining."""
        key = subscription.key
        if key.subscriber == self._node_id:
            self._client.drop_if_unknown(key.sid, sender, now_us)
            return
        if self.broker.is_known(key):
            return
        try:
            self.broker.activate(subscription, key.subscriber, now_us)
        except OperationError as error:
            self.dropped[error.code] += 1
        else:
            self._send_past_matches(subscription, self._config.late_batch, now_us)

    def _send_past_matches(self, subscription: SubscriptionRecord, batch: int, now_us: int) -> None:
        """Sends the matching objects of this node to a subscriber, if there are any."""
        key = subscription.key

        def make_message(now_us: int) -> wire.PastMatches | None:
            page = self.broker.read_page(
                subscription.conjunctions, subscription.frame, batch, None, now_us
            )
            if page.total == 0 or self.broker.is_cancelled(key):
                return None
            return wire.PastMatches(key.sid, page.total, page.items, page.more)

        self._reliable_sender.send(key.subscriber, make_message, now_us)

    def _search_page(self, request: wire.FetchPage, now_us: int) -> wire.Page | None:
        page = read_requested_page(self.broker, request, now_us)
        return page_reply(request.request_id, page) if page.total else None
