"""Segments: append-only event files that appear complete, as streaming readers need them.

Entry points: `SegmentWriter`, `recover_segments`. A writer appends to a hidden file, `.NAME`, and
renames it to `NAME` when it is large or old enough: a visible segment never changes. A crash leaves
a hidden file; the next writer in the folder keeps its complete lines as a segment and sets the rest
aside as `_NAME.bad`. Writing never raises an error of the disk: events that do not fit are dropped
and counted, and their numbers are missing in the segments. A writer removes its node's oldest
segments above a size limit.
Clause: P9.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import msgspec

from thyme.events.event import DECODE_ERRORS, decode_event
from thyme.model.errors import OptionError, safe_repr

SUFFIX = ".jsonl"
_WRITER = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}")
_BLOCK_BYTES = 4096
"""The least space that a file takes."""


class SegmentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes and ages of segments."""

    segment_bytes_max: int = 8 * 2**20
    """A segment of this size is closed."""
    segment_age_s_max: float = 1.0
    """A segment of this age is closed."""
    total_bytes_max: int = 256 * 2**20
    """Above this total size of a node's segments, the oldest are removed."""
    reserve_bytes: int = 64 * 2**20
    """Events are dropped while the disk has less free space: the node's store needs it more."""


class EventStats(msgspec.Struct, kw_only=True):
    """Counts of a writer, for status and metrics."""

    written: int = 0
    """Events in segments."""
    dropped: int = 0
    """Events lost because the disk was full or the queue was."""
    segments: int = 0
    removed: int = 0
    """Segments removed above the size limit."""
    recovered: int = 0
    """Segments recovered from a crashed writer."""
    set_aside: int = 0
    """Half-written events of crashed writers, kept in files `_*.bad`."""


class SegmentWriter:
    """Writes encoded events to the segments of one writer."""

    def __init__(
        self, folder: Path, writer: str, config: SegmentConfig | None = None, *, family: str = ""
    ) -> None:
        """`family` is the prefix of all writers whose old segments this one may remove."""
        if not _WRITER.fullmatch(writer) or not writer.startswith(family):
            raise OptionError(f"a writer has letters, digits, - and _, not {safe_repr(writer)}")
        self.writer = writer
        self.stats = EventStats()
        self._folder = folder
        self._config = config or SegmentConfig()
        self._number = 0
        self._file: IO[bytes] | None = None
        self._bytes = 0
        self._opened_s = 0.0
        _make_folder(folder)
        recover_segments(folder, self.stats)
        self._closed = deque(_segments_of(folder, family or writer))
        self._closed_bytes = sum(size for _, size in self._closed)

    def write(self, lines: Sequence[bytes], now_s: float) -> None:
        """Appends encoded events; closes the segment if it is large or old enough."""
        if lines and not self._append(b"".join(line + b"\n" for line in lines), now_s):
            self.stats.dropped += len(lines)
        elif lines:
            self.stats.written += len(lines)
        self.close_if_due(now_s)

    def close_if_due(self, now_s: float) -> None:
        """Closes the segment if it is large or old enough."""
        if self._file is not None and (
            self._bytes >= self._config.segment_bytes_max
            or now_s - self._opened_s >= self._config.segment_age_s_max
        ):
            self.close()

    def close(self) -> None:
        """Makes the open segment visible."""
        file, self._file = self._file, None
        if file is None:
            return
        path = Path(file.name)
        try:
            with file:
                visible = path.with_name(path.name.removeprefix("."))
                path.rename(visible)
        except OSError:  # the folder is gone; the next segment makes it again
            return
        self.stats.segments += 1
        self._closed.append((visible, _disk_bytes(self._bytes)))
        self._closed_bytes += _disk_bytes(self._bytes)
        self._remove_oldest()

    def _append(self, data: bytes, now_s: float) -> bool:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._has_space(len(data)):
                return False
            if self._file is None:
                self._file = self._open_segment()
                self._opened_s = now_s
            if self._file.write(data) < len(data):
                raise OSError(errno.ENOSPC, "the disk is full")
        except OSError:
            self._cut_partial_write()
            return False
        self._bytes += len(data)
        return True

    def _has_space(self, size: int) -> bool:
        disk = os.statvfs(self._folder)
        return disk.f_bavail * disk.f_frsize >= self._config.reserve_bytes + size

    def _open_segment(self) -> IO[bytes]:
        self._number += 1
        path = self._folder / f".{self.writer}-{self._number:08d}{SUFFIX}"
        file = path.open("xb", buffering=0)
        # The lock tells other processes that the writer lives; it ends with the process.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._bytes = 0
        return file

    def _cut_partial_write(self) -> None:
        """Removes the part of a failed write, so that the segment ends with a complete line."""
        if self._file is not None:
            try:
                self._file.truncate(self._bytes)
                self._file.seek(self._bytes)
            except OSError:
                self._file.close()
                self._file = None

    def _remove_oldest(self) -> None:
        while self._closed_bytes > self._config.total_bytes_max and len(self._closed) > 1:
            path, size = self._closed.popleft()
            self._closed_bytes -= size
            try:
                path.unlink(missing_ok=True)
            except OSError:
                continue
            self.stats.removed += 1


def recover_segments(folder: Path, stats: EventStats) -> None:
    """Makes the hidden files of crashed writers visible, up to their last complete event."""
    for path in sorted(folder.glob(f".*{SUFFIX}")):
        try:
            with path.open("r+b") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _recover(path, file, stats)
        except OSError:
            continue  # its writer lives, or it is not ours to change


def _recover(path: Path, file: IO[bytes], stats: EventStats) -> None:
    data = file.read()
    good = complete_bytes(data)
    name = path.name.removeprefix(".")
    if good < len(data):
        path.with_name(f"_{name}.bad").write_bytes(data[good:])
        stats.set_aside += 1
        file.truncate(good)
    if good:
        path.rename(path.with_name(name))
        stats.recovered += 1
    else:
        path.unlink()


def complete_bytes(data: bytes) -> int:
    """The number of bytes at the start of `data` that are complete events, one per line."""
    good = 0
    while (end := data.find(b"\n", good)) >= 0:
        try:
            decode_event(data[good:end])
        except DECODE_ERRORS:
            break
        good = end + 1
    return good


def _segments_of(folder: Path, family: str) -> list[tuple[Path, int]]:
    """The visible segments of a family of writers with their sizes, oldest first."""
    found = []
    for path in folder.glob(f"{family}*{SUFFIX}"):
        try:
            facts = path.stat()
        except OSError:
            continue
        found.append((facts.st_mtime_ns, path, _disk_bytes(facts.st_size)))
    return [(path, size) for _, path, size in sorted(found)]


def _disk_bytes(size: int) -> int:
    return -(-max(size, 1) // _BLOCK_BYTES) * _BLOCK_BYTES


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OptionError(f"events cannot be written to {folder}: {error.strerror}") from error
