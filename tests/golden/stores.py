"""Stores for the golden tests: nodes that fill every table of their SQLite files.

Three live nodes of Thyme-DCS, and a node that is its own server; in virtual time, with fixed keys
and seeds.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from thyme.live.keys.identity import SEED_BYTES, Identity
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.live.node_factory import make_node
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Metadata
from thyme.model.rng import derive_rng
from thyme.model.tags import as_tags
from thyme.model.time_frames import SECOND_US, TimeFrame
from thyme.model.worlds import Area, WorldInfo
from thyme.protocol import app_interface as asked
from thyme.protocol.node import Node
from thyme.query.query import Query
from thyme.sim.networks.ideal_network import IdealNetwork
from thyme.storage import node_profile as homes
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import RecordTable
from thyme.substrates.common import broker, catalogue, quotas, subscriber
from thyme.substrates.dcs.client import deletion_log, key_choice
from thyme.substrates.dcs.state import (
    cell_index,
    proxied_cells,
    replica_store,
    replication_lists,
    stored_cell,
)
from thyme.substrates.solo import SoloConfig, make_solo_node

START_US = 1_468_187_340_000_000
TABLES: tuple[RecordTable[Any], ...] = (
    homes._WORLD,
    homes._NODE,
    catalogue.OBJECTS,
    catalogue.OBJECT_TOMBSTONES,
    broker.SUBSCRIPTIONS,
    broker.SUBSCRIPTION_TOMBSTONES,
    quotas.PEER_USAGE,
    subscriber.OWN_SUBSCRIPTIONS,
    subscriber.CONSUMED,
    stored_cell.STORED_CELL,
    key_choice.SUBSCRIPTION_KEYS,
    proxied_cells.PROXIED_CELLS,
    replication_lists.REPLICATION_LISTS,
    cell_index.SUBSCRIBER_CELLS,
    deletion_log.DELETIONS,
    replica_store.REPLICAS,
    replica_store.REPLICA_TOMBSTONES,
)
"""The tables of nodes of live worlds and of local worlds."""
TOWN = WorldInfo("lisbon", "w1", area=Area(80.0, 80.0), cell_m=40.0, substrate="dcs")
ALONE = WorldInfo("porto", "w2")
PLACES = {"ana": (10.0, 10.0), "rui": (20.0, 20.0), "eva": (70.0, 70.0)}
"""Two nodes in one cell, one in another, and two empty cells they are the proxies of."""
SOLO_ID = NodeId(b"solo node 1234567")
CHUNK_SIZE = 4
"""Small, so that some of the objects are in chunks of the archive."""
FILES = ("ana", "solo")


class Applications:
    """The applications of the nodes in a network, which send one request after the other."""

    def __init__(self, start_us: int = START_US) -> None:
        self.network = IdealNetwork(seed=5, start_us=start_us)
        self.told: dict[NodeId, list[asked.AppEvent]] = {}
        self._asks = 0

    def add(self, node: Node, store: SqliteStore) -> None:
        """Starts a node."""
        news = self.told.setdefault(node.node_id, [])
        self.network.add(node, store, news.append)

    def run(self, seconds: float) -> None:
        """Lets time pass."""
        self.network.run(self.network.now_us + round(seconds * SECOND_US))

    def ask(self, node_id: NodeId, make: type[Any], **fields: Any) -> Any:
        """Sends a request; returns its result."""
        self._asks += 1
        self.network.send_request(node_id, make(request_id=self._asks, **fields))
        self.run(3)
        for told in self.told[node_id]:
            if isinstance(told, asked.Failed) and told.request_id == self._asks:
                return told.code
            if isinstance(told, asked.Finished) and told.request_id == self._asks:
                return told.value
        return "nothing"

    def insert(self, node_id: NodeId, oid: str, *tags: str, **fields: Any) -> Key:
        """Inserts an object whose bytes are its identifier."""
        words: Any = {"data": oid.encode(), "tags": as_tags(tags), "oid": ObjectId(oid), **fields}
        key = self.ask(node_id, asked.Insert, **words)
        assert isinstance(key, Key), key
        return key

    def subscribe(self, node_id: NodeId, query: str, frame: TimeFrame) -> Any:
        """Subscribes; returns the subscription's identifier."""
        conjunctions = Query(query).conjunctions
        words: Any = {"conjunctions": conjunctions, "frame": frame, "batch": 20}
        return self.ask(node_id, asked.Subscribe, **words).sid

    def search(self, node_id: NodeId, query: str) -> dict[str, Metadata]:
        """Searches; returns the matching objects, newest first."""
        words: Any = {"conjunctions": Query(query).conjunctions, "frame": TimeFrame(), "count": 99}
        found = self.ask(node_id, asked.Search, **words)
        return {note.key.oid: note.metadata for note in found}

    def retrieve(self, node_id: NodeId, metadata: Metadata) -> Any:
        """Retrieves an object; returns its bytes, or the error code."""
        return self.ask(node_id, asked.Retrieve, metadata=metadata)

    def take(self, node_id: NodeId) -> None:
        """Marks all notifications of a node's application as consumed."""
        for told in list(self.told[node_id]):
            if isinstance(told, asked.NotificationEvent):
                note = told.notification
                self.network.send_request(node_id, asked.MarkConsumed(sid=note.sid, key=note.key))


def identity(name: str) -> Identity:
    """A fixed key for each node."""
    return Identity(name.encode().ljust(SEED_BYTES, b"."))


def town_node(name: str, store: SqliteStore, life: int) -> Node:
    """A node as `thyme node` makes it."""
    me = identity(name)
    signer = Ed25519RecordSigner(me, TOWN.world_id)
    rng = derive_rng(5, name, life)
    return make_node(TOWN, me.node_id, store, rng, PLACES[name], signer=signer)


def alone_node(store: SqliteStore, life: int) -> Node:
    """A node as `thyme.join` makes it for a local world."""
    return make_solo_node(SOLO_ID, store, derive_rng(5, "solo", life), SoloConfig())


def write_town(folder: Path) -> None:
    """Writes the stores of three nodes of Thyme-DCS."""
    apps = Applications()
    ana, rui, eva = (identity(name).node_id for name in PLACES)
    stores = {name: SqliteStore(folder / name, chunk_size=CHUNK_SIZE) for name in PLACES}
    for name, store in stores.items():
        homes.save_profile(store, homes.NodeProfile(TOWN, identity(name).node_id))
        apps.add(town_node(name, store, 1), store)
    apps.run(8)
    always = TimeFrame()
    for node_id in (ana, rui, eva):
        apps.subscribe(node_id, "goal & !replay | eder", always)
    ended = apps.subscribe(ana, "goal", TimeFrame(START_US, None))
    elsewhere = apps.subscribe(eva, "save & goal", always)
    for number in range(12):
        author = (ana, rui, eva)[number % 3]
        tags = ("goal", f"tag{number % 5}", *(("replay",) if number == 4 else ()))
        life_us = 3_600 * SECOND_US if number % 4 == 0 else None
        apps.insert(author, f"photo{number}", *tags, summary=b"th", ttl_us=life_us)
    for node_id, oid in ((ana, "photo3"), (rui, "photo4"), (eva, "photo5")):
        assert apps.ask(node_id, asked.Delete, key=Key(ObjectId(oid), node_id)) is None
    for node_id, sid in ((ana, ended), (eva, elsewhere)):
        assert apps.ask(node_id, asked.Unsubscribe, sid=sid) is None
    for node_id, oid in ((ana, "photo8"), (eva, "photo6"), (eva, "photo7")):
        assert apps.retrieve(node_id, apps.search(node_id, "goal")[oid]) == oid.encode()
    for node_id in (ana, rui, eva):
        apps.take(node_id)
    apps.run(12)  # replicas are announced
    for store in stores.values():
        store.close()


def write_alone(folder: Path) -> None:
    """Writes the store of a node that is its own server."""
    apps = Applications()
    store = SqliteStore(folder / "solo", chunk_size=CHUNK_SIZE)
    homes.save_profile(store, homes.NodeProfile(ALONE, SOLO_ID))
    apps.add(alone_node(store, 1), store)
    apps.subscribe(SOLO_ID, "goal & !replay", TimeFrame())
    ended = apps.subscribe(SOLO_ID, "eder", TimeFrame(None, START_US + 7_200 * SECOND_US))
    for number in range(15):
        life_us = 3_600 * SECOND_US if number % 4 == 0 else None
        tags = ("goal", f"tag{number % 5}")
        apps.insert(SOLO_ID, f"photo{number}", *tags, summary=b"th", ttl_us=life_us)
    for oid in ("photo2", "photo13"):
        assert apps.ask(SOLO_ID, asked.Delete, key=Key(ObjectId(oid), SOLO_ID)) is None
    assert apps.ask(SOLO_ID, asked.Unsubscribe, sid=ended) is None
    apps.take(SOLO_ID)
    apps.run(1)
    store.close()


WRITERS: tuple[Callable[[Path], None], ...] = (write_town, write_alone)


def dump(path: Path) -> dict[str, Any]:
    """Every row of a file, with its records as plain data, without checksums."""
    db = sqlite3.connect(path)
    try:
        tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
        found: dict[str, Any] = {
            table: [list(map(_plain, row)) for row in db.execute(f"SELECT * FROM {table}")]
            for (table,) in tables.fetchall()
        }
        for pragma in ("application_id", "user_version"):
            found[pragma] = db.execute(f"PRAGMA {pragma}").fetchone()[0]
    finally:
        db.close()
    found["record"] = {
        f"{table} | {key}": plain(msgspec.msgpack.decode(bytes.fromhex(value)[4:]))
        for _, table, key, value in found["record"]
        if value  # the archive's position has none
    }
    return found


def plain(value: Any) -> Any:
    """Plain data for JSON, with bytes in hexadecimal."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    return value


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else value
