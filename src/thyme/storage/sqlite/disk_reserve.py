"""Disk reserve: decides whether the disk has enough free space for another object.

Entry point: `DiskReserve.fits`. A node must reject an object before it changes any state, because
inputs share a commit and the node continues with its state in memory. Therefore part of the disk is
kept free: objects that would use it are rejected; deletes, subscriptions and the log may use it.
New data takes its size twice for a while, in the log and in the file. Pages freed inside the file
are reused, so deleting frees space although the file does not shrink.
Clauses: M24, M25.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

RESERVE_BYTES = 32 * 2**20
_OVERHEAD_BYTES = 4 * 2**10
"""Overhead of an object: its record, index entries, and half-filled pages."""


class DiskReserve:
    """The free disk space of a store's directory, minus a reserve."""

    def __init__(self, directory: Path, reserve_bytes: int = RESERVE_BYTES) -> None:
        self._directory = directory
        self._reserve_bytes = reserve_bytes
        self._pending_bytes = 0
        self._free_bytes: int | None = None
        """The free bytes of the disk when it was last asked, since the last commit."""

    def add_pending(self, size_bytes: int) -> None:
        """Counts uncommitted data, which may not be on the disk yet."""
        self._pending_bytes += size_bytes + _OVERHEAD_BYTES

    def clear_pending(self) -> None:
        """Resets the uncommitted data after a commit."""
        self._pending_bytes = 0
        self._free_bytes = None

    def fits(self, size_bytes: int, reusable_bytes: Callable[[], int]) -> bool:
        """Whether new data leaves the reserve free; half of the reserve, if the data fits into free
        pages of the file and only the log grows."""
        if self._free_bytes is None:
            disk = os.statvfs(self._directory)
            self._free_bytes = disk.f_bavail * disk.f_frsize
        free_bytes = self._free_bytes
        need_bytes = self._pending_bytes + size_bytes + _OVERHEAD_BYTES
        if free_bytes - 2 * need_bytes >= self._reserve_bytes:
            return True
        reusable = reusable_bytes()
        # An object of the same size frees less: its record and its ends share pages with others.
        log_only = size_bytes <= reusable + min(reusable, _OVERHEAD_BYTES)
        return log_only and free_bytes - need_bytes >= self._reserve_bytes // 2
