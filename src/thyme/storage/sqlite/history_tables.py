"""History tables: reads and writes the chunks of the history archive in an SQLite file.

Entry point: `HistoryTables`. Every value has a checksum, as records have. `history_archive` decides
which objects are in which chunk.
Clauses: M24, M25.
"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any, Protocol

import msgspec

from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.tags import Tag
from thyme.storage.sqlite.checksums import add_checksum, strip_checksum
from thyme.storage.sqlite.history_chunk import (
    ChunkSlots,
    ChunkSummary,
    NumberedObject,
    StoredSlots,
    TagBits,
    decode_posting,
    encode_postings,
    encode_slots,
)
from thyme.storage.store import RecordTable

SLOTS_CACHED_MAX = 32
"""The number of chunks whose slots are cached, least recently used first out."""
_READ_MAX = 256
_READ_BYTES_MAX = 2**19
"""Maximum number of objects that are read at once, and of bytes of their summaries."""

HISTORY_SCHEMA = """
CREATE TABLE archived (one INTEGER PRIMARY KEY CHECK (one = 0), record INTEGER NOT NULL,
    chunks_made INTEGER NOT NULL);
CREATE TABLE chunk (number INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE slots (number INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE posting (tag TEXT NOT NULL, chunk INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (tag, chunk)) WITHOUT ROWID;
CREATE TABLE life_end (at_us INTEGER NOT NULL, record INTEGER NOT NULL,
    PRIMARY KEY (at_us, record)) WITHOUT ROWID;
"""
TABLE_NAMES = ("archived", "chunk", "slots", "posting", "life_end")
_SUMMARIES = RecordTable("chunk", ChunkSummary)
_SLOTS = RecordTable("slots", StoredSlots)
_POSTINGS = RecordTable("posting", bytes)


class Database(Protocol):
    """The SQLite file, as the archive uses it."""

    def read(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Returns all rows of a query."""
        ...

    def read_records(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """As `read`, for a query that may find records which were put recently."""
        ...

    def is_removed(self, table: RecordTable[Metadata], key: str) -> bool:
        """Whether a record was removed which `read` may still find."""
        ...

    def write(self, statement: str, values: Sequence[object] = ()) -> None:
        """Executes a statement in the current transaction."""
        ...

    def write_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Executes a statement for many rows in the current transaction."""
        ...

    def database_errors(self) -> AbstractContextManager[None]:
        """Converts database errors inside the context to a `StoreError` that names the file."""
        ...


class HistoryTables:
    """The tables of the archive, and the records of the archived table."""

    def __init__(self, database: Database, table: RecordTable[Metadata]) -> None:
        self._database = database
        self._table = table
        self._decoder = msgspec.msgpack.Decoder(table.record_type)
        self._slots_cache: OrderedDict[int, ChunkSlots] = OrderedDict()

    # Records

    def count_records(self) -> int:
        """Returns the number of records."""
        query = "SELECT count(*) FROM record WHERE shelf = ?"
        count: int = self._database.read_records(query, (self._table.name,))[0][0]
        return count

    def records_after(self, after: int, count: int) -> list[NumberedObject]:
        """Returns the `count` records that follow a record number."""
        query = "SELECT id, key, value FROM record WHERE +shelf = ? AND id > ? ORDER BY id LIMIT ?"
        with self._database.database_errors():
            rows = self._database.read_records(query, (self._table.name, after, count))
            return [(number, self._decode(key, value)) for number, key, value in rows]

    def record_numbers_after(self, after: int, count: int) -> dict[Key, int]:
        """Returns the numbers, by key, of the `count` records that follow a record number."""
        query = "SELECT id, key FROM record WHERE +shelf = ? AND id > ? ORDER BY id LIMIT ?"
        rows = self._database.read_records(query, (self._table.name, after, count))
        return {Key.parse(key): number for number, key in rows}

    def find_object(self, key: Key, last: int) -> NumberedObject | None:
        """Returns the object with this key if its record number is at most `last`."""
        query = "SELECT id, value FROM record WHERE shelf = ? AND key = ? AND id <= ?"
        name = str(key)
        if self._database.is_removed(self._table, name):
            return None  # it may have been put again since, with a higher number
        for number, value in self._database.read(query, (self._table.name, name, last)):
            with self._database.database_errors():
                return number, self._decode(name, value)
        return None

    def load_objects(self, numbers: Sequence[int]) -> list[NumberedObject]:
        """Loads the objects of some records, in the same order."""
        found: dict[int, Metadata] = {}
        for start in range(0, len(numbers), _READ_MAX):
            some = numbers[start : start + _READ_MAX]
            placeholders = ",".join("?" * len(some))
            query = f"SELECT id, key, value FROM record WHERE id IN ({placeholders})"
            with self._database.database_errors():
                for number, key, value in self._database.read(query, some):
                    found[number] = self._decode(key, value)
                if missing := [number for number in some if number not in found]:
                    raise sqlite3.DatabaseError(f"record {missing[0]} is archived but missing")
        return [(number, found[number]) for number in numbers]

    def chunk_objects(
        self, chunk: ChunkSummary, read_max: int = _READ_MAX
    ) -> Iterator[NumberedObject]:
        """Yields the objects of a chunk, oldest first; few are in memory if they are long."""
        bytes_each = chunk.summary_bytes // max(1, chunk.live_count)
        read_max = min(read_max, max(1, _READ_BYTES_MAX // max(1, bytes_each)))
        removed, records = chunk.removed_bits, self.load_slots(chunk).records
        first = (~removed & removed + 1).bit_length() - 1
        living = (
            records[slot] for slot in range(first, chunk.slot_count) if not removed >> slot & 1
        )
        while some := list(islice(living, read_max)):
            yield from self.load_objects(some)

    def _decode(self, key: str, value: object) -> Metadata:
        return self._decoder.decode(strip_checksum(self._table, key, value))

    # Chunks

    def read_progress(self) -> tuple[int, int]:
        """Returns the number of the last archived record, and of chunks ever written."""
        rows = self._database.read("SELECT record, chunks_made FROM archived")
        return rows[0] if rows else (0, 0)

    def load_summaries(self) -> list[ChunkSummary]:
        """Loads the summaries of all chunks, in order of creation."""
        with self._database.database_errors():
            return [
                msgspec.msgpack.decode(
                    strip_checksum(_SUMMARIES, str(number), value), type=ChunkSummary
                )
                for number, value in self._database.read(
                    "SELECT number, value FROM chunk ORDER BY 1"
                )
            ]

    def load_tag_bits(self, tag: Tag, first: int, last: int) -> TagBits:
        """Loads the postings of a tag in a range of chunks."""
        query = "SELECT chunk, value FROM posting WHERE tag = ? AND chunk BETWEEN ? AND ?"
        with self._database.database_errors():
            return {
                number: decode_posting(strip_checksum(_POSTINGS, f"{tag} {number}", value))
                for number, value in self._database.read(query, (tag, first, last))
            }

    def load_slots(self, chunk: ChunkSummary) -> ChunkSlots:
        """Returns the decoded slots of a chunk, from the cache or the file."""
        decoded = self._slots_cache.get(chunk.number)
        if decoded is None:
            decoded = self._slots_cache[chunk.number] = self._load_stored_slots(chunk).decode()
            if len(self._slots_cache) > SLOTS_CACHED_MAX:
                self._slots_cache.popitem(last=False)
        else:
            self._slots_cache.move_to_end(chunk.number)
        return decoded

    def write_chunk(self, chunk: ChunkSummary, objects: Sequence[NumberedObject]) -> None:
        """Writes a chunk; `objects` must be in the order of history."""
        number = chunk.number
        encoded = encode_postings(objects)
        rows = (
            (tag, number, add_checksum(_POSTINGS, f"{tag} {number}", posting))
            for tag, posting in encoded.items()
        )
        self._database.write_many("INSERT INTO posting VALUES (?, ?, ?)", rows)
        stored = msgspec.msgpack.encode(encode_slots(objects, list(encoded)))
        value = add_checksum(_SLOTS, str(number), stored)
        self._database.write("INSERT INTO slots VALUES (?, ?)", (number, value))
        self.write_summary(chunk)

    def write_summary(self, chunk: ChunkSummary) -> None:
        """Writes the summary of a chunk."""
        value = add_checksum(_SUMMARIES, str(chunk.number), msgspec.msgpack.encode(chunk))
        self._database.write("REPLACE INTO chunk VALUES (?, ?)", (chunk.number, value))

    def write_progress(self, last_record: int, chunks_made: int) -> None:
        """Writes the number of the last archived record, and of chunks ever written."""
        self._database.write("REPLACE INTO archived VALUES (0, ?, ?)", (last_record, chunks_made))
        # SQLite numbers a new record after the highest existing one. This record keeps new numbers
        # above the last archived one, even if all other records are removed.
        self._database.write("REPLACE INTO record (shelf, key, value) VALUES ('archived', '', x'')")

    def drop_chunk(self, chunk: ChunkSummary) -> None:
        """Deletes a chunk; its records remain."""
        rows = ((tag, chunk.number) for tag in self._load_stored_slots(chunk).all_tags())
        self._database.write_many("DELETE FROM posting WHERE tag = ? AND chunk = ?", rows)
        for table in ("slots", "chunk"):
            self._database.write(f"DELETE FROM {table} WHERE number = ?", (chunk.number,))
        self._slots_cache.pop(chunk.number, None)

    def clear(self) -> None:
        """Deletes the whole archive; the records remain."""
        for name in TABLE_NAMES:
            self._database.write(f"DELETE FROM {name}")
        self._slots_cache.clear()

    def _load_stored_slots(self, chunk: ChunkSummary) -> StoredSlots:
        query = "SELECT value FROM slots WHERE number = ?"
        with self._database.database_errors():
            values = [value for (value,) in self._database.read(query, (chunk.number,))]
            value = values[0] if values else None
            return msgspec.msgpack.decode(
                strip_checksum(_SLOTS, str(chunk.number), value), type=StoredSlots
            )

    # Expiry

    def next_expiry_us(self) -> int | None:
        """Returns when the next archived object expires."""
        expiry_us: int | None = self._database.read("SELECT min(at_us) FROM life_end")[0][0]
        return expiry_us

    def expired_objects(self, now_us: int) -> list[Metadata]:
        """Returns the archived objects that have expired."""
        rows = self._database.read("SELECT record FROM life_end WHERE at_us <= ?", (now_us,))
        return [metadata for _, metadata in self.load_objects([number for (number,) in rows])]

    def add_expiries(self, expiries: Iterable[tuple[int, int]]) -> None:
        """Adds pairs of an expiry time and a record number."""
        self._database.write_many("INSERT INTO life_end VALUES (?, ?)", expiries)

    def remove_expiry(self, at_us: int, number: int) -> None:
        """Removes the expiry time of a record."""
        query = "DELETE FROM life_end WHERE at_us = ? AND record = ?"
        self._database.write(query, (at_us, number))
