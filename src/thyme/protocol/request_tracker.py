"""Request tracker: sends requests to other nodes and repeats them until a reply or a timeout.

Entry points: `RequestTracker.next_id` and `send_request`. All transmissions of a request carry the
same request id, so that a reply to any of them completes the request. Receivers must be idempotent.
One-way messages are sent by `reliable_send`.
Clauses: E4, D19.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TypeVar

import msgspec

from thyme.model.errors import OperationTimeoutError, RejectedError
from thyme.model.ids import NodeId, RequestId
from thyme.protocol.messages.replies import Refused, Reply
from thyme.protocol.messages.requests import BrokerRequest
from thyme.protocol.outbox import Outbox
from thyme.protocol.results import Failure, Ok, OnResult, Result
from thyme.protocol.retry import RetryPolicy, RetryState

ReplyT = TypeVar("ReplyT", bound=Reply)


class RetryTimer(msgspec.Struct, frozen=True, gc=False):
    """Time to send a request again."""

    request_id: RequestId


@dataclass(slots=True)
class _PendingRequest:
    to: NodeId
    message: BrokerRequest
    on_result: OnResult[Reply]
    retries: RetryState


class RequestTracker:
    """The pending requests of one node."""

    def __init__(self, outbox: Outbox, policy: RetryPolicy, rng: Random) -> None:
        self._outbox = outbox
        self._policy = policy
        # A restarted node must not accept a reply to a request of its earlier incarnation.
        self._next_request_id = rng.getrandbits(48)
        self._pending: dict[RequestId, _PendingRequest] = {}
        self.retransmissions = 0
        self.unmatched_replies = 0

    def __len__(self) -> int:
        return len(self._pending)

    def next_id(self) -> RequestId:
        """A new request id, for the next request."""
        request_id = self._next_request_id
        self._next_request_id += 1
        return request_id

    def send_request(
        self,
        to: NodeId,
        request: BrokerRequest,
        reply_type: type[ReplyT],
        now_us: int,
        on_result: OnResult[ReplyT],
        data_bytes: int = 0,
    ) -> None:
        """Sends a request and calls `on_result` once, with a reply of the expected type or with a
        failure.

        `data_bytes` is the size of the object that travels with the request or its reply.
        """
        if len(self._pending) >= self._policy.pending_max:
            detail = "too many operations under way; wait for some to end"
            on_result(Failure(RejectedError.code, detail), now_us)
            return
        policy = self._policy
        self._pending[request.request_id] = _PendingRequest(
            to,
            request,
            lambda result, now_us: on_result(_expect_reply(result, reply_type), now_us),
            RetryState(policy.tries_max, policy.first_wait_us(data_bytes), policy.backoff),
        )
        self._send(request.request_id, now_us)

    def on_reply(self, sender: NodeId, reply: Reply, now_us: int) -> None:
        """Completes the request of a reply; counts a reply without a pending request."""
        pending = self._pending.get(reply.request_id)
        if pending is None or pending.to != sender:
            self.unmatched_replies += 1
            return
        del self._pending[reply.request_id]
        self._outbox.cancel_timer(RetryTimer(reply.request_id))
        pending.on_result(Ok(reply), now_us)

    def on_timer(self, timer: RetryTimer, now_us: int) -> None:
        """Sends a request again with a longer wait, or fails it after the last try."""
        pending = self._pending.get(timer.request_id)
        if pending is None:
            return
        if pending.retries.is_exhausted:
            del self._pending[timer.request_id]
            detail = f"no answer after {pending.retries.tries} tries"
            pending.on_result(Failure(OperationTimeoutError.code, detail), now_us)
            return
        self.retransmissions += 1
        self._send(timer.request_id, now_us)

    def _send(self, request_id: RequestId, now_us: int) -> None:
        pending = self._pending[request_id]
        self._outbox.send(pending.to, pending.message)
        self._outbox.set_timer(RetryTimer(request_id), pending.retries.count_try(now_us))


def _expect_reply(result: Result[Reply], reply_type: type[ReplyT]) -> Result[ReplyT]:
    """The result with a reply of the expected type; a refusal or another reply is a failure."""
    if isinstance(result, Failure):
        return result
    reply = result.value
    if isinstance(reply, reply_type):
        return Ok(reply)
    if isinstance(reply, Refused):
        return Failure(reply.code, reply.detail)
    return Failure("failed", f"unexpected reply type: {reply.label}")
