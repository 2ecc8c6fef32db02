"""Files for the tests of the SQLite store: sound ones, and what is left of a folder afterwards."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path
from typing import Any

from tests.builders import photo
from thyme.model.metadata import Metadata
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import RecordTable

PHOTOS = RecordTable("photo", Metadata)
COUNT = 30
RECORDS = [
    (f"k{n}", photo(n, tags=["goal", f"t{n}"], at_us=n, summary=b"th")) for n in range(COUNT)
]
DATA = {f"k{n}": bytes([n]) * (40 * n) for n in range(COUNT)}


def a_store_file(path: Path) -> Path:
    """A sound store of `COUNT` photos, closed."""
    store = SqliteStore(path)
    for key, record in RECORDS:
        store.put(PHOTOS, key, record)
        store.put_data(key, DATA[key])
    store.commit()
    store.close()
    return path


def contents(path: Path) -> tuple[list[tuple[str, Metadata]], dict[str, bytes | None]]:
    """All that a store holds, read as a node reads it."""
    store = SqliteStore(path)
    try:
        return list(store.load(PHOTOS)), {key: store.get_data(key) for key in DATA}
    finally:
        store.close()


def with_sql(path: Path, statement: str, *values: Any) -> Path:
    """Changes a file behind the store's back."""
    db = sqlite3.connect(path)
    db.execute(statement, values)
    db.commit()
    db.close()
    return path


def folder_of(path: Path) -> dict[str, bytes]:
    """Every file beside `path` (and `path` itself) with its bytes; an empty lock does not count."""
    files = {file.name: file.read_bytes() for file in path.parent.iterdir() if file.is_file()}
    return {name: held for name, held in files.items() if held or not name.endswith(".lock")}


def crash_image(path: Path, folder: Path) -> Path:
    """What a crash at this moment would leave on the disk."""
    folder.mkdir()
    for name in (path.name, f"{path.name}-wal"):
        if path.with_name(name).exists():
            shutil.copy(path.with_name(name), folder / name)
    return folder / path.name
