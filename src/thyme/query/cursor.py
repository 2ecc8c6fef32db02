"""Cursor: a read position in history, ordered by time, then key.

Clauses: M17.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.time_frames import check_instant_us


class Cursor(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The read position of one object in history; inserts and deletes do not change it."""

    published_us: int
    key: Key

    def __post_init__(self) -> None:
        check_instant_us(self.published_us)


def cursor_at(metadata: Metadata) -> Cursor:
    """Returns the read position of an object."""
    return Cursor(metadata.published_us, metadata.key)
