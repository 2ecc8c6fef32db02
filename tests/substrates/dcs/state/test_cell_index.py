"""The index of a cell: replication lists, tombstones and subscriptions (D12–D16, M18, M29)."""

from __future__ import annotations

import pytest

from tests.builders import ALICE, BOB, conjunctions, frame, key, photo, subscribe
from tests.substrates.dcs.components import a_cell_index, indexed
from thyme.model.errors import NotOwnerError, RejectedError
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId, CellSubscription, IndexedMetadata, Replica
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.state.cell_index import SUBSCRIBER_CELLS
from thyme.substrates.dcs.state.replication_lists import REPLICATION_LISTS


def indexed_with(*tags: str) -> IndexedMetadata:
    return IndexedMetadata(photo(9, tags=tags, at_us=3), (Replica(CellId(5)),))


def test_d12_the_active_replica_stays_and_of_the_passive_ones_the_latest() -> None:
    store = MemoryStore()
    index = a_cell_index(store)
    index.add_object(indexed(), BOB, 10)
    names = [NodeId(bytes([number])) for number in (1, 2, 3, 4, 2)]
    for name in names:
        assert index.add_replica(key(1), Replica(CellId(name[0]), name))

    listed = index.with_replication_list(indexed().metadata)

    assert listed.active == (Replica(CellId(5)),)
    assert [replica.node for replica in listed.passive] == [b"\x02", b"\x04", b"\x03"]
    assert a_cell_index(store).with_replication_list(indexed().metadata) == listed
    index.check()


def test_d13_a_replica_of_an_unknown_object_is_not_listed() -> None:
    index = a_cell_index()
    assert not index.add_replica(key(1), Replica(CellId(1), ALICE))
    index.add_object(indexed(), BOB, 10)
    index.delete_object(key(1), BOB, 11)
    assert not index.add_replica(key(1), Replica(CellId(1), ALICE))


def test_d15_a_tombstone_outlasts_the_object_and_comes_before_it() -> None:
    index = a_cell_index()
    index.delete_object(key(1), BOB, 5)
    with pytest.raises(RejectedError, match="deleted"):
        index.add_object(indexed(), BOB, 10)
    with pytest.raises(NotOwnerError):
        index.delete_object(key(2), ALICE, 11)
    assert [tombstone.key for tombstone in index.object_tombstones()] == [str(key(1))]


def test_d16_the_conjunctions_of_two_cells_are_one_subscription() -> None:
    index = a_cell_index()
    for query in ("goal & eder", "final", "goal & eder"):
        index.add_subscription(CellSubscription(subscribe(1, query), CellId(7)), ALICE, 10)

    [stored] = index.cell_subscriptions()
    assert stored.subscription.conjunctions == conjunctions("goal & eder") + conjunctions("final")
    assert len(index.add_object(indexed_with("final", "goal", "eder"), BOB, 20)) == 1


def test_d16_a_subscriber_that_subscribes_from_elsewhere_is_notified_there() -> None:
    index = a_cell_index()
    for cell in (7, 8):
        index.add_subscription(CellSubscription(subscribe(1), CellId(cell)), ALICE, 10)
    matched = index.add_object(indexed(), BOB, 20)
    assert index.recipients(matched) == {(CellId(8), ALICE): ["sub1"]}


def test_m29_replication_lists_of_expired_objects_are_removed() -> None:
    store = MemoryStore()
    index = a_cell_index(store, objects_max=10)
    for number in range(500):
        index.add_object(indexed(number), BOB, 1_000)
        index.check()
    assert len(list(store.load(REPLICATION_LISTS))) <= 2 * 10 + 65


def test_m18_cells_of_ended_subscriptions_are_removed() -> None:
    store = MemoryStore()
    index = a_cell_index(store)
    for number in range(300):
        ending = subscribe(number, "goal", frame(0, number + 1))
        index.add_subscription(CellSubscription(ending, CellId(7)), ALICE, number)
        index.check()
    assert len(list(store.load(SUBSCRIBER_CELLS))) <= 2 * 2 + 65


def test_d27_replicas_that_another_node_of_the_cell_knows_are_added_behind_the_own_ones() -> None:
    index = a_cell_index(merge_lists=True)
    cell, far = CellId(5), CellId(7)
    index.add_object(IndexedMetadata(photo(1), (Replica(cell, ALICE),)), BOB, 10)
    index.add_replica(key(1), Replica(far, NodeId(b"own")))

    theirs = (Replica(far, NodeId(b"own")), Replica(far, NodeId(b"theirs")), Replica(cell, ALICE))
    assert index.merge_object(IndexedMetadata(photo(1), (Replica(cell, BOB),), theirs), 20)

    listed = index.with_replication_list(photo(1))
    assert listed.active == (Replica(cell, ALICE),)
    assert [replica.node for replica in listed.passive] == [b"own", BOB, b"theirs"]
