"""Timed content: the caches of a simulated station, with the CPU time of their batch inserts.

Clauses: I10, C29.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from thyme.substrates.infra.station.cached_content import CachedContent
from thyme.substrates.infra.station.content import Item


class TimedContent(CachedContent):
    """Caches that measure how long it takes to divide and fill the local popularity cache."""

    division_cpu_s = 0.0

    def insert_popular(self, items: Iterable[Item]) -> None:
        started_s = time.process_time()
        super().insert_popular(items)
        self.division_cpu_s += time.process_time() - started_s
