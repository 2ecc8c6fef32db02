"""Guaranteed copies and the choice of replication of a single insert in Thyme-DCS (M30, D14)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pytest

from tests.substrates.dcs.network import DcsNetwork, in_cell, tag_in
from thyme.model.ids import Key, ObjectId
from thyme.model.tags import as_tags
from thyme.protocol import app_interface as asked
from thyme.protocol.app_interface import ALL_NODES
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages.replies import Done, Refused
from thyme.routing.cells import Destination
from thyme.storage.store import MemoryStore
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.dcs.config import PAPER, ROBUST, DcsConfig


class DiskStore(MemoryStore):
    """A store that says that it is on disk."""

    durable = True


def a_crowd(
    people: int,
    config: DcsConfig = ROBUST,
    *,
    on_disk: Iterable[int] = (),
    seed: int = 1,
    loss: float = 0.0,
) -> DcsNetwork:
    """People in cell 0, and ben alone in cell 2, who keeps the tag."""
    crowd = {f"a{number}": in_cell(0, number) for number in range(people)}
    places = {**crowd, "ben": in_cell(2)}
    net = DcsNetwork(
        places, config=config, absent=tuple(places), settle_s=0.0, seed=seed, loss=loss
    )
    net.stores |= {f"a{number}": DiskStore() for number in on_disk}
    for name in places:
        net.come(name)
    net.run(8)
    net.sent.clear()
    return net


def put(net: DcsNetwork, oid: str, **options: object) -> object:
    """What becomes of an insert by a0: the key, or the code and the reason of the failure."""
    fields = {"data": b"pixels", "tags": as_tags([tag_in(2)]), "oid": ObjectId(oid), **options}
    request = asked.Insert(request_id=net._ask(), **fields)  # type: ignore[arg-type]
    told = net.ask("a0", request, 40)
    return told.value if isinstance(told, asked.Finished) else told


@pytest.mark.parametrize("config", [PAPER, ROBUST], ids=["paper", "robust"])
@pytest.mark.parametrize("copies", [2, 3, 6])
def test_m30_an_insert_with_copies_succeeds_once_so_many_nodes_store_it(
    config: DcsConfig, copies: int
) -> None:
    net = a_crowd(6, config)

    key = put(net, "photo", copies=copies)

    assert isinstance(key, Key)
    assert len(net.holding(key)) >= copies
    assert net.indexing("photo") == {"ben"}


def test_m30_more_copies_than_nodes_in_the_cell_are_refused_with_their_number() -> None:
    """What the error says is true: it was "stores 1" in a cell of three."""
    net = a_crowd(3)

    refused = put(net, "photo", copies=4)

    assert isinstance(refused, asked.Failed)
    assert refused.code == "unsupported"
    assert refused.detail == "4 copies were requested; the cell of this node has 3 nodes now"
    assert net.messages(cell_wire.StoreReplica) == []


def test_m30_nodes_that_missed_the_broadcast_get_the_object_again() -> None:
    """The profile of the papers broadcasts an object once, and half of the frames are lost."""
    again = 0
    for seed in range(8):
        net = a_crowd(3, PAPER, seed=seed, loss=0.5)

        key = put(net, "photo", copies=3)

        copies = [packet for name, packet in net.messages(cell_wire.StoreReplica) if name == "a0"]
        again += len(copies)
        if isinstance(key, Key):
            assert len(net.holding(key)) == 3
    assert again > 0


def test_m30_durable_copies_are_on_the_disks_of_so_many_nodes() -> None:
    """Nodes in memory refuse to confirm, and others of the cell take their place."""
    net = a_crowd(7, on_disk=(0, 3, 5))

    key = put(net, "photo", copies=3, durable=True)

    assert isinstance(key, Key)
    assert {"a0", "a3", "a5"} <= net.holding(key)
    refused = put(net, "another", copies=4, durable=True)
    assert isinstance(refused, asked.Failed)
    assert refused.code == "unsupported"
    assert "in memory" in refused.detail


def test_m30_an_insert_that_failed_leaves_no_copies() -> None:
    """The others had stored the broadcast object, and two of them had confirmed it."""
    net = a_crowd(7, on_disk=(0, 3, 5))
    assert isinstance(put(net, "photo", copies=4, durable=True), asked.Failed)

    net.run(5)
    assert net.holding(Key(ObjectId("photo"), net.nodes["a0"].node_id)) == set()
    again = put(net, "photo", copies=3, durable=True)
    assert isinstance(again, asked.Failed)
    assert "its key cannot be reused" in again.detail
    assert isinstance(put(net, "photo-again", copies=3, durable=True), Key)


def test_m30_durable_is_refused_where_the_owner_or_the_profile_cannot_give_it() -> None:
    refused = put(a_crowd(1), "photo", durable=True)
    assert isinstance(refused, asked.Failed)
    assert "this node stores its data in memory" in refused.detail

    refused = put(a_crowd(1, PAPER, on_disk=(0,)), "photo", durable=True)
    assert isinstance(refused, asked.Failed)
    assert "do not index their objects again" in refused.detail

    assert isinstance(put(a_crowd(1, on_disk=(0,)), "photo", durable=True), Key)


def test_m30_m29_a_node_without_room_does_not_count_as_a_copy() -> None:
    full = msgspec.structs.replace(ROBUST, retention=Retention(bytes_max=8))
    net = a_crowd(2, full)
    net.config = ROBUST
    net.go("a0")
    net.come("a0")
    net.run(8)

    assert isinstance(put(net, "photo", copies=2), Key)
    refused = put(net, "large", copies=2, data=b"too many bytes")
    assert isinstance(refused, asked.Failed)
    assert refused.code == "timeout"
    net.run(5)
    assert net.indexing("large") == set(), "nobody finds what was not stored as wanted"
    assert net.holding(Key(ObjectId("large"), net.nodes["a0"].node_id)) == set()


@pytest.mark.parametrize("config", [PAPER, ROBUST], ids=["paper", "robust"])
@pytest.mark.parametrize(("replicas", "holders"), [(1, 1), (2, 2), (9, 6), (ALL_NODES, 6)])
def test_d14_each_insert_chooses_its_number_of_active_replicas(
    config: DcsConfig, replicas: int, holders: int
) -> None:
    """D14: and the upkeep of replicas keeps to the choice."""
    net = a_crowd(6, config)

    key = put(net, "photo", replicas=replicas)

    assert isinstance(key, Key)
    net.run(30)
    assert len(net.holding(key)) == holders
    assert net.indexing("photo") == {"ben"}, "metadata is replicated whatever is chosen"


def test_d14_a_holder_that_leaves_is_replaced_as_the_insert_chose() -> None:
    net = a_crowd(6)
    key = put(net, "photo", replicas=2)
    assert isinstance(key, Key)
    [holder] = net.holding(key) - {"a0"}

    net.go(holder)
    net.run(40)

    assert len(net.holding(key)) == 2
    assert holder not in net.holding(key)


def test_d14_an_owner_that_restarts_keeps_to_the_number_that_the_insert_chose() -> None:
    net = a_crowd(6, on_disk=(0,))
    key = put(net, "photo", replicas=2)
    assert isinstance(key, Key)

    net.go("a0")
    net.run(1)
    net.come("a0")
    net.run(40)

    assert "a0" in net.holding(key)
    assert len(net.holding(key)) == 2


@pytest.mark.parametrize(("asker", "confirmed"), [("a0", 1), ("a2", 0)])
def test_m30_a_copy_is_confirmed_to_the_owner_alone(asker: str, confirmed: int) -> None:
    net = a_crowd(3)
    key = put(net, "photo", copies=3)
    assert isinstance(key, Key)
    stored = net.nodes["a1"].replicas.get(key)
    assert stored is not None
    net.sent.clear()

    request = cell_wire.ConfirmReplica(900, stored.metadata, durable=False)
    holder = Destination(net.nodes["a1"].routing.cell, net.nodes["a1"].node_id)
    net.nodes[asker].routing.send([holder], request, net.links.kernel.now_us)
    net.finish(asker, asked.ListSubscriptions)
    net.run(2)

    assert [name for name, _ in net.messages(Done)] == ["a1"] * confirmed


def test_m30_a_copy_that_was_removed_is_not_confirmed() -> None:
    """The owner hears that at once, and chooses another node; else it waits for an answer."""
    net = a_crowd(3)
    key = put(net, "photo", copies=3)
    assert isinstance(key, Key)
    stored = net.nodes["a1"].replicas.get(key)
    assert stored is not None
    net.finish("a0", asked.Delete, key=key)
    net.sent.clear()

    request = cell_wire.ConfirmReplica(900, stored.metadata, durable=False)
    holder = Destination(net.nodes["a1"].routing.cell, net.nodes["a1"].node_id)
    net.nodes["a0"].routing.send([holder], request, net.links.kernel.now_us)
    net.finish("a0", asked.ListSubscriptions)
    net.run(2)

    [(name, packet)] = net.messages(Refused)
    assert name == "a1"
    assert packet.message.detail == f"{key} was here and is deleted"
