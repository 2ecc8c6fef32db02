"""Large objects in Thyme-DCS: announced by their root, and fetched in chunks over cells (M37)."""

from __future__ import annotations

import msgspec
import pytest

from tests.substrates.dcs.network import DcsNetwork, Place, in_cell, tag_in
from thyme.model.errors import NotFoundError
from thyme.model.ids import Key, ObjectId
from thyme.model.metadata import Limits, Metadata
from thyme.model.object_chunks import CHUNK_BYTES, LARGE_BYTES_MAX, chunk_count
from thyme.model.tags import as_tags
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import chunks as chunk_wire
from thyme.protocol.messages import common as wire
from thyme.substrates.dcs.config import ROBUST
from thyme.substrates.dcs.state.replica_store import ReplicaRole

CONFIG = msgspec.structs.replace(
    ROBUST, limits=Limits(data_bytes_max=LARGE_BYTES_MAX), in_chunks=True
)
MOVIE = b"".join(bytes([number]) * CHUNK_BYTES for number in range(18)) + b"the end"
COUNT = chunk_count(len(MOVIE))
TAG = tag_in(2)
PLACES: dict[str, Place] = {
    "ann": in_cell(0),
    "abe": in_cell(0, 1),
    "bea": in_cell(2),
    "cat": in_cell(4),
    "dan": in_cell(6),
}
"""Ann and Abe share a cell, Bea keeps the tag, Cat and Dan are further away."""


def a_net(places: dict[str, Place] = PLACES, **options: object) -> DcsNetwork:
    return DcsNetwork(places, config=CONFIG, **options)  # type: ignore[arg-type]


def upload(net: DcsNetwork, name: str) -> None:
    for start in range(0, len(MOVIE), CHUNK_BYTES):
        chunk = MOVIE[start : start + CHUNK_BYTES]
        net.finish(name, asked.UploadChunk, upload="u", data=chunk, seconds=0.01)


def publish(net: DcsNetwork, name: str, seconds: float = 3.0, **options: object) -> Metadata:
    """Publishes the movie; returns its metadata."""
    upload(net, name)
    fields = {"data": b"", "tags": as_tags([TAG]), "upload": "u", "oid": ObjectId("movie")}
    key = net.finish(name, asked.InsertUploaded, seconds=seconds, **fields, **options)
    assert isinstance(key, Key)
    stored = net.nodes[name].replicas.get(key)
    assert stored is not None
    return stored.metadata


def begin_to_publish(net: DcsNetwork) -> Metadata:
    """Ann publishes the movie; nobody else has it yet."""
    upload(net, "ann")
    request = asked.InsertUploaded(
        request_id=1_000, data=b"", tags=as_tags([TAG]), upload="u", oid=ObjectId("movie")
    )
    net.ask("ann", request, 0.0)
    [own] = net.nodes["ann"].replicas.with_role(ReplicaRole.OWN)
    return own.metadata


def retrieve(net: DcsNetwork, name: str, metadata: Metadata, seconds: float = 20.0) -> object:
    return net.finish(name, asked.Retrieve, metadata=metadata, seconds=seconds)


def held(net: DcsNetwork, name: str, metadata: Metadata) -> int:
    """The number of chunks that a node has."""
    chunks = net.stores[name].chunks.held(metadata.digest)
    return 0 if chunks is None else chunks.count


def until_some_are_held(net: DcsNetwork, name: str, metadata: Metadata, count: int) -> None:
    while held(net, name, metadata) < count:
        net.run(0.001)
    assert held(net, name, metadata) < COUNT


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_m37_cell_peers_and_distant_nodes_fetch_chunks_over_cells(loss: float) -> None:
    net = a_net(loss=loss)
    metadata = publish(net, "ann", 30)

    assert net.holding(metadata.key) == {"ann", "abe"}
    assert all(packet.message.data == b"" for _, packet in net.messages(cell_wire.StoreReplica))
    assert retrieve(net, "dan", metadata, 60) == MOVIE
    assert net.holding(metadata.key) == {"ann", "abe", "dan"}
    stored = net.nodes["dan"].replicas.get(metadata.key)
    assert stored is not None
    assert stored.role is ReplicaRole.PASSIVE
    if not loss:  # and the cell of the tag knows; it is announced once
        assert net.index("bea")["movie"] == ([0], ["dan"])
    assert net.messages(wire.FetchObject) == []


def test_m37_several_replicas_serve_in_parallel() -> None:
    net = a_net()
    metadata = publish(net, "ann", 20)
    net.sent.clear()
    assert retrieve(net, "dan", metadata) == MOVIE
    served = {name for name, _ in net.messages(chunk_wire.ChunkData)}
    assert served == {"ann", "abe"}


def test_m37_a_replica_that_is_not_complete_serves_the_chunks_it_has() -> None:
    net = a_net()
    metadata = begin_to_publish(net)
    until_some_are_held(net, "abe", metadata, 4)
    had = held(net, "abe", metadata)
    net.go("ann")
    index = asked.RetrieveChunk(request_id=1_001, metadata=metadata, index=0)

    told = net.ask("dan", index, 40)
    assert told == asked.Finished(1_001, MOVIE[:CHUNK_BYTES])
    assert had <= held(net, "abe", metadata) < len(MOVIE) // CHUNK_BYTES  # some were under way
    net.come("ann")
    net.run(40)
    assert net.holding(metadata.key) == {"ann", "abe"}  # Abe went on where he was


def test_m37_a_cell_peer_that_was_killed_goes_on_where_it_was() -> None:
    net = a_net()
    metadata = begin_to_publish(net)
    until_some_are_held(net, "abe", metadata, 5)
    had = held(net, "abe", metadata)
    net.go("abe")
    net.run(2)
    net.come("abe")
    net.sent.clear()
    net.run(20)

    assert net.holding(metadata.key) == {"ann", "abe"}
    asked_for = {packet.message.index for _, packet in net.messages(chunk_wire.FetchChunk)}
    assert len(asked_for) == COUNT - had


def test_m37_a_retrieving_node_that_was_killed_fetches_only_what_it_lacks() -> None:
    net = a_net()
    metadata = publish(net, "ann", 20)
    net.links.ask(b"dan", asked.Retrieve(request_id=1_000, metadata=metadata))  # type: ignore[arg-type]
    until_some_are_held(net, "dan", metadata, 6)
    had = held(net, "dan", metadata)
    net.go("dan")
    net.come("dan")
    net.run(6)
    net.sent.clear()

    assert retrieve(net, "dan", metadata) == MOVIE
    asked_for = {packet.message.index for _, packet in net.messages(chunk_wire.FetchChunk)}
    assert len(asked_for) == COUNT - had


def test_m30_copies_of_a_large_object_are_confirmed_when_they_are_complete() -> None:
    net = a_net()
    metadata = publish(net, "ann", 20, copies=2)
    assert net.holding(metadata.key) == {"ann", "abe"}
    assert held(net, "abe", metadata) == COUNT


def test_d23_a_node_that_joins_the_cell_fetches_its_large_objects() -> None:
    net = a_net(absent=("abe",))
    metadata = publish(net, "ann", 5)
    net.come("abe")
    net.run(20)
    assert net.holding(metadata.key) == {"ann", "abe"}


def test_b6_a_missing_holder_is_replaced_by_a_node_that_fetches_the_chunks() -> None:
    crowd = {f"a{number}": in_cell(0, number) for number in range(6)}
    net = a_net({**crowd, "ben": in_cell(2)})
    metadata = publish(net, "a0", 20)
    holders = net.holding(metadata.key)
    assert len(holders) == 3
    net.go(next(name for name in holders if name != "a0"))
    net.run(60)
    assert len(net.holding(metadata.key)) == 3


def test_d15_a_deleted_large_object_is_gone_from_all_nodes_of_the_cell() -> None:
    net = a_net()
    metadata = publish(net, "ann", 20)
    net.finish("ann", asked.Delete, key=metadata.key)
    net.run(3)
    assert net.holding(metadata.key) == set()
    assert [held(net, name, metadata) for name in ("ann", "abe")] == [0, 0]
    assert net.fail("dan", asked.Retrieve, metadata=metadata) == NotFoundError.code


def test_m37_a_holder_that_moves_to_another_cell_is_found_there() -> None:
    net = a_net({**PLACES, "abe": in_cell(1)})  # Ann is alone in her cell
    metadata = publish(net, "ann", 10)
    net.links.ask(b"dan", asked.Retrieve(request_id=1_000, metadata=metadata))  # type: ignore[arg-type]
    until_some_are_held(net, "dan", metadata, 3)
    net.move("ann", in_cell(3))
    net.run(60)
    assert held(net, "dan", metadata) == COUNT
