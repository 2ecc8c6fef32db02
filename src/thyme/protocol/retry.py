"""Retry: how often a message is sent, and how long a node waits between two tries.

Entry points: `RetryPolicy`, the settings, and `RetryState`, the tries of one message. The module
that sends the message keeps its timer and decides what a failure means. Retries happen at four
places, each against losses that the places below cannot see:

- `transport.send_window` repeats a fragment to a neighbour. It has its own rules, since its waits
  follow the measured round-trip time and it must not overload the radio.
- `routing.cells.cell_broadcast` repeats a broadcast to the nodes of a cell that did not acknowledge
  it, since a broadcast has no acknowledgement below.
- `protocol.request_tracker`, `protocol.reliable_send` and `substrates.dcs.client.cell_requests`
  repeat a message end to end, since a node on the path may fail after it accepted the message.
- `substrates.dcs.service.notification_delivery` sends notifications again until the subscriber is
  seen. It has its own rules, since it waits for a location update rather than for a reply.

Clauses: E4, D19.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from thyme.model.time_frames import SECOND_US


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for a reply, and how often to send."""

    tries_max: int = 5
    wait_us: int = SECOND_US // 2
    wait_us_per_kib: int = 4_000
    """Additional wait for large objects: their transfer time at 2 Mb/s."""
    backoff: float = 2.0
    pending_max: int = 100_000

    def first_wait_us(self, data_bytes: int = 0) -> int:
        """How long to wait after the first try, with an object of `data_bytes` in the message or
        its reply."""
        return self.wait_us + self.wait_us_per_kib * (data_bytes // 1024)


@dataclass(slots=True)
class RetryState:
    """The tries of one message: how many there were, and when the next one is due."""

    tries_max: int
    wait_us: int
    """The wait after the latest try; before the first try, the wait after that."""
    backoff: float
    tries: int = 0
    wait_us_max: int | None = None
    """The longest wait; None for no limit."""

    @property
    def is_exhausted(self) -> bool:
        """Whether there are no tries left."""
        return self.tries >= self.tries_max

    def count_try(self, now_us: int) -> int:
        """Counts a try made now; returns when the next one is due, after a longer wait than the
        one before."""
        if self.tries:
            self.wait_us = int(self.wait_us * self.backoff)
            if self.wait_us_max is not None:
                self.wait_us = min(self.wait_us, self.wait_us_max)
        self.tries += 1
        return now_us + self.wait_us
