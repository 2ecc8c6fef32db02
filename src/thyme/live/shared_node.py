"""Shared node: lets several applications use one node.

Each application has a session, which is a `NodePort`. Requests get a new request id on their way to
the node, so that each reply goes to the session that made the request; the events of a subscription
go to the session that started or resumed it. When a session is closed, its subscriptions stay
active but paused; a session that resumes one gets the notifications not consumed before (M27).
Entry point: `SharedNode.open_session`.
Clauses: M13–M20, M27.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Protocol

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.errors import ClosedError, ThymeError
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    CatchUp,
    CaughtUp,
    Failed,
    Finished,
    MarkConsumed,
    NotificationEvent,
    NotificationsLost,
    Pause,
    RequestWithReply,
    Resume,
    SubscriptionEnded,
    SubscriptionStarted,
)
from thyme.protocol.port import NodeListener, NodePort, PortFactory

ENDED_SUBSCRIPTIONS_MAX = 1_000
"""Number of ended subscriptions whose session is remembered."""


class RequestObserver(Protocol):
    """Sees the requests to a node and its events; must neither fail nor wait."""

    def on_request(self, node: NodeId, request: AppRequest, now_us: int) -> None:
        """Called before a request is passed to the node."""
        ...

    def on_event(self, node: NodeId, event: AppEvent, now_us: int) -> None:
        """Called when the node emits an event, with the request id that the node knows."""
        ...


class _ForwardedRequest(msgspec.Struct, frozen=True):
    """A request without a reply yet; one made by `SharedNode` itself has a `sid`, no session."""

    session: AppSession | None
    request_id: int
    kind: str
    sent_us: int
    sid: SubscriptionId | None = None


class _SubscriptionOwner:
    """A subscription and the session that receives its events."""

    __slots__ = ("ended", "session", "total", "unconsumed")

    def __init__(self) -> None:
        self.session: AppSession | None = None
        """None while no session owns the subscription."""
        self.total = 0
        self.unconsumed: dict[Key, None] = {}
        """Keys of notifications delivered and not consumed."""
        self.ended = False


class RequestStats:
    """Counts and durations of the requests to a node."""

    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()
        """Successful requests, by kind of request."""
        self.failed: Counter[tuple[str, str]] = Counter()
        """Failed requests, by kind of request and failure code."""
        self.duration_us: Counter[str] = Counter()
        """Total duration of requests, by kind of request."""
        self.notifications = 0


class SharedNode:
    """Passes requests and events between one node and the sessions of its applications."""

    def __init__(self, make_port: PortFactory, observer: RequestObserver | None = None) -> None:
        self._observer: RequestObserver | None = None
        self._next_request_id = 0
        self._pending: dict[int, _ForwardedRequest] = {}
        self._owners: dict[SubscriptionId, _SubscriptionOwner] = {}
        self._ended: BoundedDict[SubscriptionId, None] = BoundedDict(ENDED_SUBSCRIPTIONS_MAX)
        self._sessions: dict[AppSession, None] = {}
        self._failure: ThymeError | None = None
        self.stats = RequestStats()
        self.node: NodePort = make_port(self)
        self._observer = observer

    def open_session(self, listener: NodeListener) -> AppSession:
        """Opens a session for an application."""
        if self._failure is not None:
            raise ClosedError(f"the node stopped: {self._failure}")
        session = AppSession(self, listener)
        self._sessions[session] = None
        return session

    @property
    def session_count(self) -> int:
        """Number of open sessions."""
        return len(self._sessions)

    @property
    def failure(self) -> ThymeError | None:
        """The error that stopped the node; None while it runs."""
        return self._failure

    # Requests of the sessions

    def handle_request(self, session: AppSession, request: AppRequest) -> None:
        """Passes a request of a session to the node."""
        match request:
            case MarkConsumed():
                if (owner := self._owners.get(request.sid)) is not None:
                    owner.unconsumed.pop(request.key, None)
                self.node.send_request(request)
            case Pause():
                self.node.send_request(request)
            case Resume() if self._is_unowned(request.sid):
                self._adopt(session, request)
            case _:
                self._forward_request(session, request)

    def close_session(self, session: AppSession) -> None:
        """Removes a closed session and pauses its subscriptions."""
        self._sessions.pop(session, None)
        for sid, owner in list(self._owners.items()):
            if owner.session is session:
                self._release(sid, owner)

    def close_all(self, error: ThymeError) -> None:
        """Reports to every session that the node has stopped."""
        for session in list(self._sessions):
            session.listener.on_node_failed(error)

    def _forward_request(
        self,
        session: AppSession | None,
        request: RequestWithReply,
        sid: SubscriptionId | None = None,
    ) -> None:
        self._next_request_id += 1
        request_id = self._next_request_id
        kind = request.label
        self._pending[request_id] = _ForwardedRequest(
            session, request.request_id, kind, self.node.now_us(), sid
        )
        request = msgspec.structs.replace(request, request_id=request_id)
        if self._observer is not None:
            self._observer.on_request(self.node.node_id, request, self.node.now_us())
        try:
            self.node.send_request(request)
        except BaseException:
            del self._pending[request_id]
            raise

    def _is_unowned(self, sid: SubscriptionId) -> bool:
        """Whether a subscription of this incarnation is active without a session."""
        owner = self._owners.get(sid)
        return owner is not None and owner.session is None

    def _release(self, sid: SubscriptionId, owner: _SubscriptionOwner) -> None:
        owner.session = None
        if owner.ended:
            del self._owners[sid]
            self._ended.pop(sid, None)
            return
        with suppress(ClosedError):  # the node has stopped; there is nothing to pause
            self.node.send_request(Pause(sid=sid))

    def _adopt(self, session: AppSession, request: Resume) -> None:
        """Gives a subscription without a session to a session that resumes it."""
        owner = self._owners[request.sid]
        owner.session = session
        session.listener.on_event(
            Finished(request.request_id, SubscriptionStarted(request.sid, owner.total))
        )
        refused, owner.unconsumed = tuple(owner.unconsumed), {}
        self._forward_request(
            None, CatchUp(request_id=0, sid=request.sid, refused=refused), request.sid
        )

    # Events of the node

    def on_event(self, event: AppEvent) -> None:
        if self._observer is not None:
            self._observer.on_event(self.node.node_id, event, self.node.now_us())
        match event:
            case Finished() | Failed():
                self._on_reply(event)
            case NotificationEvent():
                self.stats.notifications += 1
                if (owner := self._owners.get(event.notification.sid)) is not None:
                    owner.unconsumed[event.notification.key] = None
                self._deliver(event.notification.sid, event)
            case CaughtUp():
                if (owner := self._owners.get(event.sid)) is not None:
                    owner.total = event.total
                self._deliver(event.sid, event)
            case NotificationsLost():
                self._deliver(event.sid, event)
            case SubscriptionEnded():
                self._deliver(event.sid, event)
                self._on_ended(event.sid)

    def on_node_failed(self, error: ThymeError) -> None:
        self._failure = error
        self.close_all(error)

    def _on_reply(self, event: Finished | Failed) -> None:
        pending = self._pending.pop(event.request_id)
        self._record_stats(pending, event)
        if pending.sid is not None:
            total = self._owners[pending.sid].total if pending.sid in self._owners else 0
            code = event.code if isinstance(event, Failed) else ""
            self._deliver(pending.sid, CaughtUp(pending.sid, total, code))
            return
        assert pending.session is not None
        if isinstance(event, Finished) and isinstance(event.value, SubscriptionStarted):
            self._on_started(pending.session, event.value)
        if pending.session in self._sessions:
            pending.session.listener.on_event(
                msgspec.structs.replace(event, request_id=pending.request_id)
            )

    def _on_started(self, session: AppSession, started: SubscriptionStarted) -> None:
        owner = self._owners[started.sid] = _SubscriptionOwner()
        owner.total = started.total
        owner.session = session
        self._ended.pop(started.sid, None)
        if session not in self._sessions:  # the session was closed meanwhile
            self._release(started.sid, owner)

    def _deliver(self, sid: SubscriptionId, event: AppEvent) -> None:
        owner = self._owners.get(sid)
        if owner is not None and owner.session is not None:
            owner.session.listener.on_event(event)

    def _on_ended(self, sid: SubscriptionId) -> None:
        """Marks a subscription as ended; its session can still read its history."""
        owner = self._owners.get(sid)
        if owner is None:
            return
        owner.ended = True
        if owner.session is None:
            del self._owners[sid]
            return
        evicted = self._ended.put(sid, None)
        if evicted is not None:
            del self._owners[evicted]

    def _record_stats(self, pending: _ForwardedRequest, event: Finished | Failed) -> None:
        self.stats.duration_us[pending.kind] += self.node.now_us() - pending.sent_us
        if isinstance(event, Failed):
            self.stats.failed[pending.kind, event.code] += 1
        else:
            self.stats.finished[pending.kind] += 1


class AppSession:
    """The session of one application with a shared node (a `NodePort`)."""

    def __init__(self, shared_node: SharedNode, listener: NodeListener) -> None:
        self._shared_node = shared_node
        self._is_open = True
        self.listener = listener

    @property
    def node_id(self) -> NodeId:
        return self._shared_node.node.node_id

    def now_us(self) -> int:
        return self._shared_node.node.now_us()

    def send_request(self, request: AppRequest) -> None:
        if not self._is_open:
            raise ClosedError("this world has been left")
        self._shared_node.handle_request(self, request)

    def close(self) -> None:
        """Closes the session; the node keeps running."""
        self._is_open = False
        self._shared_node.close_session(self)
