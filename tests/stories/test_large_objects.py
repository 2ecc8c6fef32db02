"""Large objects in Thyme-ES and Thyme-LS: sent, verified and resumed in chunks (M37)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from tests.builders import ALICE, BOB, CAROL
from tests.links import Links
from thyme.model.errors import CorruptError, NotFoundError, RejectedError
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Limits, Metadata
from thyme.model.object_chunks import CHUNK_BYTES, LARGE_BYTES_MAX, chunk_count
from thyme.model.tags import as_tags
from thyme.protocol import app_interface as app
from thyme.protocol.messages import common as wire
from thyme.storage.store import MemoryStore
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsNode
from thyme.substrates.factory import with_dsdv
from thyme.substrates.ls.config import ROBUST as LS_ROBUST
from thyme.substrates.ls.node import LsNode

SERVER, RELAY = NodeId(b"server"), NodeId(b"relay")
LIMITS = Limits(data_bytes_max=LARGE_BYTES_MAX)
BROKER = BrokerConfig(limits=LIMITS, skew_us=10**9)
ES = replace(ES_ROBUST, limits=LIMITS, broker=BROKER, in_chunks=True)
LS = replace(LS_ROBUST, limits=LIMITS, broker=BROKER, in_chunks=True)
MOVIE = b"".join(bytes([number]) * CHUNK_BYTES for number in range(18)) + b"the end"
COUNT = chunk_count(len(MOVIE))


class Net:
    """Nodes with their stores, and what their applications were told."""

    def __init__(self, links: list[tuple[NodeId, NodeId]], *, es: bool, loss: float = 0.0) -> None:
        self.links = Links(links, loss=loss)
        self._es = es
        self.stores: dict[NodeId, MemoryStore] = {}
        self.told: dict[int, app.Finished | app.Failed] = {}
        self._next_id = 0
        self.sent: list[tuple[NodeId, wire.Message]] = []

    def start(self, *names: NodeId) -> None:
        for name in names:
            store = self.stores.setdefault(name, MemoryStore())
            rng = Random(name)
            node = (
                EsNode(name, SERVER, store, rng, ES) if self._es else LsNode(name, store, rng, LS)
            )
            self.links.add(with_dsdv(node, rng), self._on_told)
        self.links.run(20)

    def _on_told(self, event: app.AppEvent) -> None:
        if isinstance(event, app.Finished | app.Failed):
            self.told[event.request_id] = event

    def ask(self, node: NodeId, make: Callable[[int], app.AppRequest], seconds: float = 5) -> int:
        self._next_id += 1
        self.links.ask(node, make(self._next_id))
        self.links.run(seconds)
        return self._next_id

    def value(
        self, node: NodeId, make: Callable[[int], app.AppRequest], seconds: float = 5
    ) -> object:
        told = self.told[self.ask(node, make, seconds)]
        assert isinstance(told, app.Finished), told
        return told.value

    def upload(self, node: NodeId) -> None:
        for start in range(0, len(MOVIE), CHUNK_BYTES):
            self._next_id += 1
            chunk = MOVIE[start : start + CHUNK_BYTES]
            self.links.ask(node, app.UploadChunk(request_id=self._next_id, upload="u", data=chunk))
        self.links.run(0.01)

    def insert(self, node: NodeId, seconds: float = 10) -> Metadata:
        self.upload(node)
        found_key = self.value(node, inserted, seconds)
        assert isinstance(found_key, Key)
        found = self.value(node, lambda number: app.Lookup(request_id=number, key=found_key))
        assert isinstance(found, app.LookupResult)
        assert found.metadata is not None
        return found.metadata

    def chunk(self, node: NodeId, metadata: Metadata, index: int, seconds: float = 5) -> int:
        return self.ask(
            node,
            lambda number: app.RetrieveChunk(request_id=number, metadata=metadata, index=index),
            seconds,
        )

    def held(self, node: NodeId, metadata: Metadata) -> int:
        held = self.stores[node].chunks.held(metadata.digest)
        return 0 if held is None else held.count


def inserted(number: int) -> app.InsertUploaded:
    return app.InsertUploaded(request_id=number, data=b"", tags=as_tags(["movie"]), upload="u")


def whole(number: int, metadata: Metadata) -> app.Retrieve:
    return app.Retrieve(request_id=number, metadata=metadata)


@pytest.mark.parametrize("es", [True, False], ids=["ES", "LS"])
def test_m37_a_large_object_crosses_two_lossy_hops_in_chunks(es: bool) -> None:
    net = Net([(ALICE, RELAY), (RELAY, SERVER), (RELAY, BOB)], es=es, loss=0.05)
    net.start(ALICE, RELAY, SERVER, BOB)

    metadata = net.insert(ALICE, seconds=60)
    assert net.held(SERVER, metadata) == (COUNT if es else 0)
    assert net.value(BOB, lambda number: whole(number, metadata), 60) == MOVIE
    assert net.stores[RELAY].chunks.stored_bytes() == {}


def test_m37_a_range_needs_only_its_chunks() -> None:
    net = Net([(ALICE, BOB)], es=False)
    net.start(ALICE, BOB)
    metadata = net.insert(ALICE)

    told = net.told[net.chunk(BOB, metadata, 7)]
    assert told == app.Finished(told.request_id, MOVIE[7 * CHUNK_BYTES : 8 * CHUNK_BYTES])
    assert net.held(BOB, metadata) == 1


def test_m37_a_retrieve_goes_on_where_it_was_when_its_node_was_killed() -> None:
    net = Net([(ALICE, BOB)], es=False)
    net.start(ALICE, BOB)
    metadata = net.insert(ALICE)
    for index in range(5):
        net.chunk(BOB, metadata, index, 0.5)
    net.links.remove(BOB)
    net.start(BOB)
    net.links.remove(ALICE)  # what is here needs nobody

    assert net.held(BOB, metadata) == 5
    assert isinstance(net.told[net.chunk(BOB, metadata, 4)], app.Finished)
    waiting = net.chunk(BOB, metadata, 5, 30)
    assert waiting not in net.told
    net.start(ALICE)
    assert isinstance(net.told[waiting], app.Finished)


def test_m37_an_insert_at_the_server_goes_on_when_the_server_was_killed() -> None:
    net = Net([(ALICE, SERVER)], es=True)
    net.start(ALICE, SERVER)
    net.upload(ALICE)
    asked = net.ask(ALICE, inserted, 0)
    server = net.stores[SERVER].chunks
    while sum(server.stored_bytes().values()) < 3 * CHUNK_BYTES:
        net.links.run(0.001)
    [(digest, before)] = server.stored_bytes().items()
    assert before < len(MOVIE)

    net.links.remove(SERVER)
    net.links.run(5)
    assert server.stored_bytes() == {digest: before}
    net.start(SERVER)
    net.links.run(20)
    assert isinstance(net.told[asked], app.Finished)
    assert server.stored_bytes() == {digest: len(MOVIE)}


def test_m37_nodes_that_fetched_an_object_serve_it_also_in_part() -> None:
    net = Net([(ALICE, BOB), (BOB, CAROL), (ALICE, CAROL)], es=False)
    net.start(ALICE, BOB, CAROL)
    metadata = net.insert(ALICE)
    for index in range(COUNT // 2):
        net.chunk(BOB, metadata, index, 0.2)

    half = COUNT // 2
    net.chunk(CAROL, metadata, half)  # Carol learns from Alice that Bob has chunks
    net.links.remove(ALICE)
    told = [net.told.get(net.chunk(CAROL, metadata, index, 20)) for index in range(3)]
    assert all(isinstance(event, app.Finished) for event in told)


def test_m37_bytes_that_are_not_the_chunk_are_refused_and_another_holder_is_asked() -> None:
    net = Net([(ALICE, SERVER), (BOB, SERVER), (ALICE, BOB)], es=True)
    net.start(ALICE, SERVER, BOB)
    metadata = net.insert(ALICE)
    damaged = net.stores[SERVER].chunks
    damaged.write(metadata.digest, 0, b"\xff" * CHUNK_BYTES)

    told = net.told[net.chunk(BOB, metadata, 0, 20)]
    assert isinstance(told, app.Finished)  # from Alice, who published it
    assert told.value == MOVIE[:CHUNK_BYTES]
    net.links.remove(ALICE)
    damaged.write(metadata.digest, 1, b"\xff" * CHUNK_BYTES)
    failed = net.told[net.chunk(BOB, metadata, 1, 90)]
    assert isinstance(failed, app.Failed)


def test_m19_a_chunk_damaged_on_disk_is_fetched_again() -> None:
    net = Net([(ALICE, BOB)], es=False)
    net.start(ALICE, BOB)
    metadata = net.insert(ALICE)
    net.chunk(BOB, metadata, 2)
    net.stores[BOB].chunks.write(metadata.digest, 2, b"\xff" * CHUNK_BYTES)

    told = net.told[net.chunk(BOB, metadata, 2)]
    assert isinstance(told, app.Finished)
    assert told.value == MOVIE[2 * CHUNK_BYTES : 3 * CHUNK_BYTES]


def test_m14_a_deleted_large_object_frees_its_space_unless_another_has_the_same_content() -> None:
    net = Net([(ALICE, BOB)], es=False)
    net.start(ALICE, BOB)
    first, second = net.insert(ALICE), net.insert(ALICE)
    assert first.digest == second.digest
    chunks = net.stores[ALICE].chunks

    net.value(ALICE, lambda number: app.Delete(request_id=number, key=first.key))
    assert chunks.stored_bytes() == {first.digest: len(MOVIE)}
    net.value(ALICE, lambda number: app.Delete(request_id=number, key=second.key))
    assert chunks.stored_bytes() == {}
    refused = net.told[net.chunk(BOB, first, 0, 20)]
    assert isinstance(refused, app.Failed)
    assert refused.code == NotFoundError.code


def test_m25_uploads_beyond_the_limit_and_unknown_ones_are_refused() -> None:
    net = Net([(ALICE, BOB)], es=False)
    net.start(ALICE, BOB)
    unknown = net.told[
        net.ask(
            ALICE,
            lambda number: app.InsertUploaded(
                request_id=number, data=b"", tags=as_tags(["a"]), upload="nothing"
            ),
        )
    ]
    assert isinstance(unknown, app.Failed)
    assert unknown.code == NotFoundError.code


def test_m37_the_cache_drops_the_object_unused_for_longest_and_keeps_stored_ones() -> None:
    store = MemoryStore()
    cache = ChunkCache(store, bytes_max=len(MOVIE))
    kept = cache.add_whole("kept", b"k" * len(MOVIE), LARGE_BYTES_MAX)
    metadata = Metadata(Key.parse("kept@aa"), as_tags(["a"]), b"", 0, kept.size, kept.digest)
    cache.add_object(metadata)
    old = cache.add_whole("old", b"o" * len(MOVIE), LARGE_BYTES_MAX)
    new = cache.add_whole("new", b"n" * len(MOVIE), LARGE_BYTES_MAX)
    cache.trim()
    assert set(store.chunks.stored_bytes()) == {kept.digest, new.digest}
    assert old.digest not in store.chunks.stored_bytes()

    again = ChunkCache(store, bytes_max=0)
    again.trim()
    assert set(store.chunks.stored_bytes()) == {kept.digest}


def test_m25_an_upload_is_dropped_when_it_exceeds_the_limit() -> None:
    cache = ChunkCache(MemoryStore())
    cache.append_upload("big", b"x" * CHUNK_BYTES, CHUNK_BYTES)
    with pytest.raises(RejectedError, match=f"at most {CHUNK_BYTES} bytes"):
        cache.append_upload("big", b"x", CHUNK_BYTES)
    with pytest.raises(NotFoundError):
        cache.finish_upload("big")


def test_m19_a_damaged_chunk_is_never_returned() -> None:
    store = MemoryStore()
    cache = ChunkCache(store)
    content = cache.add_whole("movie", MOVIE, LARGE_BYTES_MAX)
    store.chunks.write(content.digest, 3, b"\xff" * CHUNK_BYTES)
    with pytest.raises(CorruptError):
        cache.read_verified(content.digest, 3)
    assert not cache.is_complete(content.digest)
