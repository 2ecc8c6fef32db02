"""Golden stores: SQLite files of earlier versions are read, and written as ever (M24).

`ana` is the store of a live node of Thyme-DCS, `solo` that of a node that is its own server.
`--rewrite` writes the files anew.
"""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import msgspec
import pytest

from tests.golden.frozen import FOLDER, Frozen, read
from tests.golden.stores import (
    ALONE,
    FILES,
    SOLO_ID,
    START_US,
    TABLES,
    TOWN,
    WRITERS,
    Applications,
    alone_node,
    dump,
    identity,
    plain,
    town_node,
)
from thyme.model.ids import Key, ObjectId
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as asked
from thyme.protocol.node import Node
from thyme.storage.node_profile import NodeProfile, load_profile
from thyme.storage.sqlite.store import SqliteStore
from thyme.substrates.common.catalogue import OBJECTS

FILE = "stores.json"
ANA, RUI = identity("ana").node_id, identity("rui").node_id
HOMES = {"ana": NodeProfile(TOWN, ANA), "solo": NodeProfile(ALONE, SOLO_ID)}


def packed(name: str) -> Path:
    return FOLDER / f"{name}.thyme.gz"


@pytest.fixture
def earlier(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of a file written by an earlier version."""
    path = tmp_path / request.param
    path.write_bytes(gzip.decompress(packed(request.param).read_bytes()))
    return path


def test_today_s_nodes_write_what_they_always_wrote(frozen: Frozen, tmp_path: Path) -> None:
    for write in WRITERS:
        write(tmp_path)

    for name in FILES:
        if frozen.rewrite:
            data = (tmp_path / name).read_bytes()
            packed(name).write_bytes(gzip.compress(data, mtime=0))
        frozen.check(FILE, name, dump(tmp_path / name))


@pytest.mark.parametrize("earlier", FILES, indirect=True)
def test_the_records_of_an_earlier_file_are_read(earlier: Path) -> None:
    expected = read(FILE)[earlier.name]["record"]
    store = SqliteStore(earlier)
    found = {
        f"{table.name} | {key}": plain(msgspec.msgpack.decode(msgspec.msgpack.encode(record)))
        for table in TABLES
        for key, record in store.load(table)
    }
    history = {f"object | {metadata.key}" for metadata in store.open_history(OBJECTS)}
    home = load_profile(store)
    store.close()

    assert found == expected
    assert history == {name for name in expected if name.startswith("object | ")}
    assert home == HOMES[earlier.name]


@pytest.mark.parametrize("earlier", FILES, indirect=True)
def test_the_records_of_an_earlier_file_are_written_again_byte_for_byte(earlier: Path) -> None:
    with sqlite3.connect(earlier) as db:
        before = set(db.execute("SELECT shelf, key, value FROM record"))
    store = SqliteStore(earlier)
    for table in TABLES:
        for key, record in list(store.load(table)):
            store.put(table, key, record)
    store.commit()
    store.close()
    with sqlite3.connect(earlier) as db:
        after = set(db.execute("SELECT shelf, key, value FROM record"))
    db.close()

    assert after == before


def test_every_kind_of_record_is_in_one_of_the_files() -> None:
    names = {name.partition(" | ")[0] for file in read(FILE).values() for name in file["record"]}

    assert names == {table.name for table in TABLES}
    for table in ("chunk", "slots", "posting", "life_end", "data"):
        assert all(file[table] for file in read(FILE).values())


def going_on(node: Node, store: SqliteStore) -> Applications:
    """Starts a node from an earlier store, some minutes later."""
    apps = Applications(START_US + 600 * SECOND_US)
    apps.add(node, store)
    apps.run(8)
    return apps


@pytest.mark.parametrize("earlier", ["solo"], indirect=True)
def test_a_world_of_one_goes_on_where_it_was(earlier: Path) -> None:
    store = SqliteStore(earlier)
    apps = going_on(alone_node(store, 2), store)

    found = apps.search(SOLO_ID, "goal")
    assert list(found) == [f"photo{n}" for n in (14, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 1, 0)]
    assert list(apps.search(SOLO_ID, "tag1 & goal")) == ["photo11", "photo6", "photo1"]
    assert apps.retrieve(SOLO_ID, found["photo0"]) == b"photo0"
    for oid, state in (("photo2", "deleted"), ("photo3", "there"), ("photo99", "unknown")):
        known = apps.ask(SOLO_ID, asked.Lookup, key=Key(ObjectId(oid), SOLO_ID))
        assert known.state == state
    [held] = apps.ask(SOLO_ID, asked.ListSubscriptions)
    assert " | ".join(map(str, held.conjunctions)) == "goal & !replay"
    apps.told[SOLO_ID].clear()
    assert apps.ask(SOLO_ID, asked.Resume, sid=held.sid) == asked.SubscriptionStarted(held.sid, 13)
    assert not any(isinstance(told, asked.NotificationEvent) for told in apps.told[SOLO_ID])
    store.close()


@pytest.mark.parametrize("earlier", ["ana"], indirect=True)
def test_a_node_of_a_live_world_goes_on_where_it_was(earlier: Path) -> None:
    store = SqliteStore(earlier)
    apps = going_on(town_node("ana", store, 2), store)

    found = apps.search(ANA, "goal")
    assert list(found) == [f"photo{n}" for n in (11, 10, 9, 8, 7, 6, 2, 1, 0)]
    assert apps.retrieve(ANA, found["photo8"]) == b"photo8"
    assert apps.ask(ANA, asked.Lookup, key=Key(ObjectId("photo4"), RUI)).state == "deleted"
    [held] = apps.ask(ANA, asked.ListSubscriptions)
    assert " | ".join(map(str, held.conjunctions)) == "eder | goal & !replay"
    apps.told[ANA].clear()
    assert apps.ask(ANA, asked.Resume, sid=held.sid) == asked.SubscriptionStarted(held.sid, 9)
    assert not any(isinstance(told, asked.NotificationEvent) for told in apps.told[ANA])
    store.close()
