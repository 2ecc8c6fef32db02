"""Change log: the changes of a store since its tables were last written.

Keys are random, so every record and every object that is written to the tables changes pages of
their indexes all over the file, and each commit writes whole pages. A commit therefore only appends
its changes to the log, as one row; they are in memory, too, until there are enough of them to be
written to the tables together. After kill -9 they are read from the log.
Entry point: `ChangeLog`. The transactions are up to `store`.
Clauses: M24, M25. Decision: docs/decisions/0031-speed.md.
"""

from __future__ import annotations

import sqlite3

import msgspec

from thyme.storage.sqlite.checksums import add_checksum, strip_checksum
from thyme.storage.store import RecordTable

OBJECT_DATA = ""
"""The table name in the log of the bytes of objects, which are no records."""
CHANGES_MAX = 4_000
BYTES_MAX = 2 * 2**20
"""With so many changes, or bytes, the next commit writes them to the tables."""
VALUE_BYTES_MAX = 16 * 2**10
"""Longer values are written to the tables at once, or they would be written twice."""
LOG_SCHEMA = "CREATE TABLE change (number INTEGER PRIMARY KEY, value BLOB NOT NULL);"

Change = tuple[str, str, bytes | None]
"""The names of a table and of a key, and the new value; None if it was removed."""
_CHANGES = RecordTable("change", list[Change])
_PUT_RECORD = (
    "INSERT INTO record (shelf, key, value) VALUES (?, ?, ?) "
    "ON CONFLICT (shelf, key) DO UPDATE SET value = excluded.value"
)


class ChangeLog:
    """The changes that are not in the tables yet."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, str], bytes] = {}
        """What was put, by the names of table and key, in the order of the first put."""
        self._removed: dict[tuple[str, str], None] = {}
        """What was removed, perhaps before it was put again."""
        self._unlogged: list[Change] = []
        """The changes since the last commit."""
        self._next_number = 1
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the next commit should write the changes to the tables."""
        return self._bytes >= BYTES_MAX or len(self._values) + len(self._removed) >= CHANGES_MAX

    def put(self, table: str, key: str, value: bytes) -> None:
        """Adds a new or changed value."""
        self._values[table, key] = value
        self._bytes += len(value)
        self._unlogged.append((table, key, value))

    def remove(self, table: str, key: str) -> None:
        """Adds a removal."""
        self._values.pop((table, key), None)
        self._removed[table, key] = None
        self._unlogged.append((table, key, None))

    def get(self, table: str, key: str) -> bytes | None:
        """The value of a key, if it was put."""
        return self._values.get((table, key))

    def is_removed(self, table: str, key: str) -> bool:
        """Whether the value of a key in the tables, if there is one, was removed."""
        return (table, key) in self._removed

    def apply_to(self, table: str, stored: dict[str, object]) -> None:
        """Applies the changes to the values of a table by key."""
        for name, key in self._removed:
            if name == table:
                stored.pop(key, None)
        for (name, key), value in self._values.items():
            if name == table:
                stored[key] = value

    # The file

    def load(self, db: sqlite3.Connection) -> None:
        """Reads the changes that are in the log; those that are not are forgotten."""
        self._clear()
        rows = db.execute("SELECT number, value FROM change ORDER BY number").fetchall()
        for number, value in rows:
            changes = strip_checksum(_CHANGES, str(number), value)
            for table, key, each in msgspec.msgpack.decode(changes, type=list[Change]):
                if each is None:
                    self.remove(table, key)
                else:
                    self.put(table, key, each)
            self._next_number = number + 1
        self._unlogged = []

    def write(self, db: sqlite3.Connection) -> None:
        """Appends the changes since the last commit to the log."""
        number, self._next_number = self._next_number, self._next_number + 1
        value = add_checksum(_CHANGES, str(number), msgspec.msgpack.encode(self._unlogged))
        db.execute("INSERT INTO change VALUES (?, ?)", (number, value))
        self._unlogged = []

    @property
    def has_unlogged(self) -> bool:
        """Whether there are changes since the last commit."""
        return bool(self._unlogged)

    def move_to_tables(self, db: sqlite3.Connection) -> None:
        """Writes all changes to the tables, and empties the log."""
        removed_data = ((key,) for table, key in self._removed if table == OBJECT_DATA)
        db.executemany("DELETE FROM data WHERE key = ?", removed_data)
        removed = (name for name in self._removed if name[0] != OBJECT_DATA)
        db.executemany("DELETE FROM record WHERE shelf = ? AND key = ?", removed)
        items = self._values.items()
        data = ((name[1], value) for name, value in items if name[0] == OBJECT_DATA)
        db.executemany("INSERT OR REPLACE INTO data VALUES (?, ?)", data)
        records = ((*name, value) for name, value in items if name[0] != OBJECT_DATA)
        db.executemany(_PUT_RECORD, records)
        db.execute("DELETE FROM change")
        self._clear()

    def _clear(self) -> None:
        self._values.clear()
        self._removed.clear()
        self._unlogged = []
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._values or self._removed)
