"""Reliable send: one-way messages that are repeated until the receiver acknowledges them.

Entry point: `ReliableSender.send`. If the policy allows one try only, the message is sent plainly.
Otherwise it is sent inside a `ReliableMessage`, which the receiver answers with a `ReliableAck`.
The content is made anew for each try because it may be out of date. Requests with a reply are sent
by `request_tracker`.
Clauses: L4, M23.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import msgspec

from thyme.model.ids import NodeId
from thyme.protocol.messages import Letter, Message, Receipt
from thyme.protocol.operations import RetryPolicy
from thyme.protocol.outbox import Outbox

Write = Callable[[int], Message | None]
"""Returns the content of a message at an instant; None if it is no longer needed."""


class LetterTimer(msgspec.Struct, frozen=True):
    """Time to send a message again."""

    number: int


@dataclass(slots=True)
class _Posted:
    to: NodeId
    write: Write
    tries: int
    wait_us: int


class Letters:
    """The unacknowledged messages of one node."""

    def __init__(self, outbox: Outbox, policy: RetryPolicy, rng: Random) -> None:
        self._outbox = outbox
        self._policy = policy
        self._next_number = rng.getrandbits(48)
        self._posted: dict[int, _Posted] = {}
        self.retransmissions = 0
        self.given_up = 0

    def __len__(self) -> int:
        return len(self._posted)

    def post(self, to: NodeId, write: Write, now_us: int) -> None:
        """Sends a message to one node, repeatedly if the policy says so."""
        if self._policy.tries_max == 1 or len(self._posted) >= self._policy.under_way_max:
            if (message := write(now_us)) is not None:
                self._outbox.send(to, message)
            return
        number = self._next_number
        self._next_number += 1
        self._posted[number] = _Posted(to, write, 1, self._policy.wait_us)
        self._send(number, now_us)

    def on_letter(self, sender: NodeId, letter: Letter) -> Message:
        """Acknowledges a received message; returns its content."""
        self._outbox.send(sender, Receipt(letter.number))
        return letter.message

    def on_receipt(self, sender: NodeId, receipt: Receipt) -> None:
        """Stops repeating the message that the receiver acknowledged."""
        posted = self._posted.get(receipt.number)
        if posted is not None and posted.to == sender:
            del self._posted[receipt.number]
            self._outbox.cancel_timer(LetterTimer(receipt.number))

    def on_timer(self, timer: LetterTimer, now_us: int) -> None:
        """Sends a message again with a longer wait, or gives up after the last try."""
        posted = self._posted.get(timer.number)
        if posted is None:
            return
        if posted.tries >= self._policy.tries_max:
            del self._posted[timer.number]
            self.given_up += 1
            return
        posted.tries += 1
        posted.wait_us = int(posted.wait_us * self._policy.backoff)
        self.retransmissions += 1
        self._send(timer.number, now_us)

    def _send(self, number: int, now_us: int) -> None:
        posted = self._posted[number]
        message = posted.write(now_us)
        if message is None:
            del self._posted[number]
            return
        self._outbox.send(posted.to, Letter(number, message))
        self._outbox.set_timer(LetterTimer(number), now_us + posted.wait_us)

    def check(self) -> None:
        """Asserts the invariants that hold between two inputs."""
        assert len(self._posted) <= self._policy.under_way_max
