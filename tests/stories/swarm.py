"""Swarm: nodes of one substrate execute random operations and suffer random faults, from a seed.

A subclass connects the nodes of its substrate and says which operations and faults occur how often.
Safety is checked at every notification: it matches its subscription, has the tags that were
inserted, and comes once (M16, M23). A failure names its seed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.subscriptions import Notification
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import (
    AppEvent,
    Delete,
    Failed,
    Finished,
    Insert,
    NotificationEvent,
    RequestWithReply,
    Subscribe,
    SubscriptionStarted,
    Unsubscribe,
)
from thyme.query.query import Query


@dataclass
class TrackedSubscription:
    """A subscription, with the keys of the objects that its subscriber was notified of."""

    subscriber: NodeId
    query: Query
    received: list[Key] = field(default_factory=list)


class Swarm(ABC):
    """Random operations and faults in a network, and a record of what happened."""

    weights: ClassVar[Mapping[str, int]]
    """How often each operation and fault occurs: insert, delete, subscribe, unsubscribe, crash,
    restart, conditions, nothing."""
    tags: Sequence[str]
    tags_max: int
    queries: Sequence[str]
    batch: int
    nodes_min: int
    """No node crashes while only so many run."""
    pause_s_max: float

    def __init__(self, names: Sequence[NodeId], rng: Random) -> None:
        self.names = names
        self.rng = rng
        self.inserted: dict[Key, tuple[str, ...]] = {}
        self.deleted_us: dict[Key, int] = {}
        self.subscriptions: dict[SubscriptionId, TrackedSubscription] = {}
        self.pending: dict[int, NodeId] = {}
        """The requests without a reply, with their nodes; a crash ends those of its node."""
        self._request_id = 0
        self._subscribing: dict[int, Query] = {}

    @abstractmethod
    def running(self) -> list[NodeId]:
        """The nodes that run now."""

    @abstractmethod
    def now_us(self) -> int:
        """The time in the network."""

    @abstractmethod
    def start(self, name: NodeId) -> None:
        """Starts a node with its earlier store."""

    @abstractmethod
    def crash(self, name: NodeId) -> None:
        """Removes a node without warning; its store stays."""

    @abstractmethod
    def run(self, seconds: float) -> None:
        """Lets time pass; calls `on_event` with each event of an application."""

    @abstractmethod
    def send_request(self, name: NodeId, request: RequestWithReply) -> None:
        """Gives a node a request of its application."""

    def change_conditions(self) -> None:
        """Draws new link conditions and partitions."""
        raise NotImplementedError

    def step(self) -> None:
        """Executes one operation or fault at a random node, then lets a random time pass."""
        name = self.rng.choice(self.running() or self.names)
        if name not in self.running():
            self.start(name)
        match self.rng.choices(tuple(self.weights), tuple(self.weights.values()))[0]:
            case "insert":
                self.insert(name, *self.rng.sample(self.tags, self.rng.randint(1, self.tags_max)))
            case "delete" if own := [key for key in self.inserted if key.owner == name]:
                key = self.rng.choice(own)
                self.deleted_us.setdefault(key, self.now_us())
                self._send(name, Delete(request_id=self.next_request_id(), key=key))
            case "subscribe":
                self._subscribe(name, Query(self.rng.choice(self.queries)))
            case "unsubscribe" if own_sids := self._sids_of(name):
                sid = self.rng.choice(own_sids)
                self._send(name, Unsubscribe(request_id=self.next_request_id(), sid=sid))
                del self.subscriptions[sid]
            case "crash" if len(self.running()) > self.nodes_min:
                self.crash(name)
                self.pending = {id_: by for id_, by in self.pending.items() if by != name}
            case "restart" if away := [one for one in self.names if one not in self.running()]:
                self.start(self.rng.choice(away))
            case "conditions":
                self.change_conditions()
        self.run(self.rng.uniform(0, self.pause_s_max))

    def insert(self, name: NodeId, *tags: str) -> Key:
        """A node inserts an object with a new identifier."""
        request_id = self.next_request_id()
        key = Key(ObjectId(f"o{request_id}"), name)
        self.inserted[key] = tuple(as_tags(tags))
        self._send(name, Insert(request_id=request_id, data=b"x", tags=as_tags(tags), oid=key.oid))
        return key

    def on_event(self, name: NodeId, event: AppEvent) -> None:
        """Records an event of an application, and checks it."""
        if isinstance(event, Finished | Failed):
            self.pending.pop(event.request_id, None)
            query = self._subscribing.pop(event.request_id, None)
            if query is not None and isinstance(event, Finished):
                assert isinstance(event.value, SubscriptionStarted)
                self.subscriptions[event.value.sid] = TrackedSubscription(name, query)
        elif isinstance(event, NotificationEvent):
            self.check_notification(name, event.notification)

    def check_notification(self, name: NodeId, notification: Notification) -> None:
        """M16, M23: a notification is right, and comes once."""
        subscription = self.subscriptions[notification.sid]
        assert subscription.subscriber == name
        assert subscription.query.matches(notification.tags)
        assert notification.tags == self.inserted[notification.key]
        assert notification.key not in subscription.received, "notified twice"
        subscription.received.append(notification.key)

    def next_request_id(self) -> int:
        self._request_id += 1
        return self._request_id

    def _subscribe(self, name: NodeId, query: Query) -> None:
        request_id = self.next_request_id()
        self._subscribing[request_id] = query
        self._send(
            name,
            Subscribe(
                request_id=request_id,
                conjunctions=query.conjunctions,
                frame=TimeFrame(),
                batch=self.batch,
            ),
        )

    def _sids_of(self, name: NodeId) -> list[SubscriptionId]:
        return [sid for sid, one in self.subscriptions.items() if one.subscriber == name]

    def _send(self, name: NodeId, request: RequestWithReply) -> None:
        self.pending[request.request_id] = name
        self.send_request(name, request)
