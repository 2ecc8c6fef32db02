"""SQLite store: keeps a node's records and object bytes in an SQLite file.

Entry point: `SqliteStore`. The file uses a write-ahead log and belongs to one process at a time;
each input is one transaction, synced to disk on commit. Records are MessagePack, as on the wire.
The file header has an application id and a version; a foreign or damaged file is rejected with an
error and never written to. A large file gets a quick check at the start and a full one in the
background (`integrity_check`).
Clauses: M24, M25, E5.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from thyme.model.errors import StoreError
from thyme.model.metadata import Metadata
from thyme.storage.archive import CHUNK_SIZE, ArchivedHistory
from thyme.storage.archive_file import TABLES
from thyme.storage.checking import Checking, read_ahead
from thyme.storage.history import History
from thyme.storage.room import Room
from thyme.storage.sealing import opened, sealed
from thyme.storage.store import Shelf

APPLICATION_ID = 0x7479_6D65  # "tyme"
SCHEMA_VERSION = 2
_HEADER_BYTES = 100
_CHECKED_AT_ONCE_BYTES = 32 * 2**20
_CHECKED_QUICKLY_BYTES = 512 * 2**20
_CACHE_KIB = 8 * 2**10
_LOG_BYTES_MAX = 8 * 2**20
"""The log is truncated to this size after a large object."""
R = TypeVar("R")

_RECORDS = """
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    shelf TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, UNIQUE (shelf, key));
"""

_SCHEMA = f"""
BEGIN;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
{_RECORDS}
CREATE TABLE data (key TEXT PRIMARY KEY, value BLOB NOT NULL);
{TABLES}
COMMIT;
"""
_FROM_VERSION_1 = f"""
BEGIN;
PRAGMA user_version = {SCHEMA_VERSION};
ALTER TABLE record RENAME TO earlier;
{_RECORDS}
INSERT INTO record SELECT rowid, shelf, key, value FROM earlier ORDER BY rowid;
DROP TABLE earlier;
{TABLES}
COMMIT;
"""


class SqliteStore:
    """A store that survives the end of the process, including kill -9."""

    durable = True

    def __init__(self, path: Path, *, chunk_size: int = CHUNK_SIZE) -> None:
        self._path = path
        self._chunk_size = chunk_size
        self._connections: list[sqlite3.Connection] = []
        self._checking: Checking | None = None
        self._room = Room(path.parent)
        _make_directory(path.parent)
        try:
            with self.told():
                self._take_lock()
                self._open()
        except BaseException:
            self.close()
            raise

    def put(self, shelf: Shelf[R], key: str, record: R) -> None:
        value = sealed(shelf, key, msgspec.msgpack.encode(record))
        self._room.take(len(value))
        self.write(
            "INSERT INTO record (shelf, key, value) VALUES (?, ?, ?) "
            "ON CONFLICT (shelf, key) DO UPDATE SET value = excluded.value",
            (shelf.name, key, value),
        )

    def remove(self, shelf: Shelf[R], key: str) -> None:
        self.write("DELETE FROM record WHERE shelf = ? AND key = ?", (shelf.name, key))

    def load(self, shelf: Shelf[R]) -> Iterator[tuple[str, R]]:
        with self.told():
            yield from _records(self._db, shelf)

    def history(self, shelf: Shelf[Metadata]) -> History:
        return ArchivedHistory(self, shelf, self._chunk_size)

    def put_data(self, key: str, data: bytes) -> None:
        self._room.take(len(data))
        self.write("INSERT OR REPLACE INTO data VALUES (?, ?)", (key, data))

    def data(self, key: str) -> bytes | None:
        with self.told():
            row = self._db.execute("SELECT value FROM data WHERE key = ?", (key,)).fetchone()
            if row is not None and not isinstance(row[0], bytes):
                raise sqlite3.DatabaseError(f"the data of {key} are not bytes")
        return None if row is None else row[0]

    def remove_data(self, key: str) -> None:
        self.write("DELETE FROM data WHERE key = ?", (key,))

    def has_room(self, octets: int) -> bool:
        with self.told():
            return self._room.has(octets, self._reusable_bytes)

    def commit(self) -> None:
        self._room.taken()
        with self.told():
            if self._checking is not None and self._checking.verdict:
                raise sqlite3.DatabaseError(self._checking.verdict)
            if self._db.in_transaction:
                self._db.execute("COMMIT")

    def close(self) -> None:
        if self._checking is not None:
            self._checking.stop()
        for connection in reversed(self._connections):
            connection.close()

    # Access to the database, for this package

    def read(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.told():
            return self._db.execute(statement, values).fetchall()

    def write(self, statement: str, values: Sequence[object] = ()) -> None:
        with self.told():
            self._begin()
            self._db.execute(statement, values)

    def write_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        with self.told():
            self._begin()
            self._db.executemany(statement, rows)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Converts errors of SQLite and the file system to a `StoreError` that names the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise StoreError(f"{self._path} is in use, here or in another process") from error
            raise StoreError(f"the store {self._path} cannot be used: {error}") from error
        except (sqlite3.DatabaseError, msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
            raise self._error(str(error)) from error

    def _reusable_bytes(self) -> int:
        """Returns the size of the free pages inside the file."""
        pages: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        page_bytes: int = self._db.execute("PRAGMA page_size").fetchone()[0]
        return pages * page_bytes

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")

    def _connect(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, isolation_level=None, timeout=0.2)
        self._connections.append(connection)
        return connection

    def _take_lock(self) -> None:
        """Prevents other processes from writing until this process ends; the lock is a separate
        file, so that others can still read."""
        lock = self._connect(self._path.with_name(self._path.name + ".lock"))
        lock.execute("BEGIN EXCLUSIVE")

    def _open(self) -> None:
        """Checks that the file is an undamaged store of Thyme; creates a new one if needed."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size:
            self._refuse_foreign(size)
        self._db = self._connect(self._path)
        # A process killed while it created the file may have left an empty one.
        if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            self._db.executescript(_SCHEMA)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES_MAX}")
        if size < _CHECKED_AT_ONCE_BYTES:
            self._check("integrity_check")
        elif size < _CHECKED_QUICKLY_BYTES:
            read_ahead(self._path)
            self._check("quick_check")
        if self._db.execute("PRAGMA user_version").fetchone()[0] == 1:
            self._db.executescript(_FROM_VERSION_1)
        if size >= _CHECKED_AT_ONCE_BYTES:
            self._checking = Checking(self._path)

    def _check(self, how: str) -> None:
        """Checks all tables but the objects' bytes, which have digests (M19)."""
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'data'"
        for (table,) in self._db.execute(tables).fetchall():
            verdict = self._db.execute(f"PRAGMA {how}({table})").fetchone()[0]
            if verdict != "ok":
                raise sqlite3.DatabaseError(verdict)

    def _refuse_foreign(self, size: int) -> None:
        """Checks the header without SQLite, which might modify a foreign file."""
        with self._path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        if not header.startswith(b"SQLite format 3\0") or len(header) < _HEADER_BYTES:
            raise sqlite3.DatabaseError("the file is not a database")
        page, version, application = (
            int.from_bytes(header[start:end], "big")
            for start, end in ((16, 18), (60, 64), (68, 72))
        )
        if application != APPLICATION_ID:
            raise StoreError(f"{self._path} is an SQLite file, but not a store of Thyme")
        if version not in (1, SCHEMA_VERSION):
            raise StoreError(
                f"{self._path} has version {version}, this Thyme reads {SCHEMA_VERSION}"
            )
        if size % (page if page > 1 else 65_536):
            raise sqlite3.DatabaseError("the file is truncated")

    def _error(self, what: str) -> StoreError:
        return StoreError(
            f"the store {self._path} cannot be used: {what}. Nothing was changed in it; "
            "restore it from a copy, or move it away to start anew"
        )


def read_shelf(path: Path, shelf: Shelf[R]) -> list[R]:
    """Reads the records of one table of a file that another process may be using."""
    try:
        logs = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
        # Without a log no process is writing, and SQLite need not create files of its own.
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
        yield key, decoder.decode(opened(shelf, key, value))


def _make_directory(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise StoreError(f"{directory} is a file; a directory is needed for stores") from error
    except OSError as error:
        raise StoreError(f"the directory {directory} cannot be made: {error.strerror}") from error
