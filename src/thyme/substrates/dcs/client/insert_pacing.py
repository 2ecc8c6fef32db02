"""Insert pacing: a node slows its inserts down while the radio channel is busy.

An insert that is answered late had to be repeated, and repeating makes a busy channel busier. After
each late answer a node waits twice as long between two inserts, after each prompt one a little
less; of inserts that were under way together, one late answer counts. The first wait is twice the
time between the latest inserts, so that an application with many of them is slowed down, and not
stopped, when a single message is lost. Inserts wait in a queue meanwhile; one that finds the queue
full, or waits too long, is refused, so that the application learns of it.
Entry point: `InsertPacer.admit`.
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
_SOON_MAX = 1_000
"""How many inserts may wait at most if the last of them starts soon."""
_LATEST = 16
"""The number of inserts whose mean interval is the usual one."""


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
        self._latest_us: deque[int] = deque(maxlen=_LATEST)
        """When the latest inserts were started."""
        self._shortest_us = 0
        """The first wait of the busy time; a shorter one ends it."""
        self.interval_us = 0
        self._lengthened_us = 0
        """When the interval became longer: what was started before was not sent at this pace."""
        self.refused = 0

    def admit(
        self, start: Callable[[int], None], refuse: Callable[[str, int], None], now_us: int
    ) -> None:
        """Starts an insert, now or later, or refuses it with a reason."""
        if not self._waiting and now_us >= self._due_us():
            self._latest_us.append(now_us)
            start(now_us)
        elif self._is_full():
            self._refuse(refuse, now_us)
        else:
            self._waiting.append(_WaitingInsert(now_us, start, refuse))
            self._set_timer(now_us)

    def on_answered(self, started_us: int, now_us: int) -> None:
        """Adapts the interval to the time that an insert took."""
        if now_us - started_us > self._config.prompt_us:
            if started_us >= self._lengthened_us:
                if not self.interval_us:
                    self._shortest_us = self._first_interval_us(now_us)
                longer_us = max(2 * self.interval_us, self._shortest_us)
                self.interval_us = min(longer_us, self._config.interval_us_max)
                self._lengthened_us = now_us
        else:
            shorter_us = int(self.interval_us * _RECOVERY)
            self.interval_us = shorter_us if shorter_us >= self._shortest_us else 0
        if self._waiting:
            self._set_timer(now_us)

    def on_timer(self, now_us: int) -> None:
        """Starts the next insert; refuses those that waited too long."""
        while self._waiting:
            insert = self._waiting.popleft()
            if now_us - insert.since_us > self._config.wait_us_max:
                self._refuse(insert.refuse, now_us)
                continue
            self._latest_us.append(now_us)
            insert.start(now_us)
            break
        if self._waiting:
            self._set_timer(now_us)

    def _set_timer(self, now_us: int) -> None:
        due_us = max(now_us, self._due_us())
        expiry_us = self._waiting[0].since_us + self._config.wait_us_max + 1
        self._outbox.set_timer(InsertPacingTimer(), max(now_us, min(due_us, expiry_us)))

    def _due_us(self) -> int:
        """When the next insert may start."""
        return (self._latest_us[-1] if self._latest_us else 0) + self.interval_us

    def _first_interval_us(self, now_us: int) -> int:
        """Twice the usual time between two inserts, within the configured bound."""
        if len(self._latest_us) < _LATEST:
            return self._config.interval_us_min
        usual_us = (now_us - self._latest_us[0]) // _LATEST
        return max(1, min(2 * usual_us, self._config.interval_us_min))

    def _is_full(self) -> bool:
        """Whether no further insert may wait: a few always may, more if their turn comes soon."""
        waiting = len(self._waiting)
        soon = waiting * self.interval_us < self._config.prompt_us
        return waiting >= (_SOON_MAX if soon else self._config.waiting_max)

    def _refuse(self, refuse: Callable[[str, int], None], now_us: int) -> None:
        self.refused += 1
        seconds = self.interval_us / 1e6
        refuse(f"the channel is busy: one insert in {seconds:.2g} s is sent; try later", now_us)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        assert len(self._waiting) <= max(self._config.waiting_max, _SOON_MAX)
        assert self.interval_us <= self._config.interval_us_max
