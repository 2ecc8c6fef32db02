"""Renewal: cells that have lost something are told of it again, and only then (B1, B2)."""

from __future__ import annotations

import msgspec

from tests.substrates.dcs.network import STREET, DcsNetwork, tag_in
from thyme.model.time_frames import SECOND_US
from thyme.protocol import app_interface as asked
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.cells import LocationUpdate, ReindexObjects
from thyme.routing.cells import Destination
from thyme.substrates.dcs.config import PAPER
from thyme.substrates.dcs.robust.reannounce import BATCH_OBJECTS_MAX, WAIT_US_MAX

RENEWING = msgspec.structs.replace(PAPER, reannounce=True)
"""The documents' profile, and this part."""
RENEWED_S = 60.0
"""After this time everybody has said everything again, once."""


def lose_a_cell(net: DcsNetwork) -> None:
    """All nodes of cell 2 lose their memory at once, and come back."""
    for name in ("bea", "ben"):
        net.go(name)
        del net.stores[name]
    net.run(6)
    for name in ("bea", "ben"):
        net.come(name)


def test_b1_a_cell_that_lost_its_memory_hears_of_objects_from_their_owner() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    net.insert("ann", "photo", tag_in(2))
    lose_a_cell(net)
    net.run(6)
    assert net.indexing("photo") == set()

    net.run(RENEWED_S)

    assert net.indexing("photo") == {"bea", "ben"}
    assert net.found("dan", tag_in(2)) == {"photo"}


def test_b1_when_the_owner_is_gone_one_who_holds_it_for_the_owner_tells() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    key = net.insert("ann", "photo", tag_in(2))
    net.go("ann")
    lose_a_cell(net)
    net.run(RENEWED_S)

    assert net.found("dan", tag_in(2)) == {"photo"}
    [found] = net.nodes["bea"].index.objects()
    data = net.finish("dan", asked.Retrieve, metadata=found.metadata)
    assert data == b"pixels"
    assert net.holding(key) >= {"abe", "dan"}


def test_b2_a_subscription_that_its_cell_lost_stands_again_and_misses_nothing() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    net.subscribe("dan", tag_in(2))
    lose_a_cell(net)
    net.run(6)
    net.insert("ann", "meanwhile", tag_in(2))
    assert net.heard("dan") == []

    net.run(RENEWED_S)
    net.insert("ann", "later", tag_in(2))

    assert sorted(net.heard("dan")) == ["later", "meanwhile"]


def test_b2_an_object_indexed_again_is_told_to_those_who_subscribed_meanwhile() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    net.insert("ann", "photo", tag_in(2))
    lose_a_cell(net)
    net.run(6)
    net.subscribe("dan", tag_in(2))
    assert net.heard("dan") == []

    net.run(RENEWED_S)

    assert net.heard("dan") == ["photo"]


def test_d15_who_retrieved_an_object_does_not_bring_it_back_after_its_owner_deleted_it() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    net.subscribe("dan", tag_in(2))
    key = net.insert("ann", "photo", tag_in(2))
    net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "photo"))
    net.finish("ann", asked.Delete, key=key)
    assert "dan" in net.holding(key)

    lose_a_cell(net)
    net.run(RENEWED_S)

    assert net.messages(LocationUpdate)
    assert net.indexing("photo") == set()


def test_while_nothing_happens_nothing_is_said() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    net.run(RENEWED_S)
    net.subscribe("dan", tag_in(2))
    net.insert("ann", "photo", tag_in(2))
    net.run(300)

    assert net.messages(LocationUpdate) == []


def test_a_topology_change_is_flooded_and_each_node_reannounces_once() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    many = BATCH_OBJECTS_MAX + 6
    net.run(RENEWED_S)
    for number in range(many):
        net.insert("dan", f"photo-{number}", tag_in(2))
    net.sent.clear()

    net.go("ann")
    net.run(10)
    net.come("ann")
    net.run(2 * RENEWED_S)

    told = [packet.message.keys for name, packet in net.messages(LocationUpdate) if name == "dan"]
    assert sorted(key.oid for keys in told for key in keys) == sorted(
        f"photo-{number}" for number in range(many)
    )
    assert max(map(len, told)) == BATCH_OBJECTS_MAX
    assert net.messages(ReindexObjects) == []


def test_while_it_does_not_get_calm_a_node_tells_now_and_then_and_of_the_most_needed() -> None:
    net = DcsNetwork(STREET, config=RENEWING)
    net.subscribe("dan", tag_in(2))
    net.insert("ann", "theirs", tag_in(2))
    net.finish("dan", asked.Retrieve, metadata=net.metadata("dan", "theirs"))
    net.insert("dan", "mine", tag_in(2))
    net.run(2 * RENEWED_S)
    net.sent.clear()

    def told() -> list[str]:
        return [
            key.oid
            for name, packet in net.messages(LocationUpdate)
            for key in packet.message.keys
            if name == "dan"
        ]

    restless_s = 2.5 * WAIT_US_MAX / SECOND_US
    for _ in range(int(restless_s / 10)):
        net.go("abe")
        net.run(5)
        net.come("abe")
        net.run(5)
    assert told() == ["mine"] * 2

    net.run(RENEWED_S)
    assert sorted(told()[2:]) == ["mine", "theirs"]


def test_word_from_the_future_is_not_believed() -> None:
    renewal = DcsNetwork(STREET, config=RENEWING).nodes["ann"].membership.reannouncer
    assert renewal is not None
    before = renewal.change_stamp

    renewal.on_change_stamp((10**6).to_bytes(4, "big"), 60 * SECOND_US)
    for odd in (b"", b"\xff" * 3, b"\xff" * 5, b"\xff" * 4):
        renewal.on_change_stamp(odd, 60 * SECOND_US)
    assert renewal.change_stamp == before

    renewal.on_change_stamp((59).to_bytes(4, "big"), 60 * SECOND_US)
    assert renewal.change_stamp == (59).to_bytes(4, "big")


def test_a_stranger_cannot_have_a_cell_index_what_it_knows_to_be_deleted() -> None:
    """D15: a tombstone stands against `IndexAgain`, whoever sends it."""
    net = DcsNetwork(STREET, config=RENEWING)
    key = net.insert("ann", "photo", tag_in(2))
    [entry] = net.nodes["bea"].index.objects()
    net.finish("ann", asked.Delete, key=key)

    dan = net.nodes["dan"]
    dan.routing.send([Destination(CellId(2))], ReindexObjects(7, (entry,)), 0)
    net.ask("dan", asked.Lookup(request_id=1, key=key))

    assert net.messages(ReindexObjects)
    assert net.indexing("photo") == set()
