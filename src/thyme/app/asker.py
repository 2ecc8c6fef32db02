"""Session: matches the replies and events of a node to the requests of one application.

The session also remembers notified metadata, since only notified objects can be retrieved (M19).
Entry point: `NodeSession`. `world` and `callbacks` are the APIs on top of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from thyme.app.inputs import as_key
from thyme.app.port import Parting, Port, PortMaker
from thyme.model.errors import EndedError, NotFoundError, ThymeError, failure
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.protocol.requests import (
    Answered,
    CaughtUp,
    Failed,
    Finished,
    Found,
    Notified,
    Pause,
    SubscriptionOver,
    Take,
    Told,
    Value,
)

KNOWN_MAX = 10_000
READERS_MAX = 1_000
V = TypeVar("V")


class Outcome(msgspec.Struct, Generic[V], frozen=True):
    """Result of an operation: a value or an error."""

    value: V | None = None
    error: ThymeError | None = None

    @property
    def ok(self) -> bool:
        """Whether the operation succeeded."""
        return self.error is None


OnDone = Callable[[Outcome[Value]], None]


class Follower(Protocol):
    """Receives the events of one subscription."""

    def on_note(self, note: Notification) -> None:
        """Called for each notification."""
        ...

    def on_caught_up(self, told: CaughtUp) -> None:
        """Called once the first batch of past matches was delivered."""
        ...

    def on_over(self, reason: str) -> None:
        """Called when the subscription has ended."""
        ...


class Asker:
    """The session of one application with its node."""

    def __init__(self, make_port: PortMaker) -> None:
        self._next_ask = 0
        self._waiting: dict[int, OnDone] = {}
        self._followers: dict[SubscriptionId, Follower] = {}
        self._readers: dict[SubscriptionId, Follower] = {}
        self._known: dict[Key, Metadata] = {}
        self._ended: ThymeError | None = None
        self._port: Port = make_port(self)

    @property
    def node_id(self) -> NodeId:
        """The id of the node."""
        return self._port.node_id

    def now_us(self) -> int:
        """The node's current time in microseconds since 1970."""
        return self._port.now_us()

    def ask(self, make: Callable[[int], Answered], on_done: OnDone) -> None:
        """Sends a request; `on_done` is called once, unless this method raises."""
        if self._ended is not None:
            raise self._ended
        self._next_ask += 1
        ask = self._next_ask
        request = make(ask)
        self._waiting[ask] = on_done
        try:
            self._port.ask(request)
        except BaseException:
            self._waiting.pop(ask, None)
            raise

    def note(self, request: Take | Pause) -> None:
        """Sends a request without a reply; does nothing after the end of the session."""
        if self._ended is None:
            self._port.ask(request)

    def follow(self, sid: SubscriptionId, follower: Follower) -> None:
        """Registers the listener for the events of a subscription."""
        self._followers[sid] = follower

    def metadata_of(self, thing: Notification | Metadata | Key) -> Metadata:
        """The metadata for a retrieve: given directly, or notified before for a key (M19)."""
        match thing:
            case Metadata():
                return thing
            case Notification():
                return thing.metadata
        key = as_key(thing)
        metadata = self._known.get(key)
        if metadata is None:
            raise NotFoundError(
                f"{key} was not notified here: only notified objects can be retrieved"
            )
        return metadata

    def close(self) -> None:
        """Leaves the world at once: pending requests fail and subscriptions end."""
        if self._ended is None:
            self._end(EndedError("this world has been left"))
        self._port.close()

    async def leave(self) -> None:
        """Leaves the world, gracefully if the port supports it."""
        if self._ended is None:
            self._end(EndedError("this world has been left"))
        if isinstance(self._port, Parting):
            await self._port.leave()
        else:
            self._port.close()

    def on_told(self, told: Told) -> None:
        match told:
            case Finished():
                if isinstance(told.value, Found):
                    for note in told.value.notes:
                        self._remember(note)
                self._done(told.ask, Outcome(value=told.value))
            case Failed():
                self._done(told.ask, Outcome(error=failure(told.code, told.detail)))
            case Notified():
                self._remember(told.note)
                if (follower := self._follower(told.note.sid)) is not None:
                    follower.on_note(told.note)
            case CaughtUp():
                if (follower := self._follower(told.sid)) is not None:
                    follower.on_caught_up(told)
            case SubscriptionOver():
                if (follower := self._followers.pop(told.sid, None)) is not None:
                    self._keep_reader(told.sid, follower)
                    follower.on_over(told.reason)

    def on_broken(self, error: ThymeError) -> None:
        self._end(error)

    def _keep_reader(self, sid: SubscriptionId, follower: Follower) -> None:
        """Keeps the listener of an ended subscription, whose history can still be read."""
        self._readers[sid] = follower
        if len(self._readers) > READERS_MAX:
            del self._readers[next(iter(self._readers))]

    def _follower(self, sid: SubscriptionId) -> Follower | None:
        return self._followers.get(sid) or self._readers.get(sid)

    def _done(self, ask: int, outcome: Outcome[Value]) -> None:
        on_done = self._waiting.pop(ask, None)
        if on_done is not None:
            on_done(outcome)

    def _remember(self, note: Notification) -> None:
        self._known.pop(note.key, None)
        self._known[note.key] = note.metadata
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]

    def _end(self, error: ThymeError) -> None:
        self._ended = error
        waiting, self._waiting = self._waiting, {}
        for on_done in waiting.values():
            on_done(Outcome(error=error))
        followers, self._followers = self._followers, {}
        for follower in followers.values():
            follower.on_over(str(error))
