"""Session: matches the replies and events of a node to the requests of one application.

The session also remembers notified metadata, since only notified objects can be retrieved (M19).
Entry point: `NodeSession`. `world` and `callbacks` are the APIs on top of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import msgspec

from thyme.api.arguments import as_key
from thyme.api.insert_gate import InsertGate
from thyme.model.bounded import BoundedDict
from thyme.model.errors import ClosedError, NotFoundError, ThymeError, error_for_code
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Notification
from thyme.protocol.app_interface import (
    AppEvent,
    CaughtUp,
    Failed,
    Finished,
    MarkConsumed,
    NotificationEvent,
    NotificationsLost,
    Pause,
    ReplyValue,
    RequestWithReply,
    SearchResult,
    SubscriptionEnded,
)
from thyme.protocol.port import GracefulPort, NodePort, PortFactory

NOTIFIED_MAX = 10_000
ENDED_SUBSCRIPTIONS_MAX = 1_000
V = TypeVar("V")


class Outcome(msgspec.Struct, Generic[V], frozen=True):
    """Result of an operation: a value or an error."""

    value: V | None = None
    error: ThymeError | None = None

    @property
    def ok(self) -> bool:
        """Whether the operation succeeded."""
        return self.error is None


OnDone = Callable[[Outcome[ReplyValue]], None]


class SubscriptionListener(Protocol):
    """Receives the events of one subscription."""

    def on_notification(self, notification: Notification) -> None:
        """Called for each notification."""
        ...

    def on_caught_up(self, event: CaughtUp) -> None:
        """Called once the first batch of past matches was delivered."""
        ...

    def on_lost(self, count: int) -> None:
        """Called when objects were removed before the application could be notified of them."""
        ...

    def on_ended(self, reason: str) -> None:
        """Called when the subscription has ended."""
        ...


class NodeSession:
    """The session of one application with its node."""

    def __init__(self, make_port: PortFactory) -> None:
        self._last_request_id = 0
        self._pending: dict[int, OnDone] = {}
        self._listeners: dict[SubscriptionId, SubscriptionListener] = {}
        self._ended_listeners: BoundedDict[SubscriptionId, SubscriptionListener] = BoundedDict(
            ENDED_SUBSCRIPTIONS_MAX
        )
        """Listeners of ended subscriptions, whose history can still be read."""
        self._notified: BoundedDict[Key, Metadata] = BoundedDict(NOTIFIED_MAX)
        self._end_error: ThymeError | None = None
        self.insert_gate = InsertGate()
        self._port: NodePort = make_port(self)

    @property
    def node_id(self) -> NodeId:
        """The id of the node."""
        return self._port.node_id

    def now_us(self) -> int:
        """The node's current time in microseconds since 1970."""
        return self._port.now_us()

    def raise_if_ended(self) -> None:
        """Raises the error that ended the session, if it has ended."""
        if self._end_error is not None:
            raise self._end_error

    def next_id(self) -> int:
        """A new request id, for the next request."""
        self._last_request_id += 1
        return self._last_request_id

    def send_request(self, request: RequestWithReply, on_done: OnDone) -> None:
        """Sends a request; `on_done` is called once, unless this method raises."""
        self.raise_if_ended()
        self._pending[request.request_id] = on_done
        try:
            self._port.send_request(request)
        except BaseException:
            self._pending.pop(request.request_id, None)
            raise

    async def await_reply(self, request: RequestWithReply) -> ReplyValue:
        """Sends a request and waits for the reply; raises the error if it failed."""
        future: asyncio.Future[ReplyValue] = asyncio.get_running_loop().create_future()

        def on_done(outcome: Outcome[ReplyValue]) -> None:
            if future.done():
                return
            if outcome.error is not None:
                future.set_exception(outcome.error)
            else:
                future.set_result(outcome.value)

        self.send_request(request, on_done)
        return await future

    def send_unanswered(self, request: MarkConsumed | Pause) -> None:
        """Sends a request without a reply; does nothing after the end of the session."""
        if self._end_error is None:
            self._port.send_request(request)

    def add_listener(self, sid: SubscriptionId, listener: SubscriptionListener) -> None:
        """Registers the listener for the events of a subscription."""
        self._listeners[sid] = listener

    def resolve_metadata(self, object_ref: Notification | Metadata | Key) -> Metadata:
        """The metadata for a retrieve: given directly, or notified before for a key (M19)."""
        match object_ref:
            case Metadata():
                return object_ref
            case Notification():
                return object_ref.metadata
        key = as_key(object_ref)
        metadata = self._notified.get(key)
        if metadata is None:
            raise NotFoundError(
                f"{key} was not notified here: only notified objects can be retrieved"
            )
        return metadata

    def close(self) -> None:
        """Leaves the world at once: pending requests fail and subscriptions end."""
        if self._end_error is None:
            self._end_session(ClosedError("this world has been left"))
        self._port.close()

    async def leave(self) -> None:
        """Leaves the world, gracefully if the port supports it."""
        if self._end_error is None:
            self._end_session(ClosedError("this world has been left"))
        if isinstance(self._port, GracefulPort):
            await self._port.leave()
        else:
            self._port.close()

    def on_event(self, event: AppEvent) -> None:
        match event:
            case Finished():
                if isinstance(event.value, SearchResult):
                    for notification in event.value.notifications:
                        self._notified.refresh(notification.key, notification.metadata)
                self._complete(event.request_id, Outcome(value=event.value))
            case Failed():
                self._complete(
                    event.request_id, Outcome(error=error_for_code(event.code, event.detail))
                )
            case NotificationEvent():
                self._notified.refresh(event.notification.key, event.notification.metadata)
                if (listener := self._find_listener(event.notification.sid)) is not None:
                    listener.on_notification(event.notification)
            case CaughtUp():
                if (listener := self._find_listener(event.sid)) is not None:
                    listener.on_caught_up(event)
            case NotificationsLost():
                if (listener := self._find_listener(event.sid)) is not None:
                    listener.on_lost(event.count)
            case SubscriptionEnded():
                if (listener := self._listeners.pop(event.sid, None)) is not None:
                    self._ended_listeners[event.sid] = listener
                    listener.on_ended(event.reason)

    def on_node_failed(self, error: ThymeError) -> None:
        self._end_session(error)

    def _find_listener(self, sid: SubscriptionId) -> SubscriptionListener | None:
        return self._listeners.get(sid) or self._ended_listeners.get(sid)

    def _complete(self, request_id: int, outcome: Outcome[ReplyValue]) -> None:
        on_done = self._pending.pop(request_id, None)
        if on_done is not None:
            on_done(outcome)

    def _end_session(self, error: ThymeError) -> None:
        self._end_error = error
        pending, self._pending = self._pending, {}
        for on_done in pending.values():
            on_done(Outcome(error=error))
        listeners, self._listeners = self._listeners, {}
        for listener in listeners.values():
            listener.on_ended(str(error))
