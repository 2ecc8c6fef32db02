"""Reliable send: one-way messages that are repeated until the receiver acknowledges them.

Entry point: `ReliableSender.send`. If the policy allows one try only, the message is sent plainly.
Otherwise it is sent inside a `ReliableMessage`, which the receiver answers with a `ReliableAck`.
The content is made anew for each try because it may be out of date. Requests with a reply are sent
by `request_tracker`.
Clauses: L4, M23, M34.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages.common import Message, ReliableAck, ReliableMessage
from thyme.protocol.outbox import Outbox
from thyme.protocol.retry import RetryPolicy, RetryState

MakeMessage = Callable[[int], Message | None]
"""Returns the content of a message at an instant; None if it is no longer needed."""
OnSettled = Callable[[bool, int], None]
"""Called once, at an instant: whether a message was acknowledged or is no longer needed, rather
than given up."""


def _ignore(_settled: bool, _now_us: int) -> None:
    """The default `OnSettled`."""


class ResendTimer(msgspec.Struct, frozen=True, gc=False):
    """Time to send a message again."""

    number: int


@dataclass(slots=True)
class _PendingSend:
    to: NodeId
    make_message: MakeMessage
    retries: RetryState
    on_settled: OnSettled


class ReliableSender:
    """The unacknowledged messages of one node."""

    def __init__(
        self,
        outbox: Outbox,
        policy: RetryPolicy,
        rng: Random,
        on_given_up: Callable[[NodeId], None] = lambda to: None,
    ) -> None:
        """`on_given_up` receives the node that did not acknowledge a message."""
        self._on_given_up = on_given_up
        self._outbox = outbox
        self._policy = policy
        self._next_number = rng.getrandbits(48)
        self._pending: dict[int, _PendingSend] = {}
        self.retransmissions = 0
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def is_plain(self) -> bool:
        """Whether messages are sent once, without an acknowledgement."""
        return self._policy.tries_max == 1

    def send(
        self,
        to: NodeId,
        make_message: MakeMessage,
        now_us: int,
        on_settled: OnSettled | None = None,
    ) -> None:
        """Sends a message to one node, repeatedly if the policy says so.

        If too many messages are pending, a message with `on_settled` is given up, another one is
        sent once.
        """
        if on_settled is not None and len(self._pending) >= self._policy.pending_max:
            self.given_up += 1
            on_settled(False, now_us)
            return
        if self._policy.tries_max == 1 or len(self._pending) >= self._policy.pending_max:
            if (message := make_message(now_us)) is not None:
                self._outbox.send(to, message)
            return
        number = self._next_number
        self._next_number += 1
        policy = self._policy
        retries = RetryState(policy.tries_max, policy.first_wait_us(), policy.backoff)
        self._pending[number] = _PendingSend(to, make_message, retries, on_settled or _ignore)
        self._send(number, now_us)

    def on_message(self, sender: NodeId, message: ReliableMessage) -> Message:
        """Acknowledges a received message; returns its content."""
        self._outbox.send(sender, ReliableAck(message.number))
        return message.message

    def on_ack(self, sender: NodeId, ack: ReliableAck, now_us: int) -> None:
        """Stops repeating the message that the receiver acknowledged."""
        pending = self._pending.get(ack.number)
        if pending is not None and pending.to == sender:
            del self._pending[ack.number]
            self._outbox.cancel_timer(ResendTimer(ack.number))
            pending.on_settled(True, now_us)

    def on_timer(self, timer: ResendTimer, now_us: int) -> None:
        """Sends a message again with a longer wait, or gives up after the last try."""
        pending = self._pending.get(timer.number)
        if pending is None:
            return
        if pending.retries.is_exhausted:
            del self._pending[timer.number]
            self.given_up += 1
            self._on_given_up(pending.to)
            pending.on_settled(False, now_us)
            return
        self.retransmissions += 1
        self._send(timer.number, now_us)

    def _send(self, number: int, now_us: int) -> None:
        pending = self._pending[number]
        message = pending.make_message(now_us)
        if message is None:
            del self._pending[number]
            pending.on_settled(True, now_us)
            return
        self._outbox.send(pending.to, ReliableMessage(number, message))
        self._outbox.set_timer(ResendTimer(number), pending.retries.count_try(now_us))

    def check(self) -> None:
        """Asserts the invariants that hold between two inputs."""
        assert len(self._pending) <= self._policy.pending_max
