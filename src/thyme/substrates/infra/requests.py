"""Requests between mobile nodes and stations, and between stations, with time-outs and retries.

Entry point: `StationRequests.send`. A request is repeated with the same id until a reply of its
receiver arrives; receivers are idempotent. A failed link is reported at once, before the time-out.
Clauses: I27.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from thyme.model.errors import OperationTimeoutError, RejectedError
from thyme.model.ids import NodeId, RequestId
from thyme.protocol.messages.common import Message
from thyme.protocol.messages.replies import Refused
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.protocol.retry import RetryPolicy, RetryState

Wrap = Callable[[Message], Message]
"""Returns the message that carries a request, such as a `ToStation`."""


class StationRequestTimer(msgspec.Struct, frozen=True):
    """Time to send a request again, or to give it up."""

    request_id: RequestId


@dataclass(slots=True)
class _Pending:
    to: NodeId
    answers: NodeId
    """The node that answers: the receiver, unless that passes the request on."""
    message: Message
    on_result: OnResult[Message]
    retries: RetryState


class StationRequests:
    """The pending requests of one node."""

    def __init__(
        self, outbox: Outbox, policy: RetryPolicy, rng: Random, wrap: Wrap = lambda message: message
    ) -> None:
        self._outbox = outbox
        self._policy = policy
        self._wrap = wrap
        # A restarted node must not accept a reply to a request of its earlier incarnation.
        self._next_id = rng.getrandbits(40)
        self._pending: dict[RequestId, _Pending] = {}
        self.retransmissions = 0
        self.timeouts = 0

    def __len__(self) -> int:
        return len(self._pending)

    def next_id(self) -> RequestId:
        """A new request id."""
        self._next_id += 1
        return self._next_id

    def send(
        self,
        to: NodeId,
        request_id: RequestId,
        message: Message,
        now_us: int,
        on_result: OnResult[Message],
        *,
        answered_by: NodeId | None = None,
        data_bytes: int = 0,
        tries_max: int | None = None,
    ) -> None:
        """Sends a request; `on_result` is called once, with the reply or a failure. A `Refused` is
        a failure. `answered_by` is the node that answers, if another one than the receiver.
        `data_bytes` is the size of an object that travels with request or reply."""
        policy = self._policy
        if len(self._pending) >= policy.pending_max:
            on_result(Failure(RejectedError.code, "too many requests under way"), now_us)
            return
        retries = RetryState(
            tries_max or policy.tries_max, policy.first_wait_us(data_bytes), policy.backoff
        )
        answers = to if answered_by is None else answered_by
        self._pending[request_id] = _Pending(to, answers, message, on_result, retries)
        self._transmit(request_id, now_us)

    def on_reply(self, sender: NodeId, request_id: RequestId, reply: Message, now_us: int) -> bool:
        """Ends the request of a reply; returns False if there is none, or of another receiver."""
        pending = self._pending.get(request_id)
        if pending is None or pending.answers != sender:
            return False
        result: Result[Message] = Ok(reply)
        if isinstance(reply, Refused):
            result = Failure(reply.code, reply.detail)
        self._finish(request_id, result, now_us)
        return True

    def on_timer(self, timer: StationRequestTimer, now_us: int) -> None:
        """Sends a request again with a longer wait, or fails it after the last try."""
        pending = self._pending.get(timer.request_id)
        if pending is None:
            return
        if pending.retries.is_exhausted:
            self.timeouts += 1
            detail = f"no answer after {pending.retries.tries} tries"
            self._finish(timer.request_id, Failure(OperationTimeoutError.code, detail), now_us)
            return
        self.retransmissions += 1
        self._transmit(timer.request_id, now_us)

    def fail_all(self, to: NodeId, now_us: int) -> None:
        """Fails all requests to a node that is lost."""
        for request_id in [n for n, pending in self._pending.items() if pending.to == to]:
            if request_id in self._pending:
                failure = Failure(OperationTimeoutError.code, "the receiver is out of reach")
                self._finish(request_id, failure, now_us)

    def _transmit(self, request_id: RequestId, now_us: int) -> None:
        pending = self._pending[request_id]
        self._outbox.send(pending.to, self._wrap(pending.message))
        due_us = pending.retries.count_try(now_us)
        self._outbox.set_timer(StationRequestTimer(request_id), due_us)

    def _finish(self, request_id: RequestId, result: Result[Message], now_us: int) -> None:
        pending = self._pending.pop(request_id)
        self._outbox.cancel_timer(StationRequestTimer(request_id))
        pending.on_result(result, now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._pending) <= self._policy.pending_max
