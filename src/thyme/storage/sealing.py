"""Sealing: a checksum before every record, for SQLite does not notice bytes that changed on the
disk. It covers the shelf and the key too, so that a record cannot be taken for another (M25).
"""

from __future__ import annotations

import sqlite3
from typing import TypeVar
from zlib import crc32

from thyme.storage.store import Shelf

SEAL_BYTES = 4
R = TypeVar("R")


def sealed(shelf: Shelf[R], key: str, record: bytes) -> bytes:
    """A record behind its checksum."""
    checksum = crc32(record, crc32(f"{shelf.name}\0{key}".encode()))
    return checksum.to_bytes(SEAL_BYTES, "big") + record


def opened(shelf: Shelf[R], key: str, value: object) -> bytes:
    """The record behind a checksum that fits."""
    if not isinstance(value, bytes) or value != sealed(shelf, key, value[SEAL_BYTES:]):
        raise sqlite3.DatabaseError(f"record {key!r} on shelf {shelf.name!r} is damaged")
    return value[SEAL_BYTES:]
