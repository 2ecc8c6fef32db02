"""Asks: operations that go to several cells, or to nodes in cells, until each has answered.

What `thyme.protocol.operations` does for one receiver is done here for many. One number stands for
the whole operation. Only those who did not answer are asked again; a cell answers by whoever is
there, so replies name the cell that was asked.
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
"""What to ask of whom. Those who are asked the very same share the message on its way (D9)."""
Replies = dict[To, CellReply]
OnReplies = Callable[[Replies, int], None]


class AskTimer(msgspec.Struct, frozen=True):
    """Time to ask again."""

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
    """What routing calls the messages."""


class CellAsks:
    """The operations of one node that are under way."""

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
        """Asks; one of the two functions will be called, once. The first refusal is a failure."""
        if len(self._pending) >= self._policy.under_way_max:
            detail = "too many operations under way; wait for some to end"
            on_failure(RejectedError.code, detail, now_us)
            return
        number = self._next_number
        self._next_number += 1
        asks = self._signed(make(number), now_us)
        if not asks:
            on_replies({}, now_us)
            return
        wait_us = self._policy.wait_us + self._policy.wait_us_per_kib * (data_bytes // 1024)
        wait_us = int(wait_us * patience)
        tries_max = tries_max or self._policy.tries_max
        self._pending[number] = _Pending(asks, on_replies, on_failure, wait_us, tries_max)
        self._send(number, now_us)

    def _signed(
        self, asks: Mapping[To, CellAsk | CellChore], now_us: int
    ) -> dict[To, CellAsk | CellChore]:
        """What is asked, in this node's name; what is shared stays so."""
        if self._warden is None:
            return dict(asks)
        signed = {
            id(message): self._warden.sign(message, now_us, self._routing.cell)
            for message in asks.values()
        }
        return {to: signed[id(message)] for to, message in asks.items()}

    def on_cell_reply(self, cell: CellId, reply: CellReply, now_us: int) -> None:
        """Somebody answered for a cell."""
        self._on_reply(To(cell), reply, now_us)

    def on_reply(self, sender: NodeId, reply: CellReply, now_us: int) -> None:
        """A node answered for itself."""
        pending = self._pending.get(reply.request)
        asked = () if pending is None else pending.waiting
        target = next((to for to in asked if to.node == sender), None)
        if target is None:
            self.stray_replies += 1
        else:
            self._on_reply(target, reply, now_us)

    def on_not_there(self, failure: NotThere, now_us: int) -> bool:
        """A node that was asked is gone; returns whether this was one of our messages (D8)."""
        number = self._by_sent.get(failure.number)
        if number is None:
            return False
        if To(failure.cell, failure.node) in self._pending[number].waiting:
            pending = self._end(number)
            detail = f"node {failure.node.hex()} is not in cell {failure.cell}"
            pending.on_failure(NotFoundError.code, detail, now_us)
        return True

    def on_timer(self, timer: AskTimer, now_us: int) -> None:
        """Asks those who did not answer again, more patiently; or gives up."""
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
        shared: dict[int, list[To]] = {}
        for to, message in pending.waiting.items():
            shared.setdefault(id(message), []).append(to)
        for targets in list(shared.values()):
            sent = self._routing.send(targets, pending.waiting[targets[0]], now_us)
            pending.sent.append(sent)
            self._by_sent[sent] = number

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
        for sent in pending.sent:
            del self._by_sent[sent]
        self._outbox.cancel_timer(AskTimer(number))
        return pending

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._pending) <= self._policy.under_way_max
        assert all(number in self._pending for number in self._by_sent.values())
