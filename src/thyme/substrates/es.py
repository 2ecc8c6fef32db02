"""Thyme-ES: one server stores objects, matches subscriptions and notifies; all nodes are clients.

Entry point: `EsNode.handle`. All nodes know the server. The server is a client of itself, too; its
messages to itself do not leave the node. A local world (`solo`) is an ES node that is its own
server.
Clauses: E1, E2, E4, M21, M24, M34, M37, B5.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import assert_never

import msgspec
from msgspec.structs import replace

from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.model.time_frames import SECOND_US
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
from thyme.protocol.retry import RetryPolicy
from thyme.storage.store import Store
from thyme.substrates.chunks.exchange import ChunkExchange
from thyme.substrates.chunks.fetcher import ChunkTransferTimer
from thyme.substrates.chunks.large_objects import LargeInsertTimer
from thyme.substrates.common.broker import Broker, BrokerConfig
from thyme.substrates.common.broker_service import BrokerExpiryTimer, BrokerService
from thyme.substrates.common.client import Client
from thyme.substrates.common.client_interfaces import Guarantees, SingleBroker, SingleHolder
from thyme.substrates.common.gap_reader import (
    GapReader,
    GapRetryTimer,
    missed_pages_from_nodes,
)
from thyme.substrates.common.loopback import deliver_to_self
from thyme.substrates.common.notification_gaps import GapTimer, GapUpkeepTimer
from thyme.substrates.common.notification_sender import NotificationSender
from thyme.substrates.common.subscriber import FrameEndTimer, Subscriber, SubscriberConfig
from thyme.substrates.common.world_lifetime import WorldEndTimer, WorldLifetime


class EsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a node of Thyme-ES."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    notify_retries: RetryPolicy = RetryPolicy(tries_max=1)
    """Retries of notifications until they are acknowledged; with 1 try there is no
    acknowledgement, and delivery is up to the link."""
    broker: BrokerConfig = BrokerConfig()
    subscriber: SubscriberConfig = SubscriberConfig()
    guarantees: Guarantees = Guarantees()
    world_ends_us: int | None = None
    in_chunks: bool = False
    """Whether large objects are sent in chunks (M37), not as a whole."""


PAPER = EsConfig()
"""As in the papers: delivery of notifications is up to the link."""
ROBUST = replace(
    PAPER,
    retries=RetryPolicy(tries_max=8, backoff=1.5),
    notify_retries=RetryPolicy(tries_max=8, wait_us=SECOND_US // 2, backoff=1.5),
)
"""For lossy networks: more tries, and acknowledged notifications (B3)."""


class EsNode:
    """A client of the server; also the server, if `node_id` equals `server_id`."""

    def __init__(
        self,
        node_id: NodeId,
        server_id: NodeId,
        store: Store,
        rng: Random,
        config: EsConfig,
        authenticator: MessageAuthenticator | None = None,
    ) -> None:
        self._node_id = node_id
        self._authenticator = authenticator
        signer = None if authenticator is None else authenticator.signer
        self._server_id = server_id
        self._store = store
        self._config = config
        self._outbox = Outbox()
        self._request_tracker = RequestTracker(self._outbox, config.retries, rng)
        self._world_lifetime = WorldLifetime(self._outbox, config.world_ends_us)
        self.subscriber = Subscriber(node_id, self._outbox, store, config.subscriber, signer)
        self._gap_reader = GapReader(
            self.subscriber,
            self._outbox,
            self._request_tracker.next_id,
            missed_pages_from_nodes(self._request_tracker),
        )
        self._chunk_exchange = ChunkExchange(
            node_id,
            store,
            self._outbox,
            self._request_tracker,
            lambda _: server_id,
            config.limits,
        )
        self._client = Client(
            node_id,
            SingleHolder(lambda _: server_id, self._request_tracker),
            SingleBroker(server_id, self._request_tracker),
            self._outbox,
            self.subscriber,
            rng,
            config.limits,
            lambda: config.guarantees,
            self._gap_reader,
            signer,
            self._chunk_exchange.objects if config.in_chunks else None,
        )
        self._reliable_sender = ReliableSender(self._outbox, config.notify_retries, rng)
        self._broker_service: BrokerService | None = None
        self._notification_sender: NotificationSender | None = None
        self.dropped: Counter[str] = Counter() if authenticator is None else authenticator.dropped

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def broker(self) -> Broker | None:
        """The broker of the server; None on other nodes and before the start."""
        return None if self._broker_service is None else self._broker_service.broker

    @property
    def has_answer(self) -> bool:
        """Whether the server has shown who it is by an answer; True for the server itself."""
        if self._server_id == self._node_id or self._authenticator is None:
            return True
        answers = self._authenticator.answers
        return answers is None or answers.is_confirmed(self._server_id)

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
        if self._broker_service is not None:
            self._broker_service.set_expiry_timer()
        actions += self._outbox.drain_actions()
        return (
            actions
            if self._authenticator is None
            else self._authenticator.sign_actions(actions, now_us)
        )

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.subscriber.check()
        self._reliable_sender.check()
        self._gap_reader.check()
        self._chunk_exchange.check()
        if self.broker is not None and self._notification_sender is not None:
            self.broker.check()
            self._notification_sender.check()

    def _dispatch(self, event: Input, now_us: int) -> None:
        match event:
            case Started():
                self._start(now_us)
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
                self.dropped["unreachable"] += 1  # the request is sent again by its timer
            case PositionChanged():
                pass
            case ClocksCompared():
                if self.broker is not None:
                    self.broker.set_clock_ahead(event.ahead_us)
            case Leaving():
                pass  # the server keeps the node's objects and subscriptions for its return
            case _:
                assert_never(event)

    def _start(self, now_us: int) -> None:
        if self._node_id == self._server_id:
            chunks = self._chunk_exchange
            broker = Broker(self._store, self._config.broker, now_us, self._node_id, chunks.cache)
            self._notification_sender = NotificationSender(
                self._node_id, broker, self._store, self._outbox, self._reliable_sender
            )
            self._broker_service = BrokerService(
                broker, self._outbox, self._notification_sender, chunks.cache, chunks.fetcher
            )
            self._notification_sender.start(now_us)
        self.subscriber.set_frame_end_timers()
        self._world_lifetime.set_timer()

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        match event.timer:
            case ResendTimer():
                self._reliable_sender.on_timer(event.timer, now_us)
            case GapTimer() | GapUpkeepTimer() if self._notification_sender is not None:
                self._notification_sender.on_timer(event.timer, now_us)
            case GapRetryTimer():
                self._gap_reader.on_retry_timer(event.timer, now_us)
            case RetryTimer():
                self._request_tracker.on_timer(event.timer, now_us)
            case FrameEndTimer():
                self.subscriber.on_frame_end(event.timer.sid, now_us)
            case BrokerExpiryTimer() if self._broker_service is not None:
                self._broker_service.on_expiry_timer(now_us)
            case WorldEndTimer():
                self.subscriber.end_all("the life span of its world is over")
            case ChunkTransferTimer() | LargeInsertTimer():
                self._chunk_exchange.on_timer(event.timer, now_us)

    def _on_message(self, sender: NodeId, message: wire.Message, now_us: int) -> None:
        match message:
            case wire.Notify() if sender == self._server_id:
                self._client.on_notify(sender, message, now_us)
            case (
                wire.InsertObject()
                | chunk_wire.InsertLargeObject()
                | wire.DeleteObject()
                | wire.StartSubscription()
                | wire.StopSubscription()
                | wire.FetchPage()
                | wire.FetchMissed()
                | wire.FetchObject()
                | wire.FetchStatus()
            ):
                if self._broker_service is None:
                    self.dropped["not the server"] += 1
                else:
                    self._broker_service.handle_request(sender, message, now_us)
            case wire.ReliableMessage(message=wire.Notify()) if sender == self._server_id:
                self._on_message(sender, self._reliable_sender.on_message(sender, message), now_us)
            case wire.Missed() if sender == self._server_id:
                self._client.on_missed(sender, sender, message, now_us)
            case wire.Notify() | wire.Missed() | wire.ReliableMessage(message=wire.Notify()):
                self.dropped["notify from a stranger"] += 1
            case wire.ReliableAck():
                self._reliable_sender.on_ack(sender, message, now_us)
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
            case _:
                if not self._chunk_exchange.on_message(sender, message, now_us):
                    self.dropped["not spoken here"] += 1
