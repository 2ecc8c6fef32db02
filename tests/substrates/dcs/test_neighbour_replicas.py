"""Beacons name the objects that their senders retrieved; neighbours retrieve them there (D28)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.substrates.dcs.components import RecordingRouting
from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.substrates.dcs.client.neighbour_replicas import NAME_BYTES, NeighbourReplicas
from thyme.substrates.dcs.config import BEACON_NAMES_MAX, ROBUST, DcsConfig

PLACES = {
    "ann": in_cell(0),
    "bea": in_cell(2),
    "cat": in_cell(4),
    "ray": in_cell(6),
    "rob": in_cell(6, 1),
}
BEACONS_S = 4
"""After this time the beacons of a node have named what it retrieved before."""
BOB, EVE = NodeId(b"bob"), NodeId(b"eve")
HERE = CellId(3)


def a_config(names_max: int) -> DcsConfig:
    return replace(ROBUST, replication=replace(ROBUST.replication, beacon_names_max=names_max))


def two_readers(names_max: int) -> tuple[DcsNetwork, Key]:
    """Ray and Rob, who are neighbours, were notified of Ann's photo; Ray has retrieved it."""
    net = DcsNetwork(PLACES, config=a_config(names_max))
    for name in ("ray", "rob"):
        net.subscribe(name, tag_in(2))
    key = net.insert("ann", "photo", tag_in(2))
    assert read(net, "ray") == b"pixels"
    net.run(BEACONS_S)
    net.sent.clear()
    return net, key


def read(net: DcsNetwork, name: str) -> object:
    return net.finish(name, asked.Retrieve, metadata=net.metadata(name, "photo"))


def asked_cells(net: DcsNetwork, reader: str) -> list[tuple[CellId, NodeId | None]]:
    """Whom a reader asked for the photo, in order."""
    asks = net.messages(wire.FetchObject)
    return [
        (packet.targets[0].cell, packet.targets[0].node) for name, packet in asks if name == reader
    ]


def test_d28_an_object_is_retrieved_from_the_neighbour_that_named_it() -> None:
    net, _ = two_readers(names_max=24)

    assert read(net, "rob") == b"pixels"
    assert asked_cells(net, "rob") == [(CellId(6), NodeId(b"ray"))]


def test_d28_without_names_it_is_retrieved_from_the_cell_of_its_owner() -> None:
    net, _ = two_readers(names_max=0)

    assert read(net, "rob") == b"pixels"
    assert asked_cells(net, "rob") == [(CellId(0), None)]


def test_d18_a_neighbour_that_lacks_the_object_refuses_and_the_next_replica_is_tried() -> None:
    net, key = two_readers(names_max=24)
    net.nodes["ray"].replicas.remove_without_tombstone(key)

    assert read(net, "rob") == b"pixels"
    assert asked_cells(net, "rob") == [(CellId(6), NodeId(b"ray")), (CellId(0), None)]


def test_d28_a_neighbour_that_is_gone_is_not_asked() -> None:
    net, _ = two_readers(names_max=24)
    net.go("ray")
    net.run(6)

    assert read(net, "rob") == b"pixels"
    assert asked_cells(net, "rob") == [(CellId(0), None)]


def test_b2_a_beacon_with_names_still_tells_of_a_topology_change() -> None:
    """Its digest and its stamp are where they were."""
    net, key = two_readers(names_max=24)
    ray = net.nodes["ray"]
    plain = ray.beacon_payload(0)
    assert ray.parts.neighbour_replicas is not None
    ray.parts.neighbour_replicas.add(key)
    named = ray.beacon_payload(0)

    assert named[: len(plain)] == plain
    assert len(named) == len(plain) + NAME_BYTES
    assert not net.nodes["rob"].is_new_payload(named), "names are no change of the topology"
    other = named[:4] + b"\x7f\0\0\0" + named[8:]
    assert net.nodes["rob"].is_new_payload(other)


def test_d28_beacons_of_the_papers_profile_name_nothing() -> None:
    net = DcsNetwork(PLACES)
    net.subscribe("ray", tag_in(2))
    net.insert("ann", "photo", tag_in(2))
    read(net, "ray")

    assert net.nodes["ray"].beacon_payload(0) == b""


def test_d4_as_many_names_as_the_settings_allow_fit_in_a_beacon() -> None:
    net, _ = two_readers(names_max=BEACON_NAMES_MAX)
    names = net.nodes["ray"].parts.neighbour_replicas
    assert names is not None
    for number in range(BEACON_NAMES_MAX):
        names.add(a_key(number))
    net.run(BEACONS_S)

    known = net.nodes["rob"].parts.neighbour_replicas
    assert known is not None
    assert all(known.holders_of(a_key(number)) for number in range(BEACON_NAMES_MAX))
    with pytest.raises(ValueError, match="beacon_names_max"):
        a_config(BEACON_NAMES_MAX + 1)


# The names alone


class Neighbourhood(RecordingRouting):
    """Routing with Bob and Eve in the same cell."""

    def nodes_in(self, cell: CellId) -> list[NodeId]:
        return [BOB, EVE] if cell == HERE else []


def a_key(number: int) -> Key:
    return Key(ObjectId(f"photo{number}"), NodeId(b"ann"))


def named(numbers: range, names_max: int = 100) -> bytes:
    """What a beacon says of the objects with these numbers."""
    replicas = NeighbourReplicas(Neighbourhood(), names_max)
    for number in numbers:
        replicas.add(a_key(number))
    return replicas.beacon_part()


def test_d28_two_beacons_name_an_object_and_a_beacon_names_so_many_at_most() -> None:
    replicas = NeighbourReplicas(Neighbourhood(), 3)
    for number in range(5):
        replicas.add(a_key(number))

    beacons = [replicas.beacon_part() for _ in range(5)]

    first, last = named(range(3)), named(range(3, 5))
    assert beacons == [first, first, last, last, b""]


def test_d28_who_named_an_object_last_in_which_cell_is_remembered() -> None:
    replicas = NeighbourReplicas(Neighbourhood(), 3)
    replicas.on_names(BOB, HERE, named(range(20)))
    replicas.on_names(EVE, HERE, named(range(10, 30)))

    assert replicas.holders_of(a_key(5)) == [Replica(HERE, BOB)]
    assert replicas.holders_of(a_key(15)) == [Replica(HERE, BOB), Replica(HERE, EVE)]
    assert replicas.holders_of(a_key(40)) == []
    replicas.on_names(BOB, CellId(4), named(range(1)))
    assert replicas.holders_of(a_key(5)) == [], "Bob has moved out of range"


def test_d28_the_latest_names_of_a_neighbour_are_remembered() -> None:
    replicas = NeighbourReplicas(Neighbourhood(), 3)
    for start in range(0, 2_000, 100):
        replicas.on_names(BOB, HERE, named(range(start, start + 100)) + b"odd")
        replicas.check()

    assert replicas.holders_of(a_key(0)) == []
    assert replicas.holders_of(a_key(1_999)) == [Replica(HERE, BOB)]


def test_d28_a_name_across_two_others_is_none() -> None:
    name = named(range(1))
    replicas = NeighbourReplicas(Neighbourhood(), 3)
    replicas.on_names(BOB, HERE, b"\0\0" + name + b"\0\0")
    assert replicas.holders_of(a_key(0)) == []
    replicas.on_names(BOB, HERE, b"\0\0" + name + b"\0\0" + name)
    assert replicas.holders_of(a_key(0)) == [Replica(HERE, BOB)]
