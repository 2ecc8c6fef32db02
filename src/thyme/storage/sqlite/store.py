"""SQLite store: keeps a node's records and object bytes in an SQLite file.

Entry point: `SqliteStore`. The file uses a write-ahead log and belongs to one process at a time;
each commit is one transaction, synced to disk. It appends its changes to the `change_log`, from
which they are written to the tables together. Records are MessagePack, as on the wire.
The file header has an application id and a version; a foreign or damaged file is rejected with an
error and never written to. A large file gets a quick check at the start and a full one in the
background (`integrity_check`).
Large objects are in a directory beside the file (`chunk_files`).
Clauses: M24, M25, M37, E5.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from thyme.model.errors import StoreError
from thyme.model.metadata import Metadata
from thyme.storage.chunk_files import ChunkFiles
from thyme.storage.history import History
from thyme.storage.private_files import make_private_directory, make_private_file
from thyme.storage.sqlite.change_log import (
    LOG_SCHEMA,
    OBJECT_DATA,
    VALUE_BYTES_MAX,
    ChangeLog,
)
from thyme.storage.sqlite.checksums import add_checksum, strip_checksum
from thyme.storage.sqlite.disk_reserve import DiskReserve
from thyme.storage.sqlite.history_archive import CHUNK_SIZE, ArchivedHistory
from thyme.storage.sqlite.history_tables import HISTORY_SCHEMA
from thyme.storage.sqlite.integrity_check import IntegrityCheck, preload_file
from thyme.storage.store import RecordTable

APPLICATION_ID = 0x7479_6D65  # "tyme"
SCHEMA_VERSION = 3
_HEADER_BYTES = 100
_FULL_CHECK_BYTES_MAX = 32 * 2**20
_QUICK_CHECK_BYTES_MAX = 512 * 2**20
_CACHE_KIB = 8 * 2**10
_LOG_BYTES_MAX = 8 * 2**20
"""The log is truncated to this size after a large object."""
R = TypeVar("R")

_RECORD_TABLE = """
CREATE TABLE record (
    id INTEGER PRIMARY KEY,
    shelf TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, UNIQUE (shelf, key));
"""

_SCHEMA = f"""
BEGIN;
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
{_RECORD_TABLE}
CREATE TABLE data (key TEXT PRIMARY KEY, value BLOB NOT NULL);
{HISTORY_SCHEMA}
{LOG_SCHEMA}
COMMIT;
"""
_MIGRATION_FROM_1 = f"""
BEGIN;
PRAGMA user_version = {SCHEMA_VERSION};
ALTER TABLE record RENAME TO earlier;
{_RECORD_TABLE}
INSERT INTO record SELECT rowid, shelf, key, value FROM earlier ORDER BY rowid;
DROP TABLE earlier;
{HISTORY_SCHEMA}
{LOG_SCHEMA}
COMMIT;
"""
_MIGRATION_FROM_2 = f"""
BEGIN;
PRAGMA user_version = {SCHEMA_VERSION};
{LOG_SCHEMA}
COMMIT;
"""
_MIGRATIONS = {1: _MIGRATION_FROM_1, 2: _MIGRATION_FROM_2}
_DATABASE_ERRORS = (sqlite3.DatabaseError, msgspec.DecodeError, UnicodeDecodeError, OSError)


class SqliteStore:
    """A store that survives the end of the process, including kill -9."""

    durable = True

    def __init__(self, path: Path, *, chunk_size: int = CHUNK_SIZE) -> None:
        self._path = path
        self._chunk_size = chunk_size
        self._connections: list[sqlite3.Connection] = []
        self._integrity_check: IntegrityCheck | None = None
        self._disk_reserve = DiskReserve(path.parent)
        self._changes = ChangeLog()
        self._at_commit: dict[tuple[str, str], tuple[RecordTable[Any], object]] = {}
        """Records that the next commit writes, by table name and key."""
        make_private_directory(path.parent, path.name)
        try:
            with self.database_errors():
                self._lock()
                self._open()
            self.chunks = ChunkFiles(path.with_suffix(".chunks"))
        except BaseException:
            self._close_connections()
            raise

    def put(self, table: RecordTable[R], key: str, record: R) -> None:
        self._at_commit.pop((table.name, key), None)
        value = add_checksum(table, key, msgspec.msgpack.encode(record))
        self._disk_reserve.add_pending(len(value))
        self._change(table.name, key, value)

    def put_at_commit(self, table: RecordTable[R], key: str, record: R) -> None:
        self._at_commit[table.name, key] = table, record

    def _write_waiting(self) -> None:
        """Writes the records that were put for the next commit."""
        waiting, self._at_commit = self._at_commit, {}
        for (_, key), (table, record) in waiting.items():
            self.put(table, key, record)

    def remove(self, table: RecordTable[R], key: str) -> None:
        self._at_commit.pop((table.name, key), None)
        self._change(table.name, key, None)

    def get(self, table: RecordTable[R], key: str) -> R | None:
        query = "SELECT value FROM record WHERE shelf = ? AND key = ?"
        self._write_waiting()
        value: object = self._changes.get(table.name, key)
        with self.database_errors():
            if value is None and not self._changes.is_removed(table.name, key):
                row = self._db.execute(query, (table.name, key)).fetchone()
                value = None if row is None else row[0]
            if value is None:
                return None
            return msgspec.msgpack.decode(strip_checksum(table, key, value), type=table.record_type)

    def load(self, table: RecordTable[R]) -> Iterator[tuple[str, R]]:
        self._write_waiting()
        with self.database_errors():
            yield from _read_records(self._db, table, self._changes)

    def open_history(self, table: RecordTable[Metadata]) -> History:
        return ArchivedHistory(self, table, self._chunk_size)

    def put_data(self, key: str, data: bytes) -> None:
        self._disk_reserve.add_pending(len(data))
        self._change(OBJECT_DATA, key, data)

    def get_data(self, key: str) -> bytes | None:
        data = self._changes.get(OBJECT_DATA, key)
        if data is not None or self._changes.is_removed(OBJECT_DATA, key):
            return data
        with self.database_errors():
            row = self._db.execute("SELECT value FROM data WHERE key = ?", (key,)).fetchone()
            if row is not None and not isinstance(row[0], bytes):
                raise sqlite3.DatabaseError(f"the data of {key} are not bytes")
        return None if row is None else row[0]

    def remove_data(self, key: str) -> None:
        self._change(OBJECT_DATA, key, None)

    def has_space(self, size_bytes: int) -> bool:
        try:  # as in `_change`
            return self._disk_reserve.fits(size_bytes, self._reusable_bytes)
        except _DATABASE_ERRORS as error:
            raise self._convert_error(error) from error

    def commit(self) -> None:
        self._write_waiting()
        self._disk_reserve.clear_pending()
        try:
            if self._integrity_check is not None and self._integrity_check.problem:
                raise sqlite3.DatabaseError(self._integrity_check.problem)
            if self._changes.is_full:
                self._move_changes()
            elif self._changes.has_unlogged:
                self._begin()
                self._changes.write(self._db)
            if self._db.in_transaction:
                self._db.execute("COMMIT")
        except _DATABASE_ERRORS as error:
            raise self._forget_after(error) from error

    def close(self) -> None:
        self.chunks.close()
        with suppress(*_DATABASE_ERRORS):  # changes that cannot be moved stay in the log
            self._forget_uncommitted()
            if self._changes:
                self._move_changes()
                self._db.execute("COMMIT")
        self._close_connections()

    def _change(self, table: str, key: str, value: bytes | None) -> None:
        """Puts or removes a record, or the bytes of an object."""
        if value is None:
            self._changes.remove(table, key)
        else:
            self._changes.put(table, key, value)
        try:  # several times for each object, so without a context manager
            is_open = self._db.in_transaction is not None
            if is_open and value is not None and len(value) > VALUE_BYTES_MAX:
                self._move_changes()
        except _DATABASE_ERRORS as error:
            raise self._forget_after(error) from error

    def _forget_uncommitted(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        self._changes.load(self._db)

    def _forget_after(self, error: Exception) -> StoreError:
        """Forgets all changes since the last commit, one of which failed."""
        with suppress(*_DATABASE_ERRORS):
            self._forget_uncommitted()
        return self._convert_error(error)

    def _close_connections(self) -> None:
        if self._integrity_check is not None:
            self._integrity_check.stop()
        for connection in reversed(self._connections):
            connection.close()

    # Access to the database, for this package

    def read(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        try:  # as in `_change`
            return self._db.execute(statement, values).fetchall()
        except _DATABASE_ERRORS as error:
            raise self._convert_error(error) from error

    def read_records(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with self.database_errors():
            if self._changes:
                self._move_changes()
            return self._db.execute(statement, values).fetchall()

    def is_removed(self, table: RecordTable[R], key: str) -> bool:
        return self._changes.is_removed(table.name, key)

    def write(self, statement: str, values: Sequence[object] = ()) -> None:
        with self.database_errors():
            self._begin()
            self._db.execute(statement, values)

    def write_many(self, statement: str, rows: Iterable[Sequence[object]]) -> None:
        with self.database_errors():
            self._begin()
            self._db.executemany(statement, rows)

    @contextmanager
    def database_errors(self) -> Iterator[None]:
        """Converts errors of SQLite and the file system to a `StoreError` that names the file."""
        try:
            yield
        except _DATABASE_ERRORS as error:
            raise self._convert_error(error) from error

    def _convert_error(self, error: Exception) -> StoreError:
        if not isinstance(error, sqlite3.OperationalError):
            return self._unusable_error(str(error))
        if "locked" in str(error):
            return StoreError(
                f"{self._path} is in use, here or in another process: use another folder"
            )
        return StoreError(f"the store {self._path} cannot be used: {error}")

    def _reusable_bytes(self) -> int:
        """Returns the size of the free pages inside the file, also of those that are free once the
        changes are in the tables."""
        if self._changes:
            self._move_changes()
        pages: int = self._db.execute("PRAGMA freelist_count").fetchone()[0]
        page_bytes: int = self._db.execute("PRAGMA page_size").fetchone()[0]
        return pages * page_bytes

    def _begin(self) -> None:
        if not self._db.in_transaction:
            self._db.execute("BEGIN IMMEDIATE")

    def _move_changes(self) -> None:
        """Writes the changes to the tables, in the current transaction."""
        self._begin()
        self._changes.move_to_tables(self._db)

    def _connect(self, path: Path) -> sqlite3.Connection:
        make_private_file(path)
        connection = sqlite3.connect(path, isolation_level=None, timeout=0.2)
        self._connections.append(connection)
        return connection

    def _lock(self) -> None:
        """Prevents other processes from writing until this process ends; the lock is a separate
        file, so that others can still read."""
        lock = self._connect(self._path.with_name(self._path.name + ".lock"))
        lock.execute("BEGIN EXCLUSIVE")

    def _open(self) -> None:
        """Checks that the file is an undamaged store of Thyme; creates a new one if needed."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size:
            self._check_header(size)
        self._db = self._connect(self._path)
        # A process killed while it created the file may have left an empty one.
        if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            self._db.executescript(_SCHEMA)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
        self._db.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES_MAX}")
        if size < _FULL_CHECK_BYTES_MAX:
            self._check("integrity_check")
        elif size < _QUICK_CHECK_BYTES_MAX:
            preload_file(self._path)
            self._check("quick_check")
        migration = _MIGRATIONS.get(self._db.execute("PRAGMA user_version").fetchone()[0])
        if migration is not None:
            self._db.executescript(migration)
        self._changes.load(self._db)
        if size >= _FULL_CHECK_BYTES_MAX:
            self._integrity_check = IntegrityCheck(self._path)

    def _check(self, pragma: str) -> None:
        """Checks all tables but the objects' bytes, which have digests (M19)."""
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'data'"
        for (table,) in self._db.execute(tables).fetchall():
            result = self._db.execute(f"PRAGMA {pragma}({table})").fetchone()[0]
            if result != "ok":
                raise sqlite3.DatabaseError(result)

    def _check_header(self, size: int) -> None:
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
        if version not in (*_MIGRATIONS, SCHEMA_VERSION):
            raise StoreError(
                f"{self._path} has version {version}, this Thyme reads {SCHEMA_VERSION}"
            )
        if size % (page if page > 1 else 65_536):
            raise sqlite3.DatabaseError("the file is truncated")

    def _unusable_error(self, problem: str) -> StoreError:
        return StoreError(
            f"the store {self._path} cannot be used: {problem}. Nothing was changed in it; "
            "restore it from a copy, or move it away to start anew"
        )


def read_table(path: Path, table: RecordTable[R]) -> list[R]:
    """Reads the records of one table of a file that another process may be using."""
    try:
        logs = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
        # Without a log no process is writing, and SQLite need not create files of its own.
        mode = "mode=ro" if any(log.exists() for log in logs) else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?{mode}", uri=True, timeout=0.2)
        try:
            changes = ChangeLog()
            if connection.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION:
                changes.load(connection)
            return [record for _, record in _read_records(connection, table, changes)]
        finally:
            connection.close()
    except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StoreError(f"{path} cannot be read as a store of Thyme: {error}") from error


def _read_records(
    db: sqlite3.Connection, table: RecordTable[R], changes: ChangeLog
) -> Iterator[tuple[str, R]]:
    decoder = msgspec.msgpack.Decoder(table.record_type)
    query = "SELECT key, value FROM record WHERE shelf = ? ORDER BY rowid"
    stored = dict(db.execute(query, (table.name,)).fetchall())
    changes.apply_to(table.name, stored)
    for key, value in stored.items():
        yield key, decoder.decode(strip_checksum(table, key, value))
