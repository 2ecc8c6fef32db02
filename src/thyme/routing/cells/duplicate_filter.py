"""Duplicate filter: recognises messages that a node has already processed.

Entry point: `DuplicateFilter`, used by `geographic`. Bounded in time and number.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Final

from thyme.model.time_frames import SECOND_US
from thyme.routing.cells.config import CellRoutingConfig

_REMEMBER_US: Final = 60 * SECOND_US
"""How long a message is remembered."""


class DuplicateFilter:
    """Keys of processed messages, oldest first."""

    def __init__(self, config: CellRoutingConfig) -> None:
        self._config = config
        # In a plain dict of this size it takes microseconds to find the oldest key.
        self._until_us: OrderedDict[Hashable, int] = OrderedDict()

    def add_if_new(self, key: Hashable, now_us: int) -> bool:
        """Adds a key; returns False if the filter already has it."""
        if key in self._until_us:
            return False
        self._until_us[key] = now_us + _REMEMBER_US
        if len(self._until_us) > self._config.seen_max:
            self._until_us.popitem(last=False)
        return True

    def expire(self, now_us: int) -> None:
        """Removes expired keys."""
        while self._until_us:
            oldest = next(iter(self._until_us))
            if self._until_us[oldest] > now_us:
                return
            del self._until_us[oldest]

    def __len__(self) -> int:
        return len(self._until_us)
