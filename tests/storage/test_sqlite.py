"""The SQLite store: transactions, one process at a time, and files it must refuse (M24, M25)."""

from __future__ import annotations

import os
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.builders import photo
from tests.storage.files import (
    DATA,
    PHOTOS,
    RECORDS,
    a_store_file,
    contents,
    crash_image,
    folder_of,
    with_sql,
)
from thyme.model.errors import StoreError
from thyme.storage.sqlite.store import SCHEMA_VERSION, SqliteStore, read_table

HOLD = """
import pathlib, sys
from thyme.storage.sqlite.store import SqliteStore
store = SqliteStore(pathlib.Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
DIE_WITH_A_LOG = """
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("CREATE TABLE notes (text)")
db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
db.execute("INSERT INTO notes VALUES ('dear diary')")
os._exit(0)
"""


def refusal(path: Path) -> StoreError:
    """The error that a file is refused with; whatever is on the disk stays as it is."""
    before = folder_of(path)
    with pytest.raises(StoreError) as caught:
        contents(path)
    assert folder_of(path) == before
    assert str(path) in str(caught.value)
    return caught.value


def test_m24_what_was_not_committed_is_forgotten(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.thyme")
    store.put(PHOTOS, "a", photo(1))
    store.put_data("a", b"old")
    store.commit()
    store.put(PHOTOS, "b", photo(2))
    store.remove(PHOTOS, "a")
    store.put_data("a", b"new")
    store.close()

    store = SqliteStore(tmp_path / "s.thyme")
    assert list(store.load(PHOTOS)) == [("a", photo(1))]
    assert store.get_data("a") == b"old"
    store.close()


def test_m24_a_crash_leaves_what_was_committed_and_nothing_else(tmp_path: Path) -> None:
    """At every moment of a store's life: before a commit the past, after it all of it."""
    path = tmp_path / "s.thyme"
    store = SqliteStore(path)
    committed: list[tuple[str, Any]] = []
    for number in range(8):
        store.put(PHOTOS, f"a{number}", photo(number))
        store.put(PHOTOS, f"b{number}", photo(number))
        before = crash_image(path, tmp_path / f"before{number}")
        assert contents(before)[0] == committed
        store.commit()
        committed += [(f"a{number}", photo(number)), (f"b{number}", photo(number))]
        after = crash_image(path, tmp_path / f"after{number}")
        assert contents(after)[0] == committed
    store.close()


def test_m24_a_crash_right_after_a_new_store_was_opened_leaves_one_that_opens(
    tmp_path: Path,
) -> None:
    store = SqliteStore(tmp_path / "s.thyme")
    image = crash_image(tmp_path / "s.thyme", tmp_path / "image")
    store.close()

    assert contents(image)[0] == []


def test_m24_a_crash_while_a_new_store_was_being_made_leaves_one_that_opens(
    tmp_path: Path,
) -> None:
    """The first transaction was written, but its rollback journal still stands: SQLite will undo
    it, which leaves an empty file."""
    path = tmp_path / "s.thyme"
    SqliteStore(path).close()
    made = path.read_bytes()
    path.write_bytes(made[:18] + b"\x01\x01" + made[20:])  # the log comes after the first commit
    journal = bytes.fromhex("d9d505f920a163d7") + struct.pack(">5I", 0, 7, 0, 512, 4096)
    path.with_name("s.thyme-journal").write_bytes(journal.ljust(512, b"\x00"))

    assert contents(path)[0] == []


def test_m24_a_disk_that_is_full_is_told_and_costs_nothing_that_was_committed(
    tmp_path: Path,
) -> None:
    path = a_store_file(tmp_path / "s.thyme")
    store = SqliteStore(path)
    [pages] = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 2}")
    store.put(PHOTOS, "half", photo(1))
    with pytest.raises(StoreError, match=r"s\.thyme.* full"):
        store.put_data("half", bytes(100_000))
    store.commit()
    store.close()

    assert contents(path) == (RECORDS, DATA)


def test_the_folder_of_a_new_store_is_made(tmp_path: Path) -> None:
    path = tmp_path / "not" / "yet" / "s.thyme"

    SqliteStore(path).close()

    assert path.exists()


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "s.thyme").touch()

    assert contents(tmp_path / "s.thyme")[0] == []


def test_a_store_that_was_closed_leaves_one_file(tmp_path: Path) -> None:
    a_store_file(tmp_path / "s.thyme")

    assert set(folder_of(tmp_path / "s.thyme")) == {"s.thyme"}


def test_m25_a_store_that_another_process_uses_is_refused_until_it_is_free(tmp_path: Path) -> None:
    path = a_store_file(tmp_path / "s.thyme")
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    try:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreError, match=r"s\.thyme is in use"):
            SqliteStore(path)
    finally:
        other.communicate()

    assert contents(path) == (RECORDS, DATA)


def test_m25_an_open_store_is_for_its_process_alone(tmp_path: Path) -> None:
    path = a_store_file(tmp_path / "s.thyme")
    store = SqliteStore(path)

    with pytest.raises(StoreError, match=r"s\.thyme is in use"):
        SqliteStore(path)
    store.put(PHOTOS, "more", photo(1))
    store.commit()
    store.close()

    assert contents(path)[0] == [*RECORDS, ("more", photo(1))]


def test_m25_a_lock_that_a_process_left_behind_locks_nobody_out(tmp_path: Path) -> None:
    path = a_store_file(tmp_path / "s.thyme")
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"held\n"
    other.kill()
    other.communicate()

    assert contents(path) == (RECORDS, DATA)


def test_m21_a_table_may_be_read_while_another_uses_the_store(tmp_path: Path) -> None:
    path = a_store_file(tmp_path / "s.thyme")
    records = [record for _, record in RECORDS]
    assert read_table(path, PHOTOS) == records

    store = SqliteStore(path)
    store.put(PHOTOS, "more", photo(1))
    assert read_table(path, PHOTOS) == records
    store.commit()
    assert read_table(path, PHOTOS) == [*records, photo(1)]
    store.close()


def test_reading_a_table_changes_nothing(tmp_path: Path) -> None:
    path = a_store_file(tmp_path / "s.thyme")
    before = path.read_bytes()

    read_table(path, PHOTOS)

    assert path.read_bytes() == before
    assert contents(path) == (RECORDS, DATA)


def test_m25_a_table_is_not_read_from_what_is_no_store(tmp_path: Path) -> None:
    damaged = b"\x97\x92\xa2\xff\xff\xc4\x01b" + bytes(9)
    files = {
        "text": tmp_path / "text",
        "missing": tmp_path / "missing",
        "foreign": with_sql(tmp_path / "foreign", "CREATE TABLE notes (text)"),
        "no UTF-8": with_sql(
            a_store_file(tmp_path / "damaged"), "UPDATE record SET value = ?", damaged
        ),
        "number": with_sql(a_store_file(tmp_path / "number"), "UPDATE record SET value = 7"),
    }
    files["text"].write_text("The quick brown fox" * 100)

    for path in files.values():
        with pytest.raises(StoreError, match=str(path)):
            read_table(path, PHOTOS)
    assert not files["missing"].exists()


@pytest.mark.parametrize(
    "content",
    [
        b"hello",
        b"The quick brown fox jumps over the lazy dog. " * 300,
        bytes(100),
        bytes(8192),
        b"\x89PNG\r\n\x1a\n" + bytes(5000),
        b"SQLite format 3\x00",
        b"SQLite format 3\x00" + bytes(84),
        b"SQLite format 3\x00" + b"\xff" * 5000,
        b"SQLite format 2\x00" + bytes(5000),
    ],
    ids=["short", "text", "zeros", "pages", "picture", "magic", "bare", "garbage", "version 2"],
)
def test_m25_a_file_that_is_no_database_is_refused_and_left_alone(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "s.thyme"
    path.write_bytes(content)

    assert "cannot be used" in str(refusal(path)) or "not a store of Thyme" in str(refusal(path))


def test_m25_a_foreign_sqlite_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = with_sql(tmp_path / "s.thyme", "CREATE TABLE notes (text)")

    assert "is an SQLite file, but not a store of Thyme" in str(refusal(path))


def test_m25_an_empty_sqlite_file_of_another_application_is_refused_and_left_alone(
    tmp_path: Path,
) -> None:
    path = with_sql(tmp_path / "s.thyme", "PRAGMA application_id = 7")

    assert "is an SQLite file, but not a store of Thyme" in str(refusal(path))


def test_m25_a_foreign_file_whose_process_died_keeps_its_log(tmp_path: Path) -> None:
    """Its log holds what its own application has yet to recover: not ours to write back."""
    path = tmp_path / "s.thyme"
    subprocess.run([sys.executable, "-c", DIE_WITH_A_LOG, path], check=True)
    assert path.with_name("s.thyme-wal").stat().st_size > 0

    assert "not a store of Thyme" in str(refusal(path))


@pytest.mark.parametrize("version", [SCHEMA_VERSION + 1, 99, 0])
def test_m25_a_store_of_another_version_is_refused_and_left_alone(
    tmp_path: Path, version: int
) -> None:
    path = with_sql(a_store_file(tmp_path / "s.thyme"), f"PRAGMA user_version = {version}")

    assert f"has version {version}, this Thyme reads {SCHEMA_VERSION}" in str(refusal(path))


def test_m25_a_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.thyme"
    path.mkdir()

    refusal(path)


def test_m25_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("mine")
    with pytest.raises(StoreError, match="folder"):
        SqliteStore(tmp_path / "folder" / "s.thyme")

    assert (tmp_path / "folder").read_text() == "mine"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that refuses even root")
@pytest.mark.parametrize("path", [Path("/proc/s.thyme"), Path("/proc/folder/s.thyme")])
def test_m25_a_folder_that_takes_no_files_is_told(path: Path) -> None:
    with pytest.raises(StoreError, match="/proc"):
        SqliteStore(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes where it likes")
def test_m25_a_folder_without_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    try:
        with pytest.raises(StoreError, match=r"s\.thyme"):
            SqliteStore(tmp_path / "s.thyme")
    finally:
        tmp_path.chmod(0o755)


USES: list[Callable[[SqliteStore], object]] = [
    lambda store: store.put(PHOTOS, "a", photo(1)),
    lambda store: store.remove(PHOTOS, "a"),
    lambda store: list(store.load(PHOTOS)),
    lambda store: store.put_data("a", b""),
    lambda store: store.get_data("a"),
    lambda store: store.remove_data("a"),
    lambda store: store.commit(),
]


@pytest.mark.parametrize(
    "use", USES, ids=["put", "remove", "load", "put_data", "data", "remove_data", "commit"]
)
def test_m25_a_store_that_was_closed_refuses_every_use_by_name(
    tmp_path: Path, use: Callable[[SqliteStore], object]
) -> None:
    store = SqliteStore(tmp_path / "s.thyme")
    store.close()

    with pytest.raises(StoreError, match=r"s\.thyme"):
        use(store)


@pytest.mark.parametrize(
    ("statement", "value"),
    [
        ("UPDATE record SET value = ? WHERE key = 'k3'", b""),
        ("UPDATE record SET value = ? WHERE key = 'k3'", b"\xc1"),
        ("UPDATE record SET value = ? WHERE key = 'k3'", b"\x90"),
        ("UPDATE record SET value = ? WHERE key = 'k3'", "text"),
        ("UPDATE record SET value = ? WHERE key = 'k3'", 7),
        ("UPDATE record SET value = ? WHERE key = 'k3'", b"\x97\x92\xa2\xff\xff\xc4\x01b"),
        ("UPDATE record SET value = ? WHERE key = 'k3'", b"\x97" + b"\x91" * 100_000),
        ("UPDATE record SET key = ? WHERE key = 'k3'", b"\xff\xfe"),
        ("UPDATE record SET key = CAST(? AS TEXT) WHERE key = 'k3'", b"\xff\xfe"),
        ("UPDATE data SET value = ? WHERE key = 'k3'", "text"),
        ("UPDATE data SET value = ? WHERE key = 'k3'", 7),
        ("UPDATE data SET value = ? WHERE key = 'k3'", 10**12),
        ("UPDATE data SET value = ? WHERE key = 'k3'", 1.5),
    ],
    ids=[
        "nothing", "no MessagePack", "too few fields", "text", "number", "no UTF-8", "nested",
        "key of bytes", "key no UTF-8", "data of text", "data a number", "data a huge number",
        "data a float",
    ],
)  # fmt: skip
def test_m25_a_row_that_we_did_not_write_is_told(
    tmp_path: Path, statement: str, value: object
) -> None:
    path = with_sql(a_store_file(tmp_path / "s.thyme"), statement, value)

    refusal(path)


@pytest.mark.parametrize("table", ["record", "data"])
def test_m25_a_store_without_its_tables_is_refused(tmp_path: Path, table: str) -> None:
    path = with_sql(a_store_file(tmp_path / "s.thyme"), f"DROP TABLE {table}")

    refusal(path)


def test_the_file_is_an_ordinary_database_that_names_its_kind(tmp_path: Path) -> None:
    db = sqlite3.connect(a_store_file(tmp_path / "s.thyme"))

    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert db.execute("PRAGMA application_id").fetchone() == (0x74796D65,)
    assert db.execute("SELECT count(*) FROM record").fetchone() == (len(RECORDS),)
    db.close()
