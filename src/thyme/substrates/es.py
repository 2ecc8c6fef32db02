"""Thyme-ES: one server stores objects, matches subscriptions and notifies; all nodes are clients.

Entry point: `EsNode.handle`. All nodes know the server. The server is a client of itself, too; its
messages to itself do not leave the node. A local world (`solo`) is an ES node that is its own
server.
Clauses: E1, E2, E4, M21, M24, B5.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import assert_never

import msgspec

from thyme.model.frames import SECOND_US
from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.protocol import messages as wire
from thyme.protocol.letters import Letters, LetterTimer
from thyme.protocol.node import (
    Action,
    Asked,
    Input,
    Leaving,
    Moved,
    Received,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.operations import Operations, RetryPolicy, RetryTimer
from thyme.protocol.outbox import Outbox
from thyme.protocol.warden import Warden, admitted
from thyme.storage.store import Store
from thyme.substrates.broker import Broker, BrokerConfig
from thyme.substrates.brokers import AtHome, OneBroker
from thyme.substrates.client import Client, Guarantees
from thyme.substrates.desk import BrokerDue, Desk, post_note
from thyme.substrates.lifespan import LifeSpan, WorldOver
from thyme.substrates.loopback import looped_back
from thyme.substrates.subscriber import EndOfFrame, Subscriber, SubscriberConfig


class EsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a node of Thyme-ES."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    letters: RetryPolicy = RetryPolicy(tries_max=1)
    """Retries of notifications until they are acknowledged; with 1 try there is no
    acknowledgement, and delivery is up to the link."""
    broker: BrokerConfig = BrokerConfig()
    subscriber: SubscriberConfig = SubscriberConfig()
    guarantees: Guarantees = Guarantees()
    world_ends_us: int | None = None


PAPER = EsConfig()
"""As in the papers: delivery of notifications is up to the link."""
ROBUST = EsConfig(
    retries=RetryPolicy(tries_max=8, backoff=1.5),
    letters=RetryPolicy(tries_max=8, wait_us=SECOND_US // 2, backoff=1.5),
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
        warden: Warden | None = None,
    ) -> None:
        self._node_id = node_id
        self._warden = warden
        notary = None if warden is None else warden.notary
        self._server_id = server_id
        self._store = store
        self._config = config
        self._outbox = Outbox()
        self._operations = Operations(self._outbox, config.retries, rng)
        self._life_span = LifeSpan(self._outbox, config.world_ends_us)
        self.subscriber = Subscriber(node_id, self._outbox, store, config.subscriber, notary)
        self._client = Client(
            node_id,
            AtHome(lambda _: server_id, self._operations),
            OneBroker(server_id, self._operations),
            self._outbox,
            self.subscriber,
            rng,
            config.limits,
            config.guarantees,
            notary,
        )
        self._letters = Letters(self._outbox, config.letters, rng)
        self._desk: Desk | None = None
        self.dropped: Counter[str] = Counter() if warden is None else warden.dropped

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    @property
    def broker(self) -> Broker | None:
        """The broker of the server; None on other nodes and before the start."""
        return None if self._desk is None else self._desk.broker

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Processes one input; returns the resulting actions in order."""
        self._dispatch(event, now_us)
        actions = looped_back(
            self._outbox,
            self._node_id,
            lambda message: self._on_message(self._node_id, message, now_us),
        )
        if self._desk is not None:
            self._desk.set_timer()
        actions = [*actions, *self._outbox.take()]
        return actions if self._warden is None else self._warden.signed(actions, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.subscriber.check()
        self._letters.check()
        if self.broker is not None:
            self.broker.check()

    def _dispatch(self, event: Input, now_us: int) -> None:
        match event:
            case Started():
                self._start(now_us)
            case Asked():
                if not self._life_span.refuses(event.request, now_us):
                    self._client.on_asked(event.request, now_us)
            case Received():
                message = admitted(self._warden, event.sender, event.message)
                if message is not None:
                    self._on_message(event.sender, message, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case SendFailed():
                self.dropped["unreachable"] += 1  # the request is sent again by its timer
            case Moved():
                pass
            case Leaving():
                pass  # the server keeps the node's objects and subscriptions for its return
            case _:
                assert_never(event)

    def _start(self, now_us: int) -> None:
        if self._node_id == self._server_id:
            broker = Broker(self._store, self._config.broker, now_us, self._node_id)
            self._desk = Desk(broker, self._outbox, self._notify)
        self.subscriber.set_timers()
        self._life_span.set_timer()

    def _notify(self, subscriber: NodeId, note: wire.Notify, now_us: int) -> None:
        if subscriber == self._node_id:
            self._outbox.send(subscriber, note)
        elif self.broker is not None:
            post_note(self.broker, self._letters, subscriber, note, now_us)

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        match event.timer:
            case LetterTimer():
                self._letters.on_timer(event.timer, now_us)
            case RetryTimer():
                self._operations.on_timer(event.timer, now_us)
            case EndOfFrame():
                self.subscriber.on_end_of_frame(event.timer.sid, now_us)
            case BrokerDue() if self._desk is not None:
                self._desk.on_due(now_us)
            case WorldOver():
                self.subscriber.end_all("the life span of its world is over")

    def _on_message(self, sender: NodeId, message: wire.Message, now_us: int) -> None:
        if isinstance(message, wire.Notify):
            if sender == self._server_id:
                self._client.on_notify(sender, message, now_us)
            else:
                self.dropped["notify from a stranger"] += 1
        elif isinstance(message, wire.Letter) and isinstance(message.message, wire.Notify):
            if sender == self._server_id:
                self._on_message(sender, self._letters.on_letter(sender, message), now_us)
            else:
                self.dropped["notify from a stranger"] += 1
        elif isinstance(message, wire.Receipt):
            self._letters.on_receipt(sender, message)
        elif isinstance(message, wire.Reply):
            self._operations.on_reply(sender, message, now_us)
        elif not isinstance(message, wire.Ask):
            self.dropped["not spoken here"] += 1
        elif self._desk is None:
            self.dropped["not the server"] += 1
        else:
            self._desk.serve(sender, message, now_us)
