"""Nobody can forge, delete, end or move what is another's in Thyme-DCS; quotas by peer (B5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.builders import photo, subscribe
from tests.fake_signer import FakeSigner, signed, vouched_for
from tests.substrates.dcs.network import SETTLED_S, STREET, DcsNetwork, in_cell, tag_in
from thyme.model.ids import Key, NodeId
from thyme.model.signed_records import DeleteRecord, LocationRecord, UnsubscribeRecord
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    CellTarget,
    IndexedMetadata,
    Replica,
    SignedInstant,
    SignedLocation,
    TombstoneRecord,
)
from thyme.substrates.common.quotas import Quota
from thyme.substrates.dcs.config import PAPER, ROBUST

ANN, MALLORY = NodeId(b"ann"), NodeId(b"mallory")
TAG = tag_in(4)
"""Cat and Col look after it."""
HERE = CellId(0)
NUMBERS = iter(range(10_000, 20_000))


def a_network(**options: object) -> DcsNetwork:
    return DcsNetwork(STREET, keys=True, **options)  # type: ignore[arg-type]


def say(net: DcsNetwork, message: wire.Message, *, to: str = "", origin: NodeId = ANN) -> None:
    """Somebody says something to a cell, or to a node in it, in the name of another."""
    node = NodeId(to.encode()) if to else None
    packet = wire.CellPacket(
        origin, HERE, next(NUMBERS), 3, (CellTarget(CellId(4), node),), message
    )
    net.receive(to or "cat", "bea", packet)
    net.run(2)


def not_believed(net: DcsNetwork, kind: str) -> int:
    return sum(node.dropped[f"not genuine: {kind}"] for node in net.nodes.values())


def standing(net: DcsNetwork) -> set[str]:
    return {name for name, count in net.standing().items() if count}


def own_subscription(net: DcsNetwork) -> SubscriptionRecord:
    """Of Ann, as Cat keeps it."""
    [interest] = net.nodes["cat"].index.cell_subscriptions()
    return interest.subscription


def test_b5_nodes_with_keys_understand_each_other() -> None:
    """Insert, subscribe, notify, retrieve, move, delete and unsubscribe, all of it signed."""
    net = a_network()
    begun = net.subscribe("ann", TAG)
    first = net.insert("dan", "photo1", TAG)
    net.move("ann", in_cell(1), settle_s=SETTLED_S)
    net.insert("bea", "photo2", TAG)

    assert net.heard("ann") == ["photo1", "photo2"]
    assert net.messages(wire.LocatedSubscription)
    assert net.messages(cell_wire.SignedLocationUpdate)
    assert net.finish("ann", asked.Retrieve, metadata=net.metadata("ann", "photo1")) == b"pixels"
    net.finish("dan", asked.Delete, key=first)
    net.finish("ann", asked.Unsubscribe, sid=begun.sid)
    assert net.indexing("photo1") == set()
    assert not net.standing()
    for node in net.nodes.values():
        assert not [cause for cause in node.dropped if cause.startswith("not genuine")]


def test_b5_who_comes_to_a_cell_is_told_what_is_genuine() -> None:
    """State, repairs and copies of it, with what was deleted and who is where."""
    net = a_network(config=ROBUST, absent=("col",))
    net.subscribe("ann", TAG)
    gone = net.insert("dan", "photo1", TAG)
    net.insert("dan", "photo2", TAG)
    net.finish("dan", asked.Delete, key=gone)
    net.come("col")
    net.run(20)

    assert net.indexing("photo2") >= {"cat", "col"}
    col = net.nodes["col"].index
    assert [interest.cell for interest in col.cell_subscriptions()] == [HERE]
    assert [tombstone.key for tombstone in col.object_tombstones()] == [str(gone)]
    net.go("cat")
    net.insert("bea", "photo3", TAG, seconds=20)
    assert net.heard("ann") == ["photo1", "photo2", "photo3"]
    assert sum(not_believed(net, kind) for kind in ("object", "delete", "location")) == 0


def test_b5_nobody_publishes_in_anothers_name() -> None:
    net = a_network()
    net.subscribe("dan", TAG)
    plain = photo(1, tags=[TAG], by=ANN)
    active = (Replica(HERE),)
    for metadata in (plain, signed(plain, by=MALLORY)):
        say(net, cell_wire.IndexObject(1, IndexedMetadata(metadata, active)))
        say(net, cell_wire.StoreReplica(metadata, b""))
        say(net, cell_wire.CellState(0, 0, 1, (IndexedMetadata(metadata, active),)), to="cat")
        say(
            net,
            cell_wire.TransferState(
                1, CellId(4), cell_wire.CellState(0, 0, 1, (IndexedMetadata(metadata, active),))
            ),
        )
        say(net, cell_wire.ReindexObjects(1, (IndexedMetadata(metadata, active),)))

    assert net.indexing("photo1") == set()
    assert net.holding(plain.key) == set()
    assert net.heard("dan") == []
    assert not_believed(net, "object") >= 10
    say(net, cell_wire.IndexObject(1, IndexedMetadata(signed(plain), active)))
    assert net.heard("dan") == ["photo1"], "what she said herself is believed"


def a_delete(by: NodeId, key: Key) -> wire.SignedDelete:
    return wire.SignedDelete(1, key, FakeSigner(by).sign(DeleteRecord(key)))


def test_b5_nobody_deletes_what_is_anothers() -> None:
    net = a_network()
    key = net.insert("ann", "photo1", TAG)
    say(net, wire.DeleteObject(1, key))
    say(net, a_delete(MALLORY, key))

    assert net.indexing("photo1") == {"cat", "col"}
    assert not_believed(net, "delete") >= 2
    say(net, a_delete(ANN, key))
    assert net.indexing("photo1") == set()


def test_b5_a_forged_tombstone_deletes_nothing() -> None:
    net = a_network(config=ROBUST)
    net.subscribe("ann", TAG)
    key = net.insert("ann", "photo1", TAG)
    sub_key = own_subscription(net).key
    for by in (None, MALLORY):
        proofs = [b"" if by is None else FakeSigner(by).sign(DeleteRecord(key))]
        proofs.append(b"" if by is None else FakeSigner(by).sign(UnsubscribeRecord(sub_key)))
        objects, subscriptions = (
            SignedInstant(10**9, proof) if proof else 10**9 for proof in proofs
        )
        state = cell_wire.CellState(
            0,
            0,
            1,
            object_tombstones=(TombstoneRecord(str(key), "deleted", objects),),
            subscription_tombstones=(TombstoneRecord(str(sub_key), "cancelled", subscriptions),),
        )
        for name in ("cat", "col"):
            say(net, state, to=name, origin=NodeId(b"col" if name == "cat" else b"cat"))
        say(net, cell_wire.TransferState(1, CellId(4), state))
        say(net, cell_wire.BackupState(1, CellId(6), 0, state))
    net.run(10)

    assert net.indexing("photo1") >= {"cat", "col"}
    assert standing(net) >= {"cat", "col"}
    assert not_believed(net, "delete") >= 4
    assert not_believed(net, "unsubscribe") >= 4


def test_b5_nobody_unsubscribes_or_subscribes_for_another() -> None:
    net = a_network()
    begun = net.subscribe("ann", TAG)
    key = SubscriptionKey(begun.sid, ANN)
    say(net, wire.StopSubscription(1, key))
    say(net, wire.SignedStop(1, key, FakeSigner(MALLORY).sign(UnsubscribeRecord(key))))
    assert standing(net) == {"cat", "col"}
    assert not_believed(net, "unsubscribe") >= 2

    place = a_place(ANN, HERE, 10**9)
    for forged in (subscribe(9, TAG, by=ANN), vouched_for(subscribe(9, TAG, by=ANN), MALLORY)):
        say(net, wire.StartSubscription(1, forged, 20))
        say(net, wire.LocatedSubscription(1, forged, 20, place))
    assert net.standing() == {"cat": 1, "col": 1}
    assert not_believed(net, "subscription") >= 4
    say(net, wire.SignedStop(1, key, FakeSigner(ANN).sign(UnsubscribeRecord(key))))
    assert not standing(net)


def a_place(by: NodeId, cell: CellId, at_us: int, of: NodeId = ANN) -> SignedLocation:
    return SignedLocation(
        cell, SignedInstant(at_us, FakeSigner(by).sign(LocationRecord(of, cell, at_us)))
    )


def where(net: DcsNetwork) -> set[int]:
    """Where the cell of the tag believes Ann to be."""
    nodes = (net.nodes["cat"], net.nodes["col"])
    return {some.cell for node in nodes for some in node.index.cell_subscriptions()}


def test_b5_nobody_says_where_another_is() -> None:
    net = a_network()
    sids = (net.subscribe("ann", TAG).sid,)
    elsewhere = CellId(6)
    held = own_subscription(net)
    late_us = 10**9
    say(net, cell_wire.LocationUpdate(1, sids))
    say(net, cell_wire.SignedLocationUpdate(1, sids, (), a_place(MALLORY, elsewhere, late_us)))
    theirs = a_place(MALLORY, elsewhere, late_us, of=MALLORY)
    say(net, cell_wire.SignedLocationUpdate(1, sids, (), theirs))
    say(net, wire.LocatedSubscription(1, held, 20, theirs))
    for heard in (late_us, theirs.since, a_place(MALLORY, elsewhere, late_us).since):
        state = cell_wire.CellState(
            0, 0, 1, subscriptions=(CellSubscription(held, elsewhere, (), heard),)
        )
        say(net, cell_wire.TransferState(1, CellId(4), state))

    assert where(net) == {HERE}
    assert not_believed(net, "location") >= 7
    say(net, cell_wire.SignedLocationUpdate(1, sids, (), a_place(ANN, elsewhere, late_us)))
    assert where(net) == {elsewhere}, "her own word counts"


def test_b5_an_old_place_is_not_believed_again() -> None:
    """Whoever recorded what Ann said once sends it again when she has moved."""
    net = a_network()
    net.subscribe("ann", TAG)
    [interest] = net.nodes["cat"].index.cell_subscriptions()
    assert isinstance(interest.located, SignedInstant)
    old = SignedLocation(HERE, interest.located)
    net.move("ann", in_cell(1), settle_s=SETTLED_S)
    assert where(net) == {1}

    sids = (interest.subscription.key.sid,)
    say(net, cell_wire.SignedLocationUpdate(1, sids, (), old))
    say(net, wire.LocatedSubscription(1, interest.subscription, 20, old))
    say(
        net,
        cell_wire.TransferState(
            1, CellId(4), cell_wire.CellState(0, 0, 1, subscriptions=(interest,))
        ),
    )
    assert where(net) == {1}
    net.insert("dan", "photo1", TAG)
    assert net.heard("ann") == ["photo1"]


def test_b5_what_was_deleted_or_cancelled_does_not_come_back_by_being_said_again() -> None:
    net = a_network()
    begun = net.subscribe("ann", TAG)
    key = net.insert("ann", "photo1", TAG)
    [indexed] = net.nodes["cat"].index.objects()
    [interest] = net.nodes["cat"].index.cell_subscriptions()
    net.finish("ann", asked.Delete, key=key)
    net.finish("ann", asked.Unsubscribe, sid=begun.sid)

    say(net, cell_wire.IndexObject(1, indexed))
    assert isinstance(interest.located, SignedInstant)
    start = wire.LocatedSubscription(
        1, interest.subscription, 20, SignedLocation(HERE, interest.located)
    )
    say(net, start)
    state = cell_wire.CellState(0, 0, 1, (indexed,), (interest,))
    say(net, cell_wire.TransferState(1, CellId(4), state))
    assert net.indexing("photo1") == set()
    assert not standing(net)


def test_b5_a_place_that_is_on_no_map_is_not_taken_in() -> None:
    net = a_network()
    sids = (net.subscribe("ann", TAG).sid,)
    say(net, cell_wire.SignedLocationUpdate(1, sids, (), a_place(ANN, CellId(999), 10**9)))

    assert where(net) == {HERE}
    assert net.nodes["cat"].dropped["no such cell"] == 1


# Quotas


def with_quota(quota: Quota) -> DcsNetwork:
    return a_network(config=replace(PAPER, broker=replace(PAPER.broker, quota=quota)))


def insert(net: DcsNetwork, name: str, oid: str) -> str:
    request = asked.Insert(request_id=next(NUMBERS), data=b"pixels", tags=(TAG,), oid=oid)  # type: ignore[arg-type]
    told = net.ask(name, request)
    return told.code if isinstance(told, asked.Failed) else "done"


def test_b5_one_owner_over_its_quota_does_not_cost_others_theirs() -> None:
    net = with_quota(Quota(objects=2))

    assert [insert(net, "ann", f"a{n}") for n in range(3)] == ["done", "done", "over_quota"]
    assert [insert(net, "bea", f"b{n}") for n in range(2)] == ["done", "done"]
    assert set(net.index("cat")) == {"a0", "a1", "b0", "b1"}
    assert set(net.index("col")) == {"a0", "a1", "b0", "b1"}
    assert net.nodes["col"].service.dropped["over_quota"] == 1, "who did not answer counts"
    net.finish("ann", asked.Delete, key=Key("a0", ANN))  # type: ignore[arg-type]
    assert insert(net, "ann", "a3") == "done"


@pytest.mark.parametrize(("quota", "held"), [(Quota(bytes=13), 2), (Quota(), 3)])
def test_b5_objects_are_held_for_a_cell_peer_up_to_its_quota(quota: Quota, held: int) -> None:
    net = with_quota(quota)
    for number in range(3):
        insert(net, "ann", f"a{number}")

    assert len(net.nodes["abe"].replicas) == held
    assert net.nodes["abe"].service.dropped["over_quota"] == 3 - held


def test_b5_subscriptions_count_by_subscriber() -> None:
    net = with_quota(Quota(subscriptions=1))
    net.subscribe("ann", TAG)
    net.subscribe("bea", TAG)

    conjunctions = subscribe(1, TAG).conjunctions
    code = net.fail(
        "ann",
        asked.Subscribe,
        conjunctions=conjunctions,
        frame=subscribe(1).frame,
        batch=20,
    )
    assert code == "over_quota"
    assert net.standing() == {"cat": 2, "col": 2}
