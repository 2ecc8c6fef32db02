"""Checksums: a CRC-32 before every record, because SQLite does not detect changed bytes on disk.

The checksum also covers the names of table and key, so that records cannot be confused.
Clauses: M25.
"""

from __future__ import annotations

import sqlite3
from typing import TypeVar
from zlib import crc32

from thyme.storage.store import RecordTable

CHECKSUM_BYTES = 4
R = TypeVar("R")


def add_checksum(table: RecordTable[R], key: str, record: bytes) -> bytes:
    """Returns a record preceded by its checksum."""
    checksum = crc32(record, crc32(f"{table.name}\0{key}".encode()))
    return checksum.to_bytes(CHECKSUM_BYTES, "big") + record


def strip_checksum(table: RecordTable[R], key: str, value: object) -> bytes:
    """Returns the record of a stored value; raises `DatabaseError` if the checksum is wrong."""
    if not isinstance(value, bytes) or value != add_checksum(table, key, value[CHECKSUM_BYTES:]):
        raise sqlite3.DatabaseError(f"record {key!r} in table {table.name!r} is damaged")
    return value[CHECKSUM_BYTES:]
