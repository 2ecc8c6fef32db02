"""Letters: one-way messages, sent once, or until their receiver says that they came.

With a single try a message goes as it is, and it is up to the link whether it arrives. With more it
goes inside a `Letter`, which the receiver answers with a `Receipt`; what a letter says is written
anew for each try, since it may no longer be true.
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
"""What a letter says at an instant; None where there is nothing to be said any more."""


class LetterTimer(msgspec.Struct, frozen=True):
    """Time to send a letter again."""

    number: int


@dataclass(slots=True)
class _Posted:
    to: NodeId
    write: Write
    tries: int
    wait_us: int


class Letters:
    """The letters of one node that are under way."""

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
        """Sends a message to one node."""
        if self._policy.tries_max == 1 or len(self._posted) >= self._policy.under_way_max:
            if (message := write(now_us)) is not None:
                self._outbox.send(to, message)
            return
        number = self._next_number
        self._next_number += 1
        self._posted[number] = _Posted(to, write, 1, self._policy.wait_us)
        self._send(number, now_us)

    def on_letter(self, sender: NodeId, letter: Letter) -> Message:
        """Says that a letter came; returns what it says."""
        self._outbox.send(sender, Receipt(letter.number))
        return letter.message

    def on_receipt(self, sender: NodeId, receipt: Receipt) -> None:
        """The letter came: no need to send it again."""
        posted = self._posted.get(receipt.number)
        if posted is not None and posted.to == sender:
            del self._posted[receipt.number]
            self._outbox.cancel_timer(LetterTimer(receipt.number))

    def on_timer(self, timer: LetterTimer, now_us: int) -> None:
        """Sends again, more patiently; or gives up."""
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
        """Asserts what must hold between any two inputs."""
        assert len(self._posted) <= self._policy.under_way_max
