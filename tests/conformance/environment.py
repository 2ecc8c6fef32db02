"""Environment: the interface through which the conformance tests use a network of any substrate.

Tests count time in moments, not seconds: in virtual time a moment is a second, in real time a few
milliseconds. A new substrate takes part by one line in the table of environments.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from thyme.api.arguments import Instant
from thyme.api.callbacks import CallbackWorld
from thyme.api.session import NodeSession, Outcome
from thyme.api.subscription import Overflow, Subscription
from thyme.model.errors import ThymeError
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.model.time_frames import as_frame
from thyme.protocol.app_interface import (
    LookupResult,
    ReplyValue,
    SearchResult,
    Subscribe,
    SubscriptionInfo,
    SubscriptionStarted,
)
from thyme.query.explain import Explanation, explain
from thyme.query.query import Formula, as_query

PATIENCE = 60
"""The most moments that a test waits for an operation to end."""


@dataclass
class Operation:
    """An operation that was requested and may have ended."""

    outcome: Outcome[ReplyValue] | None = None

    def end(self, outcome: Outcome[ReplyValue]) -> None:
        assert self.outcome is None, "an operation ends once"
        self.outcome = outcome

    @property
    def error(self) -> ThymeError | None:
        assert self.outcome is not None, "the operation has not ended"
        return self.outcome.error


@dataclass
class FollowedSubscription:
    """A subscription, with the notifications and events its subscriber received."""

    query: str | Formula
    frame: Any
    act: Operation
    notes: list[Notification] = field(default_factory=list)
    past: int | None = None
    over: str | None = None

    @property
    def begun(self) -> SubscriptionStarted:
        assert self.act.outcome is not None
        assert isinstance(self.act.outcome.value, SubscriptionStarted), self.act.outcome
        return self.act.outcome.value

    @property
    def sid(self) -> SubscriptionId:
        return self.begun.sid

    @property
    def total(self) -> int:
        """The number of stored objects that match, as far as the subscriber knows."""
        return self.begun.total if self.past is None else self.past

    @property
    def heard(self) -> list[str]:
        """The identifiers of the notified objects, in order."""
        return [note.key.oid for note in self.notes]


class Environment(ABC):
    """A world of some substrate, its users, and control of time."""

    moment_us: int
    skew = 2
    """By how many moments clocks may differ, according to the nodes' settings."""
    clock_error_us = 0
    """How far the clock that an application reads may differ from that of its node."""
    lag = 1
    """The most moments that a notification takes to arrive."""
    retrieve_patience = PATIENCE
    """The most moments that a test waits for a retrieve to end."""
    reliable = True
    """Whether every notification arrives; if not, those that arrive must still be right."""
    durable = False
    many = False
    """Whether each user has a node of its own."""
    outlives_owner = True
    """Whether an object can be retrieved when its owner is gone: not so in LS (L6)."""
    total_at_once = True
    """Whether a subscriber knows the number of stored matches as soon as its subscription has
    started. Where the set of answering nodes is unknown (L7), it knows when the first batch is
    complete."""

    def __init__(self) -> None:
        self._people: dict[str, Person] = {}

    @abstractmethod
    def open(self, name: str) -> NodeSession:
        """Starts the node of a user, with the store of its earlier incarnation."""

    @abstractmethod
    def crash(self, name: str) -> None:
        """Crashes the node of a user; its store stays."""

    @abstractmethod
    def elapse(self, moments: float) -> None:
        """Lets time pass."""

    @abstractmethod
    def tamper(self, key: Key, data: bytes) -> None:
        """Replaces the bytes of a stored object, behind the node's back."""

    @abstractmethod
    def standing(self) -> int:
        """The number of subscriptions that the brokers hold."""

    @abstractmethod
    def close(self) -> None:
        """Closes all nodes."""

    def person(self, name: str) -> Person:
        if name not in self._people:
            self._people[name] = Person(self, name, self.open(name))
        return self._people[name]

    def restart(self, name: str) -> Person:
        """Crashes the node of a user and starts it again."""
        self.crash(name)
        return self.come_back(name)

    def come_back(self, name: str) -> Person:
        """Starts the node of a user again after a crash."""
        if self.many:
            del self._people[name]
        else:
            self._people.clear()
        return self.person(name)

    def us(self, moments: float) -> int:
        """Moments in microseconds."""
        return int(moments * self.moment_us)

    def hears(self, following: FollowedSubscription, expected: list[str]) -> None:
        """Checks the notified objects: all that were expected, or some of them if messages may be
        lost."""
        assert len(following.heard) == len(set(following.heard)), "heard twice"
        if self.reliable:
            assert sorted(following.heard) == sorted(expected)
        else:
            assert set(following.heard) <= set(expected)


class Person:
    """A user with a device. Methods wait for the operation to end, except those that start one."""

    def __init__(self, env: Environment, name: str, asker: NodeSession) -> None:
        self.env = env
        self.name = name
        self.asker = asker
        self.handlers = CallbackWorld(asker)

    @property
    def node_id(self) -> NodeId:
        return self.asker.node_id

    def now_us(self) -> int:
        return self.asker.now_us()

    def begin(self, operation: Callable[..., None], *args: Any, **options: Any) -> Operation:
        """Starts an operation of the callback interface and returns at once."""
        act = Operation()
        operation(*args, on_done=act.end, **options)
        return act

    def wait(self, act: Operation, patience: int = PATIENCE) -> ReplyValue:
        """Lets time pass until an operation ends; raises its error."""
        for _ in range(patience * 10):
            if act.outcome is not None:
                break
            self.env.elapse(0.1)
        assert act.outcome is not None, "the operation never ended"
        if act.outcome.error is not None:
            raise act.outcome.error
        return act.outcome.value

    def insert(self, *tags: str, data: bytes = b"a photo", **options: Any) -> Key:
        value = self.wait(self.begin(self.handlers.insert, data, tags, **options))
        assert isinstance(value, Key)
        return value

    def delete(self, key: Key) -> None:
        self.wait(self.begin(self.handlers.delete, key))

    def follow(
        self,
        query: str | Formula,
        start: Instant | None = None,
        end: Instant | None = None,
        batch: int = 20,
    ) -> FollowedSubscription:
        """Starts a subscription and returns at once."""
        following = FollowedSubscription(query, as_frame(start, end, self.now_us()), Operation())
        self.handlers.subscribe(
            query,
            start,
            end,
            following.notes.append,
            following.act.end,
            batch=batch,
            on_caught_up=lambda total: setattr(following, "past", total),
            on_ended=lambda reason: setattr(following, "over", reason),
        )
        return following

    def subscribe(
        self,
        query: str | Formula,
        start: Instant | None = None,
        end: Instant | None = None,
        batch: int = 20,
    ) -> FollowedSubscription:
        following = self.follow(query, start, end, batch)
        self.wait(following.act)
        self.catch_up(following)
        if self.env.total_at_once:
            assert following.begun.total == following.past
        return following

    def catch_up(self, following: FollowedSubscription) -> None:
        """Lets time pass until the first batch is complete."""
        for _ in range(PATIENCE * 10):
            if following.past is not None:
                break
            self.env.elapse(0.1)
        assert following.past is not None, "the first batch never came"

    def resume(self, sid: SubscriptionId) -> FollowedSubscription:
        following = FollowedSubscription("", None, Operation())
        self.handlers.resume(
            sid,
            following.notes.append,
            following.act.end,
            on_caught_up=lambda total: setattr(following, "past", total),
            on_ended=lambda reason: setattr(following, "over", reason),
        )
        self.wait(following.act)
        self.catch_up(following)
        return following

    def more(self, following: FollowedSubscription, count: int) -> int:
        value = self.wait(self.begin(self.handlers.more, following.sid, count))
        assert isinstance(value, int)
        return value

    def cancel(self, following: FollowedSubscription) -> None:
        self.wait(self.begin(self.handlers.unsubscribe, following.sid))

    def subscriptions(self) -> tuple[SubscriptionInfo, ...]:
        value = self.wait(self.begin(self.handlers.subscriptions))
        assert isinstance(value, tuple)
        return value

    def search(self, query: str | Formula, *args: Any, **options: Any) -> SearchResult:
        value = self.wait(self.begin(self.handlers.search, query, *args, **options))
        assert isinstance(value, SearchResult)
        return value

    def retrieve(self, thing: Notification | Metadata | Key) -> bytes:
        act = self.begin(self.handlers.retrieve, thing)
        value = self.wait(act, self.env.retrieve_patience)
        assert isinstance(value, bytes)
        return value

    def explain(self, key: Key, following: FollowedSubscription) -> Explanation:
        known = self.wait(self.begin(self.handlers.look_up, key))
        assert isinstance(known, LookupResult)
        conjunctions = as_query(following.query).conjunctions
        return explain(known.state, known.metadata, conjunctions, following.frame)

    def reader(self, query: str, buffer: int, overflow: Overflow) -> Subscription:
        """A subscription with a buffer, as `World.subscribe` makes it."""
        formula = as_query(query)
        frame = as_frame(None, None, self.now_us())
        subscription = Subscription(self.asker, formula, frame, buffer, overflow)
        act = Operation()
        self.asker.send_request(
            Subscribe(
                request_id=self.asker.next_id(),
                conjunctions=formula.conjunctions,
                frame=frame,
                batch=20,
            ),
            lambda outcome: self._begun(subscription, act, outcome),
        )
        self.wait(act)
        self.env.elapse(2)  # the first batch is complete
        return subscription

    @staticmethod
    def _begun(subscription: Subscription, act: Operation, outcome: Outcome[ReplyValue]) -> None:
        if isinstance(outcome.value, SubscriptionStarted):
            subscription.start(outcome.value.sid, outcome.value.total)
        act.end(outcome)


def take(subscription: Subscription) -> Notification | None:
    """The next buffered notification of a subscription, if there is one."""
    if not subscription.buffered:
        return None
    try:
        subscription.__anext__().send(None)
    except StopIteration as stopped:
        note = stopped.value
        assert isinstance(note, Notification)
        return note
    raise AssertionError("a waiting notification is there at once")
