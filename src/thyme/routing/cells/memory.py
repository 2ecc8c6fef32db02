"""Memory: what a node was told already, bounded in time and number."""

from __future__ import annotations

from collections.abc import Hashable

from thyme.routing.cells.config import CellsConfig


class Memory:
    """Names of what was told, oldest first."""

    def __init__(self, config: CellsConfig) -> None:
        self._config = config
        self._until_us: dict[Hashable, int] = {}

    def is_new(self, name: Hashable, now_us: int) -> bool:
        """Whether a name was not met lately; from now on it was."""
        if name in self._until_us:
            return False
        self._until_us[name] = now_us + self._config.memory_us
        if len(self._until_us) > self._config.memory_max:
            del self._until_us[next(iter(self._until_us))]
        return True

    def expire(self, now_us: int) -> None:
        """Forgets what was told long ago."""
        while self._until_us:
            oldest = next(iter(self._until_us))
            if self._until_us[oldest] > now_us:
                return
            del self._until_us[oldest]

    def __len__(self) -> int:
        return len(self._until_us)
