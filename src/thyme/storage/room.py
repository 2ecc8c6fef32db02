"""Room: whether the disk takes more.

A node must be able to refuse before it has changed anything, for inputs share a commit and the node
goes on from what it has in memory. So a reserve is left free: objects are refused once they would
cut into it, and it serves for what must go on, such as deletes, subscriptions and the log.
What is put takes its size twice for a while, in the log and in the file. What was freed inside the
file is used again, so that deleting makes room though the file does not shrink.
Clauses: M24, M25.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

RESERVE_BYTES = 32 * 2**20
_EACH_BYTES = 4 * 2**10
"""What an object takes beside its bytes: its record, in the indexes, in pages half full."""


class Room:
    """The free space beside a store."""

    def __init__(self, directory: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._pending_bytes = 0

    def take(self, octets: int) -> None:
        """Something was put that is not committed, and so perhaps not on the disk yet."""
        self._pending_bytes += octets + _EACH_BYTES

    def taken(self) -> None:
        """It is committed."""
        self._pending_bytes = 0

    def has(self, octets: int, reusable_bytes: Callable[[], int]) -> bool:
        """Whether so many bytes more leave the reserve whole; half of it, if the file has what was
        freed to put them in, and only the log must grow."""
        disk = os.statvfs(self._directory)
        free_bytes = disk.f_bavail * disk.f_frsize
        octets += _EACH_BYTES
        need_bytes = self._pending_bytes + octets
        if free_bytes - 2 * need_bytes >= self._reserve_bytes:
            return True
        log_only = octets <= reusable_bytes()
        return log_only and free_bytes - need_bytes >= self._reserve_bytes // 2
