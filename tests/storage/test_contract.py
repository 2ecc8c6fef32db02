"""What every store does, in memory or in a file (M24)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.builders import ALICE, conjunctions, frame, photo, subscribe
from thyme.model.ids import SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.worlds import Area, WorldInfo
from thyme.protocol.app_interface import SubscriptionInfo
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, RecordTable, Store
from thyme.substrates.common.tombstones import Tombstone

PHOTOS = RecordTable("photo", Metadata)
OTHERS = RecordTable("other photo", Metadata)

Reopen = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """Opens the store, and after a close opens the same one again."""
    memory = MemoryStore()
    opened: list[Store] = []

    def open_again() -> Store:
        opened.append(memory if request.param == "memory" else SqliteStore(tmp_path / "s.thyme"))
        return opened[-1]

    yield open_again
    for store in opened:
        store.close()


@pytest.fixture
def store(reopen: Reopen) -> Store:
    return reopen()


def table_of(store: Store, table: RecordTable[Metadata] = PHOTOS) -> list[tuple[str, Metadata]]:
    return list(store.load(table))


def test_a_new_store_is_empty(store: Store) -> None:
    assert table_of(store) == []
    assert store.get_data("a") is None


def test_of_a_record_put_for_the_commit_the_last_version_is_stored(reopen: Reopen) -> None:
    store = reopen()
    for number in (1, 2, 3):
        store.put_at_commit(PHOTOS, "k", photo(number))
    assert store.get(PHOTOS, "k") == photo(3)
    store.put_at_commit(PHOTOS, "k", photo(4))
    store.commit()
    store.close()
    again = reopen()
    assert table_of(again) == [("k", photo(4))]
    again.put_at_commit(PHOTOS, "k", photo(5))
    again.remove(PHOTOS, "k")
    again.put_at_commit(PHOTOS, "other", photo(6))
    assert table_of(again) == [("other", photo(6))]


def test_records_are_loaded_in_the_order_they_were_put(store: Store) -> None:
    for number in (3, 1, 2):
        store.put(PHOTOS, f"k{number}", photo(number))

    assert table_of(store) == [("k3", photo(3)), ("k1", photo(1)), ("k2", photo(2))]


def test_a_record_that_is_replaced_keeps_its_place(store: Store) -> None:
    for name in ("a", "b", "c"):
        store.put(PHOTOS, name, photo(1))
    store.put(PHOTOS, "b", photo(2))

    assert table_of(store) == [("a", photo(1)), ("b", photo(2)), ("c", photo(1))]


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_a_record_that_is_removed_and_put_again_goes_to_the_end(store: Store, name: str) -> None:
    for other in ("a", "b", "c"):
        store.put(PHOTOS, other, photo(1))
    store.remove(PHOTOS, name)
    store.put(PHOTOS, name, photo(1))

    rest = [other for other in ("a", "b", "c") if other != name]
    assert [key for key, _ in table_of(store)] == [*rest, name]


def test_removing_what_is_not_there_is_no_error(store: Store) -> None:
    store.put(PHOTOS, "a", photo(1))
    store.remove(PHOTOS, "b")
    store.remove(OTHERS, "a")
    store.remove_data("a")

    assert table_of(store) == [("a", photo(1))]


def test_tables_are_apart(store: Store) -> None:
    store.put(PHOTOS, "a", photo(1))
    store.put(OTHERS, "a", photo(2))
    store.remove(PHOTOS, "a")

    assert table_of(store) == []
    assert table_of(store, OTHERS) == [("a", photo(2))]


def test_data_lies_apart_from_records(store: Store) -> None:
    store.put(PHOTOS, "a", photo(1))
    store.put_data("a", b"pixels")
    store.remove(PHOTOS, "a")

    assert store.get_data("a") == b"pixels"
    store.remove_data("a")
    assert store.get_data("a") is None


@pytest.mark.parametrize("data", [b"", b"\x00", b"pixels\x00\xff", b"x" * 2**20])
def test_data_is_kept_byte_for_byte(reopen: Reopen, data: bytes) -> None:
    store = reopen()
    store.put_data("a", data)
    assert store.get_data("a") == data

    store.commit()
    store.close()
    assert reopen().get_data("a") == data


def test_data_put_again_is_replaced(store: Store) -> None:
    store.put_data("a", b"old")
    store.put_data("a", b"new")

    assert store.get_data("a") == b"new"


@pytest.mark.parametrize(
    "key", ["", "a b", "é", "日本@00ff", "a'b\"c; DROP TABLE record", "%", "_"]
)
def test_a_key_may_be_any_text(store: Store, key: str) -> None:
    store.put(PHOTOS, key, photo(1))
    store.put_data(key, b"pixels")

    assert table_of(store) == [(key, photo(1))]
    assert store.get_data(key) == b"pixels"
    assert store.get_data(key + "x") is None


def test_a_table_may_be_changed_while_it_is_read(store: Store) -> None:
    for number in range(3):
        store.put(PHOTOS, f"k{number}", photo(number))

    read = []
    for key, _ in store.load(PHOTOS):
        read.append(key)
        store.remove(PHOTOS, key)
        store.put(PHOTOS, f"again {key}", photo(9))

    assert read == ["k0", "k1", "k2"]
    assert [key for key, _ in table_of(store)] == ["again k0", "again k1", "again k2"]


@pytest.mark.parametrize(
    "record",
    [
        photo(7, tags=["goal", "éder"], at_us=-5, summary=b"\x00th", data=b"x", expires_us=9),
        subscribe(1, "goal & !replay | save", frame(None, 5)),
        Tombstone("deleted", 5),
        SubscriptionInfo(SubscriptionId("s"), conjunctions("a | b & !c"), frame(1, 2), 20),
        WorldInfo("Lisboa", "w1", Area(1.5, 2.0), 0.5, None, 9),
        bytes(ALICE),
    ],
    ids=lambda record: type(record).__name__,
)
def test_m24_a_record_of_any_table_is_read_back_as_it_was_put(reopen: Reopen, record: Any) -> None:
    table: RecordTable[Any] = RecordTable("any", type(record))
    store = reopen()
    store.put(table, "k", record)
    store.commit()
    store.close()

    [(key, loaded)] = reopen().load(table)

    assert (key, loaded) == ("k", record)
    assert type(loaded) is type(record)


def test_m24_what_was_committed_is_there_when_the_store_is_opened_again(reopen: Reopen) -> None:
    store = reopen()
    for number in (3, 1, 2):
        store.put(PHOTOS, f"k{number}", photo(number))
    store.put(PHOTOS, "k1", photo(9))
    store.remove(PHOTOS, "k3")
    store.put_data("k1", b"pixels")
    store.commit()
    store.close()

    again = reopen()

    assert table_of(again) == [("k1", photo(9)), ("k2", photo(2))]
    assert again.get_data("k1") == b"pixels"


def test_committing_nothing_is_no_error(store: Store) -> None:
    store.commit()
    store.put_data("a", b"x")
    store.commit()
    store.commit()

    assert store.get_data("a") == b"x"


def test_closing_twice_is_no_error(store: Store) -> None:
    store.close()
    store.close()


keys = st.sampled_from(["a", "b", "c"])
tables = st.sampled_from([PHOTOS, OTHERS])
operations = st.lists(
    st.tuples(st.just("put"), tables, keys, st.integers(min_value=0, max_value=9).map(photo))
    | st.tuples(st.just("remove"), tables, keys)
    | st.tuples(st.just("put_data"), keys, st.binary(max_size=3))
    | st.tuples(st.just("remove_data"), keys)
    | st.tuples(st.just("commit")),
    max_size=30,
)


def contents(store: Store) -> list[Any]:
    return [*(table_of(store, table) for table in (PHOTOS, OTHERS)), *map(store.get_data, "abc")]


@settings(max_examples=60)
@given(operations)
def test_m24_the_store_in_a_file_does_what_the_one_in_memory_does(
    steps: list[tuple[Any, ...]],
) -> None:
    memory = MemoryStore()
    with TemporaryDirectory() as folder:
        file = SqliteStore(Path(folder) / "s.thyme")
        for name, *arguments in steps:
            for store in (memory, file):
                getattr(store, name)(*arguments)
            assert contents(file) == contents(memory)
        file.commit()
        file.close()
        file = SqliteStore(Path(folder) / "s.thyme")
        assert contents(file) == contents(memory)
        file.close()


def test_only_the_file_is_durable(tmp_path: Path) -> None:
    file = SqliteStore(tmp_path / "s.thyme")

    assert (MemoryStore().durable, file.durable) == (False, True)
    file.close()
