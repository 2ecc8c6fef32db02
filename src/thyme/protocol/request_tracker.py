"""Request tracker: sends requests to other nodes and repeats them until a reply or a timeout.

Entry point: `RequestTracker.send_request`. All transmissions of a request carry the same request
id, so that a reply to any of them completes the request. Receivers must be idempotent. One-way
messages are sent by `reliable_send`.
Clauses: E4, D19.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from thyme.model.errors import OperationTimeoutError, RejectedError
from thyme.model.ids import NodeId, RequestId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.common import BrokerRequest, Reply
from thyme.protocol.outbox import Outbox

WAIT_US_PER_KIB = 4_000
"""Additional wait for large objects: their transfer time at 2 Mb/s."""


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for a reply, and how often to send."""

    tries_max: int = 5
    wait_us: int = SECOND_US // 2
    backoff: float = 2.0
    pending_max: int = 100_000


class RetryTimer(msgspec.Struct, frozen=True):
    """Time to send a request again."""

    request_id: RequestId


@dataclass(slots=True)
class _PendingRequest:
    to: NodeId
    message: BrokerRequest
    on_reply: Callable[[Reply, int], None]
    on_failure: Callable[[str, str, int], None]
    tries: int
    wait_us: int


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

    def send_request(
        self,
        to: NodeId,
        make_request: Callable[[RequestId], BrokerRequest],
        now_us: int,
        on_reply: Callable[[Reply, int], None],
        on_failure: Callable[[str, str, int], None],
        data_bytes: int = 0,
    ) -> None:
        """Sends a request and calls exactly one of `on_reply` and `on_failure`, once.

        `data_bytes` is the size of the object that travels with the request or its reply.
        """
        if len(self._pending) >= self._policy.pending_max:
            detail = "too many operations under way; wait for some to end"
            on_failure(RejectedError.code, detail, now_us)
            return
        request_id = self._next_request_id
        self._next_request_id += 1
        message = make_request(request_id)
        wait_us = self._policy.wait_us + WAIT_US_PER_KIB * (data_bytes // 1024)
        self._pending[request_id] = _PendingRequest(to, message, on_reply, on_failure, 1, wait_us)
        self._outbox.send(to, message)
        self._outbox.set_timer(RetryTimer(request_id), now_us + wait_us)

    def on_reply(self, sender: NodeId, reply: Reply, now_us: int) -> None:
        """Completes the request of a reply; counts a reply without a pending request."""
        pending = self._pending.get(reply.request_id)
        if pending is None or pending.to != sender:
            self.unmatched_replies += 1
            return
        del self._pending[reply.request_id]
        self._outbox.cancel_timer(RetryTimer(reply.request_id))
        pending.on_reply(reply, now_us)

    def on_timer(self, timer: RetryTimer, now_us: int) -> None:
        """Sends a request again with a longer wait, or fails it after the last try."""
        pending = self._pending.get(timer.request_id)
        if pending is None:
            return
        if pending.tries >= self._policy.tries_max:
            del self._pending[timer.request_id]
            detail = f"no answer after {pending.tries} tries"
            pending.on_failure(OperationTimeoutError.code, detail, now_us)
            return
        pending.tries += 1
        pending.wait_us = int(pending.wait_us * self._policy.backoff)
        self.retransmissions += 1
        self._outbox.send(pending.to, pending.message)
        self._outbox.set_timer(timer, now_us + pending.wait_us)
