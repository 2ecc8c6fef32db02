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
from thyme.storage.archive_chunk import (
    Column,
    Numbered,
    OpenSlots,
    Outline,
    Slots,
    bits_of,
    postings,
    slots,
)
from thyme.storage.sealing import opened, sealed
from thyme.storage.store import Shelf

SLOTS_KEPT = 32
"""The number of chunks whose slots are cached, least recently used first out."""
_READ_MAX = 256

TABLES = """
CREATE TABLE archived (one INTEGER PRIMARY KEY CHECK (one = 0), record INTEGER NOT NULL,
    chunks_made INTEGER NOT NULL);
CREATE TABLE chunk (number INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE slots (number INTEGER PRIMARY KEY, value BLOB NOT NULL);
CREATE TABLE posting (tag TEXT NOT NULL, chunk INTEGER NOT NULL, value BLOB NOT NULL,
    PRIMARY KEY (tag, chunk)) WITHOUT ROWID;
CREATE TABLE life_end (at_us INTEGER NOT NULL, record INTEGER NOT NULL,
    PRIMARY KEY (at_us, record)) WITHOUT ROWID;
"""
NAMES = ("archived", "chunk", "slots", "posting", "life_end")
_OUTLINES = Shelf("chunk", Outline)
_SLOTS = Shelf("slots", Slots)
_POSTINGS = Shelf("posting", bytes)


class Tables(Protocol):
    """The SQLite file, as the archive uses it."""

    def read(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Returns all rows of a query."""
        ...

    def write(self, statement: str, values: Sequence[object] = ()) -> None:
        """Executes a statement in the current transaction."""
        ...

    def write_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        """Executes a statement for many rows in the current transaction."""
        ...

    def told(self) -> AbstractContextManager[None]:
        """Converts database errors inside the context to a `StoreError` that names the file."""
        ...


class ArchiveFile:
    """The tables of the archive, and the records of the archived table."""

    def __init__(self, tables: Tables, shelf: Shelf[Metadata]) -> None:
        self._tables = tables
        self._shelf = shelf
        self._decoder = msgspec.msgpack.Decoder(shelf.record)
        self._open_slots: OrderedDict[int, OpenSlots] = OrderedDict()

    # Records

    def count(self) -> int:
        """Returns the number of records."""
        query = "SELECT count(*) FROM record WHERE shelf = ?"
        count: int = self._tables.read(query, (self._shelf.name,))[0][0]
        return count

    def records(self, after: int, count: int) -> list[Numbered]:
        """Returns the `count` records that follow a record number."""
        query = "SELECT id, key, value FROM record WHERE +shelf = ? AND id > ? ORDER BY id LIMIT ?"
        with self._tables.told():
            rows = self._tables.read(query, (self._shelf.name, after, count))
            return [(number, self._decoded(key, value)) for number, key, value in rows]

    def numbers(self, after: int, count: int) -> dict[Key, int]:
        """Returns the numbers, by key, of the `count` records that follow a record number."""
        query = "SELECT id, key FROM record WHERE +shelf = ? AND id > ? ORDER BY id LIMIT ?"
        rows = self._tables.read(query, (self._shelf.name, after, count))
        return {Key.parse(key): number for number, key in rows}

    def look_up(self, key: Key, last: int) -> Numbered | None:
        """Returns the object with this key if its record number is at most `last`."""
        query = "SELECT id, value FROM record WHERE shelf = ? AND key = ? AND id <= ?"
        name = str(key)
        for number, value in self._tables.read(query, (self._shelf.name, name, last)):
            with self._tables.told():
                return number, self._decoded(name, value)
        return None

    def objects(self, numbers: Sequence[int]) -> list[Numbered]:
        """Loads the objects of some records, in the same order."""
        found: dict[int, Metadata] = {}
        for start in range(0, len(numbers), _READ_MAX):
            some = numbers[start : start + _READ_MAX]
            placeholders = ",".join("?" * len(some))
            query = f"SELECT id, key, value FROM record WHERE id IN ({placeholders})"
            with self._tables.told():
                for number, key, value in self._tables.read(query, some):
                    found[number] = self._decoded(key, value)
                if missing := [number for number in some if number not in found]:
                    raise sqlite3.DatabaseError(f"record {missing[0]} is archived but missing")
        return [(number, found[number]) for number in numbers]

    def objects_of(self, chunk: Outline, at_once: int = _READ_MAX) -> Iterator[Numbered]:
        """Yields the objects of a chunk, oldest first."""
        dead, records = chunk.dead, self.slots(chunk).records
        first = (~dead & dead + 1).bit_length() - 1
        living = (records[slot] for slot in range(first, chunk.size) if not dead >> slot & 1)
        while some := list(islice(living, at_once)):
            yield from self.objects(some)

    def _decoded(self, key: str, value: object) -> Metadata:
        return self._decoder.decode(opened(self._shelf, key, value))

    # Chunks

    def marks(self) -> tuple[int, int]:
        """Returns the number of the last archived record, and of chunks ever written."""
        rows = self._tables.read("SELECT record, chunks_made FROM archived")
        return rows[0] if rows else (0, 0)

    def outlines(self) -> list[Outline]:
        """Loads the summaries of all chunks, in order of creation."""
        with self._tables.told():
            return [
                msgspec.msgpack.decode(opened(_OUTLINES, str(number), value), type=Outline)
                for number, value in self._tables.read("SELECT number, value FROM chunk ORDER BY 1")
            ]

    def column(self, tag: Tag, first: int, last: int) -> Column:
        """Loads the postings of a tag in a range of chunks."""
        query = "SELECT chunk, value FROM posting WHERE tag = ? AND chunk BETWEEN ? AND ?"
        with self._tables.told():
            return {
                number: bits_of(opened(_POSTINGS, f"{tag} {number}", value))
                for number, value in self._tables.read(query, (tag, first, last))
            }

    def slots(self, chunk: Outline) -> OpenSlots:
        """Returns the decoded slots of a chunk, from the cache or the file."""
        held = self._open_slots.get(chunk.number)
        if held is None:
            held = self._open_slots[chunk.number] = self._written_slots(chunk).read()
            if len(self._open_slots) > SLOTS_KEPT:
                self._open_slots.popitem(last=False)
        else:
            self._open_slots.move_to_end(chunk.number)
        return held

    def write_chunk(self, chunk: Outline, objects: Sequence[Numbered]) -> None:
        """Writes a chunk; `objects` must be in the order of history."""
        number = chunk.number
        written = postings(objects)
        rows = (
            (tag, number, sealed(_POSTINGS, f"{tag} {number}", posting))
            for tag, posting in written.items()
        )
        self._tables.write_many("INSERT INTO posting VALUES (?, ?, ?)", rows)
        held = msgspec.msgpack.encode(slots(objects, list(written)))
        value = sealed(_SLOTS, str(number), held)
        self._tables.write("INSERT INTO slots VALUES (?, ?)", (number, value))
        self.write_outline(chunk)

    def write_outline(self, chunk: Outline) -> None:
        """Writes the summary of a chunk."""
        value = sealed(_OUTLINES, str(chunk.number), msgspec.msgpack.encode(chunk))
        self._tables.write("REPLACE INTO chunk VALUES (?, ?)", (chunk.number, value))

    def write_marks(self, last_record: int, chunks_made: int) -> None:
        """Writes the number of the last archived record, and of chunks ever written."""
        self._tables.write("REPLACE INTO archived VALUES (0, ?, ?)", (last_record, chunks_made))
        # SQLite numbers a new record after the highest existing one. This record keeps new numbers
        # above the last archived one, even if all other records are removed.
        self._tables.write("REPLACE INTO record (shelf, key, value) VALUES ('archived', '', x'')")

    def drop(self, chunk: Outline) -> None:
        """Deletes a chunk; its records remain."""
        rows = ((tag, chunk.number) for tag in self._written_slots(chunk).all_tags())
        self._tables.write_many("DELETE FROM posting WHERE tag = ? AND chunk = ?", rows)
        for table in ("slots", "chunk"):
            self._tables.write(f"DELETE FROM {table} WHERE number = ?", (chunk.number,))
        self._open_slots.pop(chunk.number, None)

    def clear(self) -> None:
        """Deletes the whole archive; the records remain."""
        for name in NAMES:
            self._tables.write(f"DELETE FROM {name}")
        self._open_slots.clear()

    def _written_slots(self, chunk: Outline) -> Slots:
        query = "SELECT value FROM slots WHERE number = ?"
        with self._tables.told():
            values = [value for (value,) in self._tables.read(query, (chunk.number,))]
            value = values[0] if values else None
            return msgspec.msgpack.decode(opened(_SLOTS, str(chunk.number), value), type=Slots)

    # Expiry

    def first_end_us(self) -> int | None:
        """Returns when the next archived object expires."""
        end_us: int | None = self._tables.read("SELECT min(at_us) FROM life_end")[0][0]
        return end_us

    def ended(self, now_us: int) -> list[Metadata]:
        """Returns the archived objects that have expired."""
        rows = self._tables.read("SELECT record FROM life_end WHERE at_us <= ?", (now_us,))
        return [metadata for _, metadata in self.objects([number for (number,) in rows])]

    def add_ends(self, ends: Iterable[tuple[int, int]]) -> None:
        """Adds pairs of an expiry time and a record number."""
        self._tables.write_many("INSERT INTO life_end VALUES (?, ?)", ends)

    def remove_end(self, at_us: int, number: int) -> None:
        """Removes the expiry time of a record."""
        query = "DELETE FROM life_end WHERE at_us = ? AND record = ?"
        self._tables.write(query, (at_us, number))
