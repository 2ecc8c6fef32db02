"""Freed memory: goes back to the system after incomplete messages took much of it.

Entry point: `FreedMemory.update`. The C library keeps what Python frees for later; after an attack
by messages that never complete that is as much as they may take together. It is given back when
they are gone for some time, not between the long messages of an honest neighbour.
Clauses: B5.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from thyme.transport.link_config import SECOND_US

WORTH_BYTES = 4 * 2**20
"""Less than this is kept for later."""
GONE_US = 5 * SECOND_US
"""The bytes have to be gone for so long."""


def trim_heap() -> None:
    """Lets the C library give back free memory; without effect where it cannot."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        return  # another C library than that of GNU


class FreedMemory:
    """Watches the bytes of incomplete messages of one node."""

    def __init__(self, give_back: Callable[[], None] = trim_heap) -> None:
        self._give_back = give_back
        self._most_bytes = 0
        self._gone_since_us: int | None = None

    def update(self, stored_bytes: int, now_us: int) -> None:
        """Notes how much is stored now; gives memory back if it was much and has been little since
        some time."""
        if stored_bytes > self._most_bytes // 4:
            self._most_bytes = max(self._most_bytes, stored_bytes)
            self._gone_since_us = None
        elif self._gone_since_us is None:
            self._gone_since_us = now_us
        elif now_us - self._gone_since_us >= GONE_US:
            if self._most_bytes >= WORTH_BYTES:
                self._give_back()
            self._most_bytes = stored_bytes
            self._gone_since_us = None
