"""Shared node: lets several applications use one node.

Each application has a session, which is a `NodePort`. Requests get a new request id on their way to
the node, so that each reply goes to the session that made the request; the events of a subscription
go to the session that started or resumed it. When a session is closed, its subscriptions stay
active but paused; a session that resumes one gets the notifications not consumed before (M27). A
session that does not consume its notifications pauses them, too: the rest waits in history. The
node's sessions together form one reader: an object that one of them was notified of can be
retrieved by all (M19).
Entry point: `SharedNode.open_session`.
Clauses: M13–M20, M27, M33–M35.
"""

from __future__ import annotations

import asyncio
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
    Insert,
    MarkConsumed,
    NotificationEvent,
    NotificationsLost,
    Pause,
    RequestWithReply,
    Resume,
    SearchResult,
    SubscriptionEnded,
    SubscriptionStarted,
)
from thyme.protocol.port import NodeListener, NodePort, PortFactory

UNCONSUMED_MAX = 2_000
UNCONSUMED_BYTES_MAX = 4 * 2**20
"""Maximum number of notifications of one subscription that were delivered to a session and not
consumed, and of bytes of their summaries; beyond it, the subscription pauses (M35)."""
INSERTS_MAX = 1_000
INSERT_BYTES_MAX = 16 * 2**20
"""Number and bytes of unfinished inserts beyond which sessions should not send more (M35)."""
ENDED_SUBSCRIPTIONS_MAX = 1_000
"""Number of ended subscriptions whose session is remembered."""
NOTIFIED_MAX = 100_000
"""Number of notified objects that are remembered for retrieves by key."""


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
    announced: bool = False
    """Whether the session gets `CaughtUp` at the end."""
    insert_bytes: int | None = None
    """The size of an insert; None for other requests."""


class _SubscriptionOwner:
    """A subscription and the session that receives its events."""

    __slots__ = ("bytes", "catching_up", "ended", "paused", "session", "total", "unconsumed")

    def __init__(self) -> None:
        self.session: AppSession | None = None
        """None while no session owns the subscription."""
        self.total = 0
        self.unconsumed: dict[Key, int] = {}
        """Notifications delivered and not consumed: their keys, and the sizes of the summaries."""
        self.bytes = 0
        self.paused = False
        """Whether the subscription pauses because too many notifications are not consumed."""
        self.catching_up = False
        self.ended = False

    @property
    def is_behind(self) -> bool:
        """Whether the session should get no more notifications for now."""
        return len(self.unconsumed) >= UNCONSUMED_MAX or self.bytes >= UNCONSUMED_BYTES_MAX

    @property
    def has_caught_up(self) -> bool:
        """Whether the session has consumed at least half of what it may have."""
        count, size = len(self.unconsumed), self.bytes
        return count <= UNCONSUMED_MAX // 2 and size <= UNCONSUMED_BYTES_MAX // 2

    def add(self, key: Key, size: int) -> None:
        """Adds a notification that was delivered."""
        self.discard(key)
        self.unconsumed[key] = size
        self.bytes += size

    def discard(self, key: Key) -> None:
        """Removes a notification that was consumed or refused."""
        self.bytes -= self.unconsumed.pop(key, 0)


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
        self._notified: BoundedDict[Key, None] = BoundedDict(NOTIFIED_MAX)
        self._failure: ThymeError | None = None
        self._inserts = 0
        self._insert_bytes = 0
        self._ready = asyncio.Event()
        self._ready.set()
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

    def was_notified(self, key: Key) -> bool:
        """Whether a session was notified of an object, by a subscription or a search (M19)."""
        return key in self._notified

    # Requests of the sessions

    def handle_request(self, session: AppSession, request: AppRequest) -> None:
        """Passes a request of a session to the node."""
        match request:
            case MarkConsumed():
                self.node.send_request(request)
                if (owner := self._owners.get(request.sid)) is not None:
                    owner.discard(request.key)
                    self._catch_up_if_free(request.sid, owner)
            case Pause():
                self.node.send_request(request)
            case CatchUp():
                if (owner := self._owners.get(request.sid)) is not None:
                    owner.paused = False
                    for key in request.refused:
                        owner.discard(key)
                self._forward_request(session, request)
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
        *,
        announced: bool = False,
    ) -> None:
        self._next_request_id += 1
        request_id = self._next_request_id
        kind = request.label
        if isinstance(request, Insert):
            self._inserts += 1
            self._insert_bytes += len(request.data) + len(request.summary)
            if self._inserts >= INSERTS_MAX or self._insert_bytes >= INSERT_BYTES_MAX:
                self._ready.clear()
        self._pending[request_id] = _ForwardedRequest(
            session,
            request.request_id,
            kind,
            self.node.now_us(),
            sid,
            announced,
            len(request.data) + len(request.summary) if isinstance(request, Insert) else None,
        )
        request = msgspec.structs.replace(request, request_id=request_id)
        if self._observer is not None:
            self._observer.on_request(self.node.node_id, request, self.node.now_us())
        try:
            self.node.send_request(request)
        except BaseException:
            self._count_finished_insert(self._pending.pop(request_id))
            raise

    async def wait_until_ready(self) -> None:
        """Waits while too many inserts are unfinished: sessions that send many are slowed down
        (M35)."""
        await self._ready.wait()

    def _count_finished_insert(self, request: _ForwardedRequest) -> None:
        if request.insert_bytes is not None:
            self._inserts -= 1
            self._insert_bytes -= request.insert_bytes
            if self._inserts < INSERTS_MAX and self._insert_bytes < INSERT_BYTES_MAX:
                self._ready.set()

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
        refused, owner.unconsumed, owner.bytes = tuple(owner.unconsumed), {}, 0
        owner.paused, owner.catching_up = False, False
        self._forward_request(
            None,
            CatchUp(request_id=0, sid=request.sid, refused=refused),
            request.sid,
            announced=True,
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
                self._on_notification(event)
            case CaughtUp():
                if (owner := self._owners.get(event.sid)) is not None:
                    owner.total = event.total
                self._deliver(event.sid, event)
            case NotificationsLost():
                self._deliver(event.sid, event)
            case SubscriptionEnded():
                self._deliver(event.sid, event)
                self._on_ended(event.sid)

    def _on_notification(self, event: NotificationEvent) -> None:
        """Delivers a notification; pauses the subscription if too many are not consumed."""
        notification = event.notification
        owner = self._owners.get(notification.sid)
        if owner is None:
            return
        self._notified.refresh(notification.key, None)
        owner.add(notification.key, len(notification.summary))
        if owner.session is not None:
            owner.session.listener.on_event(event)
            if owner.is_behind and not owner.paused:
                owner.paused = True
                self.node.send_request(Pause(sid=notification.sid))

    def _catch_up_if_free(self, sid: SubscriptionId, owner: _SubscriptionOwner) -> None:
        """Ends the pause once the session has consumed enough."""
        if not owner.paused or owner.catching_up or not owner.has_caught_up:
            return
        owner.paused, owner.catching_up = False, True
        self._forward_request(None, CatchUp(request_id=0, sid=sid, refused=()), sid)

    def on_node_failed(self, error: ThymeError) -> None:
        self._failure = error
        self.close_all(error)

    def _on_reply(self, event: Finished | Failed) -> None:
        pending = self._pending.pop(event.request_id)
        self._count_finished_insert(pending)
        self._record_stats(pending, event)
        if pending.sid is not None:
            self._on_own_reply(pending.sid, event, announced=pending.announced)
            return
        assert pending.session is not None
        if isinstance(event, Finished) and isinstance(event.value, SubscriptionStarted):
            self._on_started(pending.session, event.value)
        elif isinstance(event, Finished) and isinstance(event.value, SearchResult):
            for notification in event.value:
                self._notified.refresh(notification.key, None)
        if pending.session in self._sessions:
            pending.session.listener.on_event(
                msgspec.structs.replace(event, request_id=pending.request_id)
            )

    def _on_own_reply(
        self, sid: SubscriptionId, event: Finished | Failed, *, announced: bool
    ) -> None:
        """Handles the end of a `CatchUp` that this node requested for a session."""
        owner = self._owners.get(sid)
        if not announced:
            if owner is not None:
                owner.catching_up = False
                self._catch_up_if_free(sid, owner)
            return
        total = 0 if owner is None else owner.total
        code = event.code if isinstance(event, Failed) else ""
        self._deliver(sid, CaughtUp(sid, total, code))

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
