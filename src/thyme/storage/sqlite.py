"""The store in an SQLite file.

Write-ahead log, one user at a time, one transaction per input, on the disk before it counts as
committed. Records are MessagePack, as on the wire. The file names its kind and version, so that a
foreign or damaged file is refused with words, and never written to.
Clauses: M24, M25, E5.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec

from thyme.model.errors import StoreError
from thyme.storage.store import Shelf

APPLICATION_ID = 0x7479_6D65  # "tyme"
SCHEMA_VERSION = 1
_SEAL_BYTES = 4
_HEADER_BYTES = 100
R = TypeVar("R")

_SCHEMA = f"""
BEGIN;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE record (
    shelf TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, UNIQUE (shelf, key));
CREATE TABLE data (key TEXT PRIMARY KEY, value BLOB NOT NULL);
COMMIT;
"""


class SqliteStore:
    """A store that survives the end of the process, however it ends."""

    durable = True

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connections: list[sqlite3.Connection] = []
        _make_directory(path.parent)
        try:
            with self._told():
                self._take_lock()
                self._open()
        except BaseException:
            self.close()
            raise

    def put(self, shelf: Shelf[R], key: str, record: R) -> None:
        self._write(
            "INSERT INTO record VALUES (?, ?, ?) "
            "ON CONFLICT (shelf, key) DO UPDATE SET value = excluded.value",
            (shelf.name, key, _sealed(shelf, key, msgspec.msgpack.encode(record))),
        )

    def remove(self, shelf: Shelf[R], key: str) -> None:
        self._write("DELETE FROM record WHERE shelf = ? AND key = ?", (shelf.name, key))

    def load(self, shelf: Shelf[R]) -> Iterator[tuple[str, R]]:
        with self._told():
            yield from _records(self._db, shelf)

    def put_data(self, key: str, data: bytes) -> None:
        self._write("INSERT OR REPLACE INTO data VALUES (?, ?)", (key, data))

    def data(self, key: str) -> bytes | None:
        with self._told():
            row = self._db.execute("SELECT value FROM data WHERE key = ?", (key,)).fetchone()
            if row is not None and not isinstance(row[0], bytes):
                raise sqlite3.DatabaseError(f"the bytes of {key} are none")
        return None if row is None else row[0]

    def remove_data(self, key: str) -> None:
        self._write("DELETE FROM data WHERE key = ?", (key,))

    def commit(self) -> None:
        with self._told():
            if self._db.in_transaction:
                self._db.execute("COMMIT")

    def close(self) -> None:
        for connection in reversed(self._connections):
            connection.close()

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        with self._told():
            if not self._db.in_transaction:
                self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(statement, values)

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, timeout=0.2)
        self._connections.append(connection)
        return connection

    def _take_lock(self) -> None:
        """Keeps all others from writing, until this process ends in whatever way; the lock is a
        file of its own, so that others may still read."""
        lock = self._connect(self._path.with_name(self._path.name + ".lock"))
        lock.execute("BEGIN EXCLUSIVE")

    def _open(self) -> None:
        """Makes sure that the file is sound and one of ours, or makes it so if it is new."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size:
            self._refuse_foreign(size)
        self._db = self._connect(self._path)
        # A process that died while making the file may have left it empty.
        if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            self._db.executescript(_SCHEMA)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        verdict = self._db.execute("PRAGMA integrity_check(record)").fetchone()[0]
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)

    def _refuse_foreign(self, size: int) -> None:
        """Reads the header by hand: SQLite itself would tidy up somebody else's file."""
        with self._path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if not header.startswith(b"SQLite format 3\0") or len(header) < _HEADER_BYTES:
            raise sqlite3.DatabaseError("the file is not a database")
        page, version, application = (
            int.from_bytes(header[start:end], "big")
            for start, end in ((16, 18), (60, 64), (68, 72))
        )
        if application != APPLICATION_ID:
            raise StoreError(f"{self._path} is an SQLite file, but not one of Thyme's")
        if version != SCHEMA_VERSION:
            raise StoreError(
                f"{self._path} has version {version}, this Thyme reads {SCHEMA_VERSION}"
            )
        if size % (page if page > 1 else 65_536):
            raise sqlite3.DatabaseError("the file was cut off")

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turns what SQLite or the file system says into one error that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StoreError(f"{self._path} is in use, here or in another process") from error
            raise StoreError(f"the store {self._path} cannot be used: {error}") from error
        except (sqlite3.DatabaseError, msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
            raise self._error(str(error)) from error

    def _error(self, what: str) -> StoreError:
        return StoreError(
            f"the store {self._path} cannot be used: {what}. Nothing was changed in it; "
            "restore it from a copy, or move it away to start anew"
        )


def read_shelf(path: Path, shelf: Shelf[R]) -> list[R]:
    """The records of one shelf of a file that somebody else may be using; nothing is changed."""
    try:
        logs = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
        # Without a log nobody is writing, and SQLite need leave no files of its own behind.
        mode = "mode=ro" if any(log.exists() for log in logs) else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=0.2)
        try:
            return [record for _, record in _records(connection, shelf)]
        finally:
            connection.close()
    except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} cannot be read as a store of Thyme: {error}") from error


def _records(db: sqlite3.Connection, shelf: Shelf[R]) -> Iterator[tuple[str, R]]:
    decoder = msgspec.msgpack.Decoder(shelf.record)
    query = "SELECT key, value FROM record WHERE shelf = ? ORDER BY rowid"
    for key, value in db.execute(query, (shelf.name,)).fetchall():
        if not isinstance(value, bytes) or value != _sealed(shelf, key, value[_SEAL_BYTES:]):
            raise sqlite3.DatabaseError(f"record {key!r} on shelf {shelf.name!r} is damaged")
        yield key, decoder.decode(value[_SEAL_BYTES:])


def _sealed(shelf: Shelf[R], key: str, record: bytes) -> bytes:
    """A record behind a checksum: SQLite does not notice bytes that changed on the disk."""
    checksum = crc32(record, crc32(f"{shelf.name}\0{key}".encode()))
    return checksum.to_bytes(_SEAL_BYTES, "big") + record


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StoreError(
            f"{directory} is a file; a directory is needed to keep stores in"
        ) from error
    except OSError as error:
        raise StoreError(f"the directory {directory} cannot be made: {error.strerror}") from error
