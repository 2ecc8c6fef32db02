"""Cell requests: operations sent to several cells or nodes, and retried until each has replied.

Entry point: `CellRequests.send_requests`. `thyme.protocol.request_tracker` does the same for one
receiver. One request id stands for the whole operation, and only receivers without a reply are sent
the request again. Any node of a cell may reply, so a reply names the cell that was addressed.
Clauses: D11, D19, B5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

import msgspec

from thyme.model.errors import NotFoundError, OperationTimeoutError, RejectedError
from thyme.model.ids import NodeId, RequestNumber
from thyme.protocol.cell_messages import CellChore
from thyme.protocol.cells import CellId
from thyme.protocol.messages import CellAsk, CellReply, Refused
from thyme.protocol.operations import RetryPolicy
from thyme.protocol.outbox import Outbox
from thyme.protocol.warden import Warden
from thyme.routing.cells import CellRouting, NotThere, To
from thyme.substrates.brokers import OnEnd

Make = Callable[[RequestNumber], Mapping[To, CellAsk | CellChore]]
"""Makes the messages of an operation by destination. Destinations with the same message object
share one packet (D9)."""
Replies = dict[To, CellReply]
OnReplies = Callable[[Replies, int], None]


class AskTimer(msgspec.Struct, frozen=True):
    """The timer at which a request is sent again."""

    request: RequestNumber


@dataclass(slots=True)
class _Pending:
    waiting: dict[To, CellAsk | CellChore]
    on_replies: OnReplies
    on_failure: OnEnd
    wait_us: int
    tries_max: int
    tries: int = 0
    replies: Replies = field(default_factory=dict)
    sent: list[int] = field(default_factory=list)
    """The numbers that routing assigned to the messages."""


class CellAsks:
    """The pending operations of one node."""

    def __init__(
        self,
        routing: CellRouting,
        outbox: Outbox,
        policy: RetryPolicy,
        rng: Random,
        warden: Warden | None = None,
    ) -> None:
        self._warden = warden
        self._routing = routing
        self._outbox = outbox
        self._policy = policy
        self._next_number = rng.getrandbits(32)
        self._pending: dict[RequestNumber, _Pending] = {}
        self._by_sent: dict[int, RequestNumber] = {}
        self.retransmissions = 0
        self.stray_replies = 0

    def __len__(self) -> int:
        return len(self._pending)

    def start(
        self,
        make: Make,
        now_us: int,
        on_replies: OnReplies,
        on_failure: OnEnd,
        *,
        data_bytes: int = 0,
        tries_max: int | None = None,
        patience: float = 1.0,
    ) -> None:
        """Sends the requests; exactly one of the two callbacks is called, once. The first refusal
        fails the operation."""
        if len(self._pending) >= self._policy.under_way_max:
            detail = "too many operations under way; wait for some to end"
            on_failure(RejectedError.code, detail, now_us)
            return
        request_id = self._next_number
        self._next_number += 1
        messages = self._signed(make(request_id), now_us)
        if not messages:
            on_replies({}, now_us)
            return
        wait_us = self._policy.wait_us + self._policy.wait_us_per_kib * (data_bytes // 1024)
        wait_us = int(wait_us * patience)
        tries_max = tries_max or self._policy.tries_max
        self._pending[request_id] = _Pending(messages, on_replies, on_failure, wait_us, tries_max)
        self._send(request_id, now_us)

    def _signed(
        self, asks: Mapping[To, CellAsk | CellChore], now_us: int
    ) -> dict[To, CellAsk | CellChore]:
        """The messages signed by this node; destinations that share a message still share it."""
        if self._warden is None:
            return dict(asks)
        signed = {
            id(message): self._warden.sign(message, now_us, self._routing.cell)
            for message in asks.values()
        }
        return {to: signed[id(message)] for to, message in asks.items()}

    def on_cell_reply(self, cell: CellId, reply: CellReply, now_us: int) -> None:
        """Handles a reply on behalf of a cell."""
        self._on_reply(To(cell), reply, now_us)

    def on_reply(self, sender: NodeId, reply: CellReply, now_us: int) -> None:
        """Handles a reply of a single node."""
        pending = self._pending.get(reply.request)
        unanswered = () if pending is None else pending.waiting
        target = next((to for to in unanswered if to.node == sender), None)
        if target is None:
            self.stray_replies += 1
        else:
            self._on_reply(target, reply, now_us)

    def on_not_there(self, failure: NotThere, now_us: int) -> bool:
        """Fails the operation whose addressed node is not in its cell; returns whether the message
        was a pending request (D8)."""
        request_id = self._by_sent.get(failure.number)
        if request_id is None:
            return False
        if To(failure.cell, failure.node) in self._pending[request_id].waiting:
            pending = self._end(request_id)
            detail = f"node {failure.node.hex()} is not in cell {failure.cell}"
            pending.on_failure(NotFoundError.code, detail, now_us)
        return True

    def on_timer(self, timer: AskTimer, now_us: int) -> None:
        """Sends the request again to the destinations that did not reply, with a longer timeout, or
        fails the operation."""
        pending = self._pending.get(timer.request)
        if pending is None:
            return
        if pending.tries >= pending.tries_max:
            self._end(timer.request)
            cells = ", ".join(str(to.cell) for to in pending.waiting)
            detail = f"no answer from cell {cells} after {pending.tries} tries"
            pending.on_failure(OperationTimeoutError.code, detail, now_us)
            return
        pending.wait_us = int(pending.wait_us * self._policy.backoff)
        self.retransmissions += 1
        self._send(timer.request, now_us)

    def _send(self, number: RequestNumber, now_us: int) -> None:
        pending = self._pending[number]
        pending.tries += 1
        self._outbox.set_timer(AskTimer(number), now_us + pending.wait_us)
        targets_by_message: dict[int, list[To]] = {}
        for to, message in pending.waiting.items():
            targets_by_message.setdefault(id(message), []).append(to)
        for targets in list(targets_by_message.values()):
            packet_number = self._routing.send(targets, pending.waiting[targets[0]], now_us)
            pending.sent.append(packet_number)
            self._by_sent[packet_number] = number

    def _on_reply(self, to: To, reply: CellReply, now_us: int) -> None:
        pending = self._pending.get(reply.request)
        if pending is None or pending.waiting.pop(to, None) is None:
            self.stray_replies += 1
            return
        pending.replies[to] = reply
        if isinstance(reply, Refused):
            self._end(reply.request)
            pending.on_failure(reply.code, reply.detail, now_us)
        elif not pending.waiting:
            self._end(reply.request)
            pending.on_replies(pending.replies, now_us)

    def _end(self, number: RequestNumber) -> _Pending:
        pending = self._pending.pop(number)
        for packet_number in pending.sent:
            del self._by_sent[packet_number]
        self._outbox.cancel_timer(AskTimer(number))
        return pending

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._pending) <= self._policy.under_way_max
        assert all(request_id in self._pending for request_id in self._by_sent.values())
