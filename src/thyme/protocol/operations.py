"""Operations: requests that are sent until they are answered or out of tries.

One `Operations` per node keeps what is under way. A request has a number that its
retransmissions repeat, so that the receiver's answer is recognised whichever try it answers;
receivers do the same thing again without harm (idempotence is theirs).
Clauses: E4, D19.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from thyme.model.errors import OperationTimeoutError, RejectedError
from thyme.model.frames import SECOND_US
from thyme.model.ids import NodeId, RequestNumber
from thyme.protocol.messages import Ask, Reply
from thyme.protocol.outbox import Outbox


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for an answer, and how often to ask."""

    tries_max: int = 5
    wait_us: int = SECOND_US // 2
    wait_us_per_kib: int = 4_000
    """More patience for large objects, whose way takes time: as at 2 Mb/s."""
    backoff: float = 2.0
    under_way_max: int = 100_000


class RetryTimer(msgspec.Struct, frozen=True):
    """Time to ask again."""

    request: RequestNumber


@dataclass(slots=True)
class _Pending:
    to: NodeId
    message: Ask
    on_reply: Callable[[Reply, int], None]
    on_failure: Callable[[str, str, int], None]
    tries: int
    wait_us: int


class Operations:
    """The requests under way."""

    def __init__(self, outbox: Outbox, policy: RetryPolicy, rng: Random) -> None:
        self._outbox = outbox
        self._policy = policy
        # A node that lost its memory must not take an answer to its earlier life for its own.
        self._next_number = rng.getrandbits(48)
        self._pending: dict[RequestNumber, _Pending] = {}
        self.retransmissions = 0
        self.stray_replies = 0

    def __len__(self) -> int:
        return len(self._pending)

    def start(
        self,
        to: NodeId,
        make: Callable[[RequestNumber], Ask],
        now_us: int,
        on_reply: Callable[[Reply, int], None],
        on_failure: Callable[[str, str, int], None],
        data_bytes: int = 0,
    ) -> None:
        """Sends a request; one of the two functions will be called, once.

        `data_bytes` says how much travels with the request or its reply.
        """
        if len(self._pending) >= self._policy.under_way_max:
            detail = "too many operations under way; wait for some to end"
            on_failure(RejectedError.code, detail, now_us)
            return
        number = self._next_number
        self._next_number += 1
        message = make(number)
        wait_us = self._policy.wait_us + self._policy.wait_us_per_kib * (data_bytes // 1024)
        self._pending[number] = _Pending(to, message, on_reply, on_failure, 1, wait_us)
        self._outbox.send(to, message)
        self._outbox.set_timer(RetryTimer(number), now_us + wait_us)

    def on_reply(self, sender: NodeId, reply: Reply, now_us: int) -> None:
        """Ends the request that a reply answers; a late or foreign reply is counted."""
        pending = self._pending.get(reply.request)
        if pending is None or pending.to != sender:
            self.stray_replies += 1
            return
        del self._pending[reply.request]
        self._outbox.cancel_timer(RetryTimer(reply.request))
        pending.on_reply(reply, now_us)

    def on_timer(self, timer: RetryTimer, now_us: int) -> None:
        """Asks again, more patiently; or gives up."""
        pending = self._pending.get(timer.request)
        if pending is None:
            return
        if pending.tries >= self._policy.tries_max:
            del self._pending[timer.request]
            detail = f"no answer after {pending.tries} tries"
            pending.on_failure(OperationTimeoutError.code, detail, now_us)
            return
        pending.tries += 1
        pending.wait_us = int(pending.wait_us * self._policy.backoff)
        self.retransmissions += 1
        self._outbox.send(pending.to, pending.message)
        self._outbox.set_timer(timer, now_us + pending.wait_us)
