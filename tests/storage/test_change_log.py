"""The log of changes of the SQLite store, from which they are written to the tables together."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from tests.builders import photo
from tests.storage.files import PHOTOS, crash_image, with_sql
from thyme.model.errors import StoreError
from thyme.model.metadata import Metadata
from thyme.storage.sqlite import change_log
from thyme.storage.sqlite.disk_reserve import RESERVE_BYTES
from thyme.storage.sqlite.store import SqliteStore, read_table
from thyme.storage.store import MemoryStore, RecordTable, Store

OTHERS = RecordTable("other photo", Metadata)
KEYS = [f"k{number}" for number in range(12)]
Change = Callable[[Store], None]


def everything(store: Store) -> list[object]:
    """All that a store has, read in all ways."""
    tables = [list(store.load(table)) for table in (PHOTOS, OTHERS)]
    records = [store.get(PHOTOS, key) for key in KEYS]
    return [*tables, records, [store.get_data(key) for key in KEYS]]


def random_change(rng: Random) -> Change:
    key, number = rng.choice(KEYS), rng.randrange(1_000)
    table = rng.choice((PHOTOS, OTHERS))
    size = rng.choice((0, 10, change_log.VALUE_BYTES_MAX + 1))
    changes: list[Change] = [
        lambda store: store.put(table, key, photo(number)),
        lambda store: store.put_at_commit(table, key, photo(number)),
        lambda store: store.remove(table, key),
        lambda store: store.put_data(key, bytes([number % 256]) * size),
        lambda store: store.remove_data(key),
    ]
    return rng.choice(changes)


@pytest.mark.parametrize("seed", range(10))
def test_m24_whatever_is_in_the_log_or_the_tables_is_read_and_survives_a_kill(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "CHANGES_MAX", 7)
    rng, path = Random(seed), tmp_path / "s.thyme"
    memory, store = MemoryStore(), SqliteStore(path)
    for commit in range(25):
        for _ in range(rng.randrange(6)):
            change = random_change(rng)
            change(memory)
            change(store)
            assert everything(store) == everything(memory)
        store.commit()
        if commit % 5 == 0:
            image = SqliteStore(crash_image(path, tmp_path / f"image{commit}"))
            assert everything(image) == everything(memory)
            image.close()
        if commit % 7 == 0:
            store.close()
            store = SqliteStore(path)
        assert everything(store) == everything(memory)
    store.close()


def test_m24_a_commit_is_one_row_of_the_log_until_there_are_many_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "CHANGES_MAX", 5)
    store, rows = SqliteStore(tmp_path / "s.thyme"), []
    for number in range(4):
        store.put(PHOTOS, f"k{number}", photo(number))
        store.put_data(f"k{number}", b"data")
        store.commit()
        counts = [store.read(f"SELECT count(*) FROM {name}") for name in ("change", "record")]
        rows.append([count for [(count,)] in counts])
    store.commit()

    assert rows == [[1, 0], [2, 0], [0, 3], [1, 3]]
    assert read_table(tmp_path / "s.thyme", PHOTOS) == [photo(number) for number in range(4)]
    store.close()
    assert read_table(tmp_path / "s.thyme", PHOTOS) == [photo(number) for number in range(4)]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE change SET value = x'00' || value",
        "UPDATE change SET number = number + 1",
        "UPDATE change SET value = 7",
        "DROP TABLE change",
    ],
)
def test_m25_a_damaged_log_is_told_and_left_alone(tmp_path: Path, statement: str) -> None:
    store = SqliteStore(tmp_path / "s.thyme")
    store.put(PHOTOS, "k", photo(1))
    store.commit()
    image = with_sql(crash_image(tmp_path / "s.thyme", tmp_path / "image"), statement)
    store.close()
    before = image.read_bytes()

    for use in (SqliteStore, lambda path: read_table(path, PHOTOS)):
        with pytest.raises(StoreError, match=r"s\.thyme"):
            use(image)
    assert image.read_bytes() == before


def test_m24_changes_that_failed_are_forgotten(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "s.thyme")
    store.put(PHOTOS, "k0", photo(0))
    store.commit()
    [pages] = store._db.execute("PRAGMA page_count").fetchone()
    store._db.execute(f"PRAGMA max_page_count = {pages + 1}")
    for number in range(1, 40):
        store.put(PHOTOS, f"k{number}", photo(number, summary=bytes(1_000)))
    with pytest.raises(StoreError, match="full"):
        store.commit()

    assert list(store.load(PHOTOS)) == [("k0", photo(0))]
    store.close()
    assert read_table(tmp_path / "s.thyme", PHOTOS) == [photo(0)]


def test_m29_what_was_just_removed_is_room_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = change_log.VALUE_BYTES_MAX // 2
    store = SqliteStore(tmp_path / "s.thyme")
    for number in range(10):
        store.put_data(f"k{number}", bytes(size))
    store.commit()
    store.close()
    store = SqliteStore(tmp_path / "s.thyme")
    full = SimpleNamespace(f_bavail=RESERVE_BYTES - 1, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    assert not store.has_space(15 * size)  # the pages of the log are free
    for number in range(10):
        store.remove_data(f"k{number}")
    store.commit()

    assert store.has_space(15 * size)
    store.close()
