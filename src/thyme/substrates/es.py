"""Thyme-ES: one server stores, matches and notifies; every node may be its client.

The server is known to all. Whoever is the server also is a client of its own, its messages to
itself never leaving the node; so a world of one (`solo`) is an ES node that is its own server.
Clauses: E1, E2, E4, M21, M24.
"""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import assert_never

import msgspec

from thyme.model.errors import EndedError, OperationError
from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.model.subscriptions import Subscription
from thyme.protocol import messages as wire
from thyme.protocol.node import (
    Action,
    Asked,
    Input,
    Outbox,
    Received,
    Send,
    SendFailed,
    Started,
    TimerFired,
)
from thyme.protocol.operations import Operations, RetryPolicy, RetryTimer
from thyme.protocol.requests import Failed, Pause, Take
from thyme.storage.store import Store
from thyme.substrates.broker import Broker, BrokerConfig
from thyme.substrates.client import Client, Guarantees
from thyme.substrates.subscriber import EndOfFrame, Subscriber, SubscriberConfig


class EsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a node of Thyme-ES."""

    limits: Limits = Limits()
    retries: RetryPolicy = RetryPolicy()
    broker: BrokerConfig = BrokerConfig()
    subscriber: SubscriberConfig = SubscriberConfig()
    guarantees: Guarantees = Guarantees()
    world_ends_us: int | None = None


class BrokerDue(msgspec.Struct, frozen=True):
    """The timer at which the broker has something to let go of."""


class WorldOver(msgspec.Struct, frozen=True):
    """The timer at the end of the world's life span."""


class EsNode:
    """A client of the server, and the server itself where the two identifiers are equal."""

    def __init__(
        self, node_id: NodeId, server_id: NodeId, store: Store, rng: Random, config: EsConfig
    ) -> None:
        self._node_id = node_id
        self._server_id = server_id
        self._store = store
        self._config = config
        self._outbox = Outbox()
        self._operations = Operations(self._outbox, config.retries, rng)
        self.subscriber = Subscriber(node_id, self._outbox, store, config.subscriber)
        self._client = Client(
            node_id,
            server_id,
            self._outbox,
            self._operations,
            self.subscriber,
            rng,
            config.limits,
            config.guarantees,
        )
        self.broker: Broker | None = None
        self._due_us: int | None = None
        self.dropped: Counter[str] = Counter()

    @property
    def node_id(self) -> NodeId:
        return self._node_id

    def handle(self, event: Input, now_us: int) -> list[Action]:
        """Takes one input at its instant; returns the actions to carry out, in order."""
        actions: list[Action] = []
        self._dispatch(event, now_us)
        waiting = deque(self._outbox.take())
        while waiting:
            action = waiting.popleft()
            if isinstance(action, Send) and action.to == self._node_id:
                self._on_message(self._node_id, action.message, now_us)
                waiting.extend(self._outbox.take())
            else:
                actions.append(action)
        self._set_due_timer()
        return [*actions, *self._outbox.take()]

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        self.subscriber.check()
        if self.broker is not None:
            self.broker.check()

    def _dispatch(self, event: Input, now_us: int) -> None:
        match event:
            case Started():
                self._start(now_us)
            case Asked():
                self._on_asked(event, now_us)
            case Received():
                self._on_message(event.sender, event.message, now_us)
            case TimerFired():
                self._on_timer(event, now_us)
            case SendFailed():
                self.dropped["unreachable"] += 1  # the operation's own timer asks again
            case _:
                assert_never(event)

    def _start(self, now_us: int) -> None:
        if self._node_id == self._server_id:
            self.broker = Broker(self._store, self._config.broker, now_us)
        self.subscriber.set_timers()
        if self._config.world_ends_us is not None:
            self._outbox.set_timer(WorldOver(), self._config.world_ends_us)

    def _on_asked(self, event: Asked, now_us: int) -> None:
        ends_us = self._config.world_ends_us
        if ends_us is None or now_us < ends_us:
            self._client.on_asked(event.request, now_us)
        elif not isinstance(event.request, Take | Pause):
            detail = "the life span of this world is over"
            self._outbox.tell(Failed(event.request.ask, EndedError.code, detail))

    def _on_timer(self, event: TimerFired, now_us: int) -> None:
        match event.timer:
            case RetryTimer():
                self._operations.on_timer(event.timer, now_us)
            case EndOfFrame():
                self.subscriber.on_end_of_frame(event.timer.sid, now_us)
            case BrokerDue() if self.broker is not None:
                self._due_us = None
                self.broker.expire(now_us)
            case WorldOver():
                self.subscriber.end_all("the life span of its world is over")

    def _on_message(self, sender: NodeId, message: wire.Message, now_us: int) -> None:
        match message:
            case wire.Notify():
                if sender == self._server_id:
                    self._client.on_notify(message, now_us)
                else:
                    self.dropped["notify from a stranger"] += 1
            case (
                wire.Done() | wire.Refused() | wire.Page() | wire.ObjectData() | wire.ObjectStatus()
            ):
                self._operations.on_reply(sender, message, now_us)
            case _:
                self._serve(sender, message, now_us)

    def _serve(self, sender: NodeId, request: wire.Ask, now_us: int) -> None:
        if self.broker is None:
            self.dropped["not the server"] += 1
            return
        try:
            reply = self._answer(self.broker, sender, request, now_us)
        except OperationError as error:
            reply = wire.Refused(request.request, error.code, str(error))
        self._outbox.send(sender, reply)

    def _answer(self, broker: Broker, sender: NodeId, request: wire.Ask, now_us: int) -> wire.Reply:
        number = request.request
        match request:
            case wire.InsertObject():
                matched = broker.insert(request.metadata, sender, request.data, now_us)
                self._notify(request, matched)
                return wire.Done(number)
            case wire.DeleteObject():
                broker.delete(request.key, sender, now_us)
                return wire.Done(number)
            case wire.StartSubscription():
                page = broker.subscribe(request.subscription, sender, request.batch, now_us)
                return wire.Page(number, page.total, page.items, page.more)
            case wire.StopSubscription():
                broker.unsubscribe(request.key, sender, now_us)
                return wire.Done(number)
            case wire.FetchPage():
                page = broker.page(
                    request.conjunctions, request.frame, request.count, request.before, now_us
                )
                return wire.Page(number, page.total, page.items, page.more)
            case wire.FetchObject():
                broker.expire(now_us)
                return wire.ObjectData(number, request.key, broker.catalogue.data(request.key))
            case wire.FetchStatus():
                known = broker.known(request.key, now_us)
                return wire.ObjectStatus(number, known.state, known.metadata)
            case _:
                assert_never(request)

    def _notify(self, insert: wire.InsertObject, matched: list[Subscription]) -> None:
        """One message to each subscriber, for all its subscriptions that match."""
        by_subscriber: dict[NodeId, list[Subscription]] = {}
        for subscription in matched:
            by_subscriber.setdefault(subscription.key.subscriber, []).append(subscription)
        for subscriber, subscriptions in by_subscriber.items():
            sids = tuple(sorted(subscription.key.sid for subscription in subscriptions))
            self._outbox.send(subscriber, wire.Notify(insert.metadata, sids))

    def _set_due_timer(self) -> None:
        due_us = None if self.broker is None else self.broker.next_expiry_us()
        if due_us is not None and due_us != self._due_us:
            self._outbox.set_timer(BrokerDue(), due_us)
        self._due_us = due_us
