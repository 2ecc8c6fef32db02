"""Digest timing: when a node broadcasts the digest of its subscriptions.

Entry point: `DigestTiming`. The method is Trickle (RFC 6206): in each interval a node broadcasts
once, at a random instant of its second half, unless it received the same from some neighbours. The
interval doubles while nothing differs, and is short again after a difference.
Clause: L5. Decision: docs/decisions/0073-compared-subscriptions.md.
"""

from __future__ import annotations

from random import Random

import msgspec

from thyme.protocol.outbox import Outbox


class DigestTimer(msgspec.Struct, frozen=True):
    """Timer at which a node broadcasts its digest, or at which the interval ends."""


class DigestTiming:
    """The intervals of one node."""

    def __init__(
        self, outbox: Outbox, rng: Random, shortest_us: int, longest_us: int, redundant: int
    ) -> None:
        """With `redundant` equal digests of neighbours in an interval the node sends none."""
        self._outbox = outbox
        self._rng = rng
        self._shortest_us = shortest_us
        self._longest_us = longest_us
        self._redundant = redundant
        self.interval_us = shortest_us
        self._ends_us = 0
        self._equal = 0
        self._is_due = False

    def start(self, now_us: int) -> None:
        """Begins with the shortest interval."""
        self._begin(self._shortest_us, now_us)

    def count_equal(self) -> None:
        """Counts a digest of a neighbour that is the node's own."""
        self._equal += 1

    def shorten(self, now_us: int) -> None:
        """Returns to the shortest interval, because subscriptions or neighbours have changed."""
        if self.interval_us > self._shortest_us:
            self._begin(self._shortest_us, now_us)

    def on_timer(self, now_us: int) -> bool:
        """Returns whether the digest is to be sent now."""
        if self._is_due:
            self._is_due = False
            self._outbox.set_timer(DigestTimer(), self._ends_us)
            return self._equal < self._redundant
        self._begin(min(2 * self.interval_us, self._longest_us), now_us)
        return False

    def _begin(self, interval_us: int, now_us: int) -> None:
        self.interval_us = interval_us
        self._ends_us = now_us + interval_us
        self._equal = 0
        self._is_due = True
        wait_us = interval_us // 2 + self._rng.randrange(interval_us - interval_us // 2)
        self._outbox.set_timer(DigestTimer(), now_us + wait_us)
