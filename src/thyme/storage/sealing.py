"""Checksums: a CRC-32 before every record, because SQLite does not detect changed bytes on disk.

The checksum also covers the names of table and key, so that records cannot be confused.
Clauses: M25.
"""

from __future__ import annotations

import sqlite3
from typing import TypeVar
from zlib import crc32

from thyme.storage.store import Shelf

SEAL_BYTES = 4
R = TypeVar("R")


def sealed(shelf: Shelf[R], key: str, record: bytes) -> bytes:
    """Returns a record preceded by its checksum."""
    checksum = crc32(record, crc32(f"{shelf.name}\0{key}".encode()))
    return checksum.to_bytes(SEAL_BYTES, "big") + record


def opened(shelf: Shelf[R], key: str, value: object) -> bytes:
    """Returns the record of a stored value; raises `DatabaseError` if the checksum is wrong."""
    if not isinstance(value, bytes) or value != sealed(shelf, key, value[SEAL_BYTES:]):
        raise sqlite3.DatabaseError(f"record {key!r} in table {shelf.name!r} is damaged")
    return value[SEAL_BYTES:]
