"""Users: simulated applications that issue the operations of a trace and log the results.

Entry point: `Users`. Each user is the application of one device. A user reads the whole history of
its subscriptions, page by page; retrieves some of the objects it is notified of; and resumes its
subscriptions after a restart of its device. `thyme.sim.results.summary` evaluates the logs.
Clauses: S7, S10, S14, M16, M17, M27.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec

from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface
from thyme.protocol.app_interface import (
    AppEvent,
    CaughtUp,
    Failed,
    Finished,
    NotificationEvent,
    ReplyValue,
    SubscriptionStarted,
)
from thyme.sim.event_export import SimulationEvents
from thyme.sim.networks.wireless_network import WirelessNetwork
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.retrieve_behaviour import RetrieveBehaviour
from thyme.traces.trace import Trace, operation_kind

BATCH = 50
"""Number of past notifications that a user requests at once (M17)."""
NEXT_PAGE_US = SECOND_US
"""Delay between a notification from history and the request for the next page."""


class Attempt(msgspec.Struct):
    """Log entry of one operation: when it was issued, when and how it ended."""

    kind: str
    user: int
    name: str
    """Identifier of the object or subscription in the trace."""
    issued_us: int
    ended_us: int | None = None
    code: str = "pending"
    """`ok`; the code of a failure; `pending` if the operation had not ended when the run ended;
    `down` if the device stopped before the operation ended."""


class ReceivedNotification(msgspec.Struct, frozen=True):
    """Log entry of one notification that a user received."""

    user: int
    sid: str
    """Identifier of the subscription in the trace."""
    oid: str
    published_us: int
    told_us: int


class _FollowedSubscription:
    """A subscription that a user issued, from its request to its end."""

    __slots__ = ("answered", "pending_unsubscribe", "revoked", "sid", "trace_sid")

    def __init__(self, trace_sid: str) -> None:
        self.trace_sid = trace_sid
        self.answered = False
        """Whether the subscribe request was answered."""
        self.sid: SubscriptionId | None = None
        """Identifier given by the node; None until the subscription has started."""
        self.revoked = False
        self.pending_unsubscribe: Attempt | None = None
        """The unsubscribe operation that waits for the answer to the subscribe request."""


OnReply = Callable[[ReplyValue, str], None]
"""Called with the value of the reply and `ok`, or with None and the code of a failure."""


class _User:
    """The state of one user; it outlives the incarnations of the user's device."""

    __slots__ = (
        "last_request_id",
        "next_page_due",
        "number",
        "pending",
        "retrieved",
        "subscriptions",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.last_request_id = 0
        self.pending: dict[int, tuple[Attempt | None, OnReply]] = {}
        self.subscriptions: dict[str, _FollowedSubscription] = {}
        self.next_page_due: set[SubscriptionId] = set()
        """Subscriptions for which the request of the next history page is scheduled."""
        self.retrieved: set[str] = set()

    def next_id(self) -> int:
        """A new request id, for the next request of this user."""
        self.last_request_id += 1
        return self.last_request_id


class Users:
    """Simulates all users of a run."""

    def __init__(
        self,
        network: WirelessNetwork,
        node_ids: Sequence[NodeId],
        trace: Trace,
        *,
        origin_us: int,
        reaction: RetrieveBehaviour,
        seed: int,
        events: SimulationEvents | None = None,
    ) -> None:
        self._network = network
        self._events = events
        self._node_ids = node_ids
        self._numbers = {name: number for number, name in enumerate(node_ids)}
        self._trace = trace
        self._users = [_User(number) for number in range(trace.users)]
        self._up = [False] * len(node_ids)
        self._origin_us = origin_us
        self._reaction = reaction
        self._seed = seed
        self._trace_sids: dict[SubscriptionId, str] = {}
        self._received: list[tuple[int, SubscriptionId, Metadata, int]] = []
        self.attempts: list[Attempt] = []
        """Log of all operations, in order of issue."""

    def schedule_operations(self) -> None:
        """Schedules every operation of the trace.

        Events that were scheduled earlier for the same instant, such as a restart of the user's
        device, are processed before the operation.
        """
        for operation in self._trace.operations:
            self._network.kernel.schedule(self._origin_us + operation.at_us, self._issue, operation)

    @property
    def notification_count(self) -> int:
        """Number of notifications that users received so far."""
        return len(self._received)

    def notifications(self) -> list[ReceivedNotification]:
        """Returns the log of all received notifications, in order of receipt."""
        return [
            ReceivedNotification(
                user,
                self._trace_sids.get(sid, f"unknown:{sid}"),
                metadata.key.oid,
                metadata.published_us,
                received_us,
            )
            for user, sid, metadata, received_us in self._received
        ]

    def on_power(self, node_id: NodeId, incarnation: int) -> None:
        """Handles the start or stop of a device.

        After a stop, the pending operations of its user end with `down`; after a restart, the user
        resumes its subscriptions.
        """
        number = self._numbers[node_id]
        self._up[number] = incarnation > 0
        if self._events is not None:
            self._events.on_power(node_id, self._network.now_us, on=incarnation > 0)
        if number >= len(self._users):
            return
        user = self._users[number]
        if not incarnation:
            pending, user.pending = user.pending, {}
            user.next_page_due.clear()
            for attempt, on_reply in pending.values():
                if attempt is not None:
                    attempt.code = "down"
                on_reply(None, "down")
        elif incarnation > 1:
            for followed in user.subscriptions.values():
                if followed.sid is not None and not followed.revoked:
                    self._resume(user, followed.sid)

    def _resume(self, user: _User, sid: SubscriptionId) -> None:
        self._request(user, None, app_interface.Resume(request_id=user.next_id(), sid=sid))

    def on_event(self, node_id: NodeId, event: AppEvent) -> None:
        """Handles an application event of a device."""
        number = self._numbers[node_id]
        if number >= len(self._users):
            return
        user = self._users[number]
        if self._events is not None:
            self._events.on_event(node_id, event, self._network.now_us)
        match event:
            case Finished():
                self._on_reply(user, event.request_id, event.value, "ok")
            case Failed():
                self._on_reply(user, event.request_id, None, event.code)
            case NotificationEvent():
                self._on_notified(user, event)
            case CaughtUp():
                if event.total > BATCH:
                    self._request_next_page(user, event.sid)
            case _:
                pass  # the end of a subscription is expected

    # Operations

    def _issue(self, operation: Operation) -> None:
        user = self._users[operation.user]
        name = (
            operation.oid
            if isinstance(operation, InsertOperation | DeleteOperation)
            else operation.sid
        )
        attempt = self._add_attempt(operation_kind(operation), user, name)
        match operation:
            case InsertOperation():
                self._insert(user, attempt, operation)
            case DeleteOperation():
                key = Key(ObjectId(operation.oid), self._node_ids[user.number])
                self._request(
                    user, attempt, app_interface.Delete(request_id=user.next_id(), key=key)
                )
            case SubscribeOperation():
                self._subscribe(user, attempt, operation)
            case UnsubscribeOperation():
                followed = user.subscriptions[operation.sid]
                followed.pending_unsubscribe = attempt
                if followed.answered:
                    self._revoke(user, followed)
            case _:
                assert_never(operation)

    def _add_attempt(self, kind: str, user: _User, name: str) -> Attempt:
        attempt = Attempt(kind, user.number, name, self._network.now_us)
        self.attempts.append(attempt)
        return attempt

    def _insert(self, user: _User, attempt: Attempt, insert: InsertOperation) -> None:
        data = insert.text.encode() if insert.text else bytes(insert.size)
        self._request(
            user,
            attempt,
            app_interface.Insert(
                request_id=user.next_id(),
                data=data,
                tags=insert.tags,
                summary=bytes(insert.summary_size),
                oid=ObjectId(insert.oid),
                ttl_us=insert.life_us,
            ),
        )

    def _subscribe(self, user: _User, attempt: Attempt, subscribe: SubscribeOperation) -> None:
        followed = user.subscriptions[subscribe.sid] = _FollowedSubscription(subscribe.sid)

        def on_reply(value: ReplyValue, code: str) -> None:
            followed.answered = True
            if isinstance(value, SubscriptionStarted):
                followed.sid = value.sid
                self._trace_sids[value.sid] = followed.trace_sid
            if followed.pending_unsubscribe is not None:
                self._revoke(user, followed)

        self._request(
            user,
            attempt,
            app_interface.Subscribe(
                request_id=user.next_id(),
                conjunctions=subscribe.conjunctions,
                frame=subscribe.shift_frame(self._origin_us),
                batch=BATCH,
            ),
            on_reply,
        )

    def _revoke(self, user: _User, followed: _FollowedSubscription) -> None:
        attempt, sid = followed.pending_unsubscribe, followed.sid
        followed.revoked = True
        if sid is None:
            assert attempt is not None
            attempt.ended_us, attempt.code = self._network.now_us, "no_subscription"
            return
        self._request(user, attempt, app_interface.Unsubscribe(request_id=user.next_id(), sid=sid))

    def _request_next_page(self, user: _User, sid: SubscriptionId) -> None:
        def on_reply(value: ReplyValue, code: str) -> None:
            if isinstance(value, int) and value >= BATCH:
                self._request_next_page(user, sid)

        self._request(
            user,
            None,
            app_interface.FetchNextPage(request_id=user.next_id(), sid=sid, count=BATCH),
            on_reply,
        )

    def _on_next_page_due(self, argument: tuple[_User, SubscriptionId]) -> None:
        user, sid = argument
        if sid in user.next_page_due:
            user.next_page_due.discard(sid)
            self._request_next_page(user, sid)

    # Reactions

    def _on_notified(self, user: _User, event: NotificationEvent) -> None:
        metadata = event.notification.metadata
        self._received.append((user.number, event.notification.sid, metadata, self._network.now_us))
        self._network.send_request(
            self._node_ids[user.number],
            app_interface.MarkConsumed(sid=event.notification.sid, key=metadata.key),
        )
        if event.notification.from_history and event.notification.sid not in user.next_page_due:
            # In LS every owner answers separately, so no reply gives the total count (L7).
            user.next_page_due.add(event.notification.sid)
            next_page_us = self._network.now_us + NEXT_PAGE_US
            self._network.kernel.schedule(
                next_page_us, self._on_next_page_due, (user, event.notification.sid)
            )
        oid = metadata.key.oid
        if oid in user.retrieved or metadata.key.owner == self._node_ids[user.number]:
            return
        user.retrieved.add(oid)
        delay_us = self._reaction.delay_us(self._seed, user.number, oid)
        if delay_us is not None:
            self._network.kernel.schedule(
                self._network.now_us + delay_us, self._retrieve, (user, metadata)
            )

    def _retrieve(self, argument: tuple[_User, Metadata]) -> None:
        user, metadata = argument
        if not self._up[user.number]:
            return
        attempt = self._add_attempt("retrieve", user, metadata.key.oid)
        self._request(
            user,
            attempt,
            app_interface.Retrieve(request_id=user.next_id(), metadata=metadata),
        )

    # Requests and replies

    def _request(
        self,
        user: _User,
        attempt: Attempt | None,
        request: app_interface.RequestWithReply,
        on_reply: OnReply | None = None,
    ) -> None:
        user.pending[request.request_id] = attempt, on_reply or _ignore_reply
        node_id = self._node_ids[user.number]
        if self._events is not None and self._up[user.number]:
            self._events.on_request(node_id, request, self._network.now_us)
        self._network.send_request(node_id, request)

    def _on_reply(self, user: _User, request_id: int, value: ReplyValue, code: str) -> None:
        attempt, on_reply = user.pending.pop(request_id, (None, _ignore_reply))
        if attempt is not None:
            attempt.ended_us = self._network.now_us
            attempt.code = code
        on_reply(value, code)


def _ignore_reply(value: ReplyValue, code: str) -> None:
    """Ignores a reply."""
