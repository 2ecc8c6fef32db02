"""Settings of event memories: their size, the shares of MobUser's lists, and a full memory's rule.

Entry points: `ListSizes`, `WhenFull`. Apart from `event_memory` because mypyc cannot compile
records.
Clauses: U6, U7.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from thyme.model.errors import OptionError

MEMORY_EVENTS = 20
"""The number of foreign events a device keeps, in all protocols of the MobUser paper."""


class ListSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of MobUser: the number of events, and the shares of the three lists (U6)."""

    memory_events: int = MEMORY_EVENTS
    recent_share: float = 0.7
    irrelevant_share: float = 0.1
    memory_bytes: int | None = None
    """Limit of the bytes of foreign events; each list has its share of it. None: no limit."""

    def __post_init__(self) -> None:
        if not 1 <= self.memory_events <= 1_000_000:
            raise OptionError(f"a memory has 1 to 1,000,000 events, not {self.memory_events}")
        if self.memory_bytes is not None and self.memory_bytes < 1:
            raise OptionError(f"a memory has at least 1 byte, not {self.memory_bytes}")
        shares = self.recent_share, self.irrelevant_share
        if not (min(shares) >= 0 and sum(shares) <= 1 + 1e-9):
            raise OptionError(
                "the recent and the irrelevant list have shares of at least 0, together at most 1, "
                f"not {self.recent_share} and {self.irrelevant_share}"
            )

    @property
    def recent(self) -> int:
        """Capacity of the recent list."""
        return min(round(self.memory_events * self.recent_share), self.memory_events)

    @property
    def irrelevant(self) -> int:
        """Capacity of the irrelevant list."""
        return min(
            round(self.memory_events * self.irrelevant_share), self.memory_events - self.recent
        )

    @property
    def popular(self) -> int:
        """Capacity of the popular list: the rest of the memory."""
        return self.memory_events - self.recent - self.irrelevant

    def bytes_of(self, events: int) -> int | None:
        """The share of the bytes for a list with this capacity; None: no limit."""
        return (
            None if self.memory_bytes is None else self.memory_bytes * events // self.memory_events
        )


class WhenFull(Enum):
    """What a rival of MobUser does with an event that reaches a full memory."""

    REFUSE = "refuse"
    """The memory takes no more events: the MobUser paper says that rivals store events until
    their memory is full, and that their reliability suffers from it."""
    REPLACE = "replace"
    """The event that was added longest ago makes place, as in the lists of MobUser."""
