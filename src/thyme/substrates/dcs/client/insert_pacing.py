"""Insert pacing: a node slows its inserts down while the radio channel is busy.

An insert that is answered late had to be repeated, and repeating makes a busy channel busier. After
each late answer a node waits twice as long between two inserts, after each prompt one a little
less; of inserts that were under way together, one late answer counts. Inserts wait in a queue
meanwhile; one that finds the queue full, or waits too long, is refused, so that the application
learns of it. Entry point: `InsertPacer.admit`.
Clauses: D28.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from thyme.protocol.outbox import Outbox
from thyme.substrates.dcs.config import InsertPacingConfig

_RECOVERY = 7 / 8
"""By which the interval shrinks after a prompt answer."""


class InsertPacingTimer(msgspec.Struct, frozen=True):
    """The timer of the next insert that waits."""


class _WaitingInsert(NamedTuple):
    since_us: int
    start: Callable[[int], None]
    refuse: Callable[[str, int], None]


class InsertPacer:
    """The inserts of one node that wait for the channel."""

    def __init__(self, outbox: Outbox, config: InsertPacingConfig) -> None:
        self._outbox = outbox
        self._config = config
        self._waiting: deque[_WaitingInsert] = deque()
        self._started_us = 0
        """When the latest insert was started."""
        self.interval_us = 0
        self._lengthened_us = 0
        """When the interval became longer: what was started before was not sent at this pace."""
        self.refused = 0

    def admit(
        self, start: Callable[[int], None], refuse: Callable[[str, int], None], now_us: int
    ) -> None:
        """Starts an insert, now or later, or refuses it with a reason."""
        if not self._waiting and now_us >= self._started_us + self.interval_us:
            self._started_us = now_us
            start(now_us)
        elif len(self._waiting) >= self._config.waiting_max:
            self._refuse(refuse, now_us)
        else:
            self._waiting.append(_WaitingInsert(now_us, start, refuse))
            self._set_timer(now_us)

    def on_answered(self, started_us: int, now_us: int) -> None:
        """Adapts the interval to the time that an insert took."""
        if now_us - started_us > self._config.prompt_us:
            if started_us >= self._lengthened_us:
                longer_us = max(2 * self.interval_us, self._config.interval_us_min)
                self.interval_us = min(longer_us, self._config.interval_us_max)
                self._lengthened_us = now_us
        else:
            shorter_us = int(self.interval_us * _RECOVERY)
            self.interval_us = shorter_us if shorter_us >= self._config.interval_us_min else 0
        if self._waiting:
            self._set_timer(now_us)

    def on_timer(self, now_us: int) -> None:
        """Starts the next insert; refuses those that waited too long."""
        while self._waiting:
            insert = self._waiting.popleft()
            if now_us - insert.since_us > self._config.wait_us_max:
                self._refuse(insert.refuse, now_us)
                continue
            self._started_us = now_us
            insert.start(now_us)
            break
        if self._waiting:
            self._set_timer(now_us)

    def _set_timer(self, now_us: int) -> None:
        due_us = max(now_us, self._started_us + self.interval_us)
        expiry_us = self._waiting[0].since_us + self._config.wait_us_max + 1
        self._outbox.set_timer(InsertPacingTimer(), max(now_us, min(due_us, expiry_us)))

    def _refuse(self, refuse: Callable[[str, int], None], now_us: int) -> None:
        self.refused += 1
        seconds = self.interval_us / 1e6
        refuse(f"the channel is busy: one insert in {seconds:.1f} s is sent; try later", now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._waiting) <= self._config.waiting_max
        assert self.interval_us <= self._config.interval_us_max
