"""Nobody can forge, delete, end or move what is another's in Thyme-DCS; quotas by peer (B5)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.builders import photo, subscribe
from tests.notary import Stamps, signed, vouched_for
from tests.substrates.dcs.town import SETTLED_S, STREET, Town, in_cell, tag_in
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


def a_town(**options: object) -> Town:
    return Town(STREET, keys=True, **options)  # type: ignore[arg-type]


def say(town: Town, message: wire.Message, *, to: str = "", origin: NodeId = ANN) -> None:
    """Somebody says something to a cell, or to a node in it, in the name of another."""
    node = NodeId(to.encode()) if to else None
    packet = wire.CellPacket(
        origin, HERE, next(NUMBERS), 3, (CellTarget(CellId(4), node),), message
    )
    town.receive(to or "cat", "bea", packet)
    town.run(2)


def not_believed(town: Town, kind: str) -> int:
    return sum(node.dropped[f"not genuine: {kind}"] for node in town.nodes.values())


def standing(town: Town) -> set[str]:
    return {name for name, count in town.standing().items() if count}


def own_subscription(town: Town) -> SubscriptionRecord:
    """Of Ann, as Cat keeps it."""
    [interest] = town.nodes["cat"].index.cell_subscriptions()
    return interest.subscription


def test_b5_nodes_with_keys_understand_each_other() -> None:
    """Insert, subscribe, notify, retrieve, move, delete and unsubscribe, all of it signed."""
    town = a_town()
    begun = town.subscribe("ann", TAG)
    first = town.insert("dan", "photo1", TAG)
    town.move("ann", in_cell(1), settle_s=SETTLED_S)
    town.insert("bea", "photo2", TAG)

    assert town.heard("ann") == ["photo1", "photo2"]
    assert town.messages(wire.LocatedSubscription)
    assert town.messages(cell_wire.SignedLocationUpdate)
    assert town.finish("ann", asked.Retrieve, metadata=town.metadata("ann", "photo1")) == b"pixels"
    town.finish("dan", asked.Delete, key=first)
    town.finish("ann", asked.Unsubscribe, sid=begun.sid)
    assert town.indexing("photo1") == set()
    assert not town.standing()
    for node in town.nodes.values():
        assert not [cause for cause in node.dropped if cause.startswith("not genuine")]


def test_b5_who_comes_to_a_cell_is_told_what_is_genuine() -> None:
    """State, repairs and copies of it, with what was deleted and who is where."""
    town = a_town(config=ROBUST, absent=("col",))
    town.subscribe("ann", TAG)
    gone = town.insert("dan", "photo1", TAG)
    town.insert("dan", "photo2", TAG)
    town.finish("dan", asked.Delete, key=gone)
    town.come("col")
    town.run(20)

    assert town.indexing("photo2") >= {"cat", "col"}
    col = town.nodes["col"].index
    assert [interest.cell for interest in col.cell_subscriptions()] == [HERE]
    assert [grave.key for grave in col.object_tombstones()] == [str(gone)]
    town.go("cat")
    town.insert("bea", "photo3", TAG, seconds=20)
    assert town.heard("ann") == ["photo1", "photo2", "photo3"]
    assert sum(not_believed(town, kind) for kind in ("object", "delete", "location")) == 0


def test_b5_nobody_publishes_in_anothers_name() -> None:
    town = a_town()
    town.subscribe("dan", TAG)
    plain = photo(1, tags=[TAG], by=ANN)
    active = (Replica(HERE),)
    for metadata in (plain, signed(plain, by=MALLORY)):
        say(town, cell_wire.IndexObject(1, IndexedMetadata(metadata, active)))
        say(town, cell_wire.StoreReplica(metadata, b""))
        say(town, cell_wire.CellState(0, 0, 1, (IndexedMetadata(metadata, active),)), to="cat")
        say(
            town,
            cell_wire.TransferState(
                1, CellId(4), cell_wire.CellState(0, 0, 1, (IndexedMetadata(metadata, active),))
            ),
        )
        say(town, cell_wire.ReindexObjects(1, (IndexedMetadata(metadata, active),)))

    assert town.indexing("photo1") == set()
    assert town.holding(plain.key) == set()
    assert town.heard("dan") == []
    assert not_believed(town, "object") >= 10
    say(town, cell_wire.IndexObject(1, IndexedMetadata(signed(plain), active)))
    assert town.heard("dan") == ["photo1"], "what she said herself is believed"


def a_delete(by: NodeId, key: Key) -> wire.SignedDelete:
    return wire.SignedDelete(1, key, Stamps(by).sign(DeleteRecord(key)))


def test_b5_nobody_deletes_what_is_anothers() -> None:
    town = a_town()
    key = town.insert("ann", "photo1", TAG)
    say(town, wire.DeleteObject(1, key))
    say(town, a_delete(MALLORY, key))

    assert town.indexing("photo1") == {"cat", "col"}
    assert not_believed(town, "delete") >= 2
    say(town, a_delete(ANN, key))
    assert town.indexing("photo1") == set()


def test_b5_a_forged_grave_buries_nothing() -> None:
    town = a_town(config=ROBUST)
    town.subscribe("ann", TAG)
    key = town.insert("ann", "photo1", TAG)
    sub_key = own_subscription(town).key
    for by in (None, MALLORY):
        proofs = [b"" if by is None else Stamps(by).sign(DeleteRecord(key))]
        proofs.append(b"" if by is None else Stamps(by).sign(UnsubscribeRecord(sub_key)))
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
            say(town, state, to=name, origin=NodeId(b"col" if name == "cat" else b"cat"))
        say(town, cell_wire.TransferState(1, CellId(4), state))
        say(town, cell_wire.BackupState(1, CellId(6), 0, state))
    town.run(10)

    assert town.indexing("photo1") >= {"cat", "col"}
    assert standing(town) >= {"cat", "col"}
    assert not_believed(town, "delete") >= 4
    assert not_believed(town, "unsubscribe") >= 4


def test_b5_nobody_unsubscribes_or_subscribes_for_another() -> None:
    town = a_town()
    begun = town.subscribe("ann", TAG)
    key = SubscriptionKey(begun.sid, ANN)
    say(town, wire.StopSubscription(1, key))
    say(town, wire.SignedStop(1, key, Stamps(MALLORY).sign(UnsubscribeRecord(key))))
    assert standing(town) == {"cat", "col"}
    assert not_believed(town, "unsubscribe") >= 2

    place = a_place(ANN, HERE, 10**9)
    for forged in (subscribe(9, TAG, by=ANN), vouched_for(subscribe(9, TAG, by=ANN), MALLORY)):
        say(town, wire.StartSubscription(1, forged, 20))
        say(town, wire.LocatedSubscription(1, forged, 20, place))
    assert town.standing() == {"cat": 1, "col": 1}
    assert not_believed(town, "subscription") >= 4
    say(town, wire.SignedStop(1, key, Stamps(ANN).sign(UnsubscribeRecord(key))))
    assert not standing(town)


def a_place(by: NodeId, cell: CellId, at_us: int, of: NodeId = ANN) -> SignedLocation:
    return SignedLocation(
        cell, SignedInstant(at_us, Stamps(by).sign(LocationRecord(of, cell, at_us)))
    )


def where(town: Town) -> set[int]:
    """Where the cell of the tag believes Ann to be."""
    nodes = (town.nodes["cat"], town.nodes["col"])
    return {some.cell for node in nodes for some in node.index.cell_subscriptions()}


def test_b5_nobody_says_where_another_is() -> None:
    town = a_town()
    sids = (town.subscribe("ann", TAG).sid,)
    elsewhere = CellId(6)
    held = own_subscription(town)
    late_us = 10**9
    say(town, cell_wire.LocationUpdate(1, sids))
    say(town, cell_wire.SignedLocationUpdate(1, sids, (), a_place(MALLORY, elsewhere, late_us)))
    theirs = a_place(MALLORY, elsewhere, late_us, of=MALLORY)
    say(town, cell_wire.SignedLocationUpdate(1, sids, (), theirs))
    say(town, wire.LocatedSubscription(1, held, 20, theirs))
    for heard in (late_us, theirs.since, a_place(MALLORY, elsewhere, late_us).since):
        state = cell_wire.CellState(
            0, 0, 1, subscriptions=(CellSubscription(held, elsewhere, (), heard),)
        )
        say(town, cell_wire.TransferState(1, CellId(4), state))

    assert where(town) == {HERE}
    assert not_believed(town, "location") >= 7
    say(town, cell_wire.SignedLocationUpdate(1, sids, (), a_place(ANN, elsewhere, late_us)))
    assert where(town) == {elsewhere}, "her own word counts"


def test_b5_an_old_place_is_not_believed_again() -> None:
    """Whoever recorded what Ann said once sends it again when she has moved."""
    town = a_town()
    town.subscribe("ann", TAG)
    [interest] = town.nodes["cat"].index.cell_subscriptions()
    assert isinstance(interest.located, SignedInstant)
    old = SignedLocation(HERE, interest.located)
    town.move("ann", in_cell(1), settle_s=SETTLED_S)
    assert where(town) == {1}

    sids = (interest.subscription.key.sid,)
    say(town, cell_wire.SignedLocationUpdate(1, sids, (), old))
    say(town, wire.LocatedSubscription(1, interest.subscription, 20, old))
    say(
        town,
        cell_wire.TransferState(
            1, CellId(4), cell_wire.CellState(0, 0, 1, subscriptions=(interest,))
        ),
    )
    assert where(town) == {1}
    town.insert("dan", "photo1", TAG)
    assert town.heard("ann") == ["photo1"]


def test_b5_what_was_deleted_or_cancelled_does_not_come_back_by_being_said_again() -> None:
    town = a_town()
    begun = town.subscribe("ann", TAG)
    key = town.insert("ann", "photo1", TAG)
    [indexed] = town.nodes["cat"].index.objects()
    [interest] = town.nodes["cat"].index.cell_subscriptions()
    town.finish("ann", asked.Delete, key=key)
    town.finish("ann", asked.Unsubscribe, sid=begun.sid)

    say(town, cell_wire.IndexObject(1, indexed))
    assert isinstance(interest.located, SignedInstant)
    start = wire.LocatedSubscription(
        1, interest.subscription, 20, SignedLocation(HERE, interest.located)
    )
    say(town, start)
    state = cell_wire.CellState(0, 0, 1, (indexed,), (interest,))
    say(town, cell_wire.TransferState(1, CellId(4), state))
    assert town.indexing("photo1") == set()
    assert not standing(town)


def test_b5_a_place_that_is_on_no_map_is_not_taken_in() -> None:
    town = a_town()
    sids = (town.subscribe("ann", TAG).sid,)
    say(town, cell_wire.SignedLocationUpdate(1, sids, (), a_place(ANN, CellId(999), 10**9)))

    assert where(town) == {HERE}
    assert town.nodes["cat"].dropped["no such cell"] == 1


# Quotas


def with_quota(quota: Quota) -> Town:
    return a_town(config=replace(PAPER, broker=replace(PAPER.broker, quota=quota)))


def insert(town: Town, name: str, oid: str) -> str:
    request = asked.Insert(request_id=next(NUMBERS), data=b"pixels", tags=(TAG,), oid=oid)  # type: ignore[arg-type]
    told = town.ask(name, request)
    return told.code if isinstance(told, asked.Failed) else "done"


def test_b5_one_owner_over_its_quota_does_not_cost_others_theirs() -> None:
    town = with_quota(Quota(objects=2))

    assert [insert(town, "ann", f"a{n}") for n in range(3)] == ["done", "done", "over_quota"]
    assert [insert(town, "bea", f"b{n}") for n in range(2)] == ["done", "done"]
    assert set(town.index("cat")) == {"a0", "a1", "b0", "b1"}
    assert set(town.index("col")) == {"a0", "a1", "b0", "b1"}
    assert town.nodes["col"].service.dropped["over_quota"] == 1, "who did not answer counts"
    town.finish("ann", asked.Delete, key=Key("a0", ANN))  # type: ignore[arg-type]
    assert insert(town, "ann", "a3") == "done"


@pytest.mark.parametrize(("quota", "held"), [(Quota(bytes=13), 2), (Quota(), 3)])
def test_b5_objects_are_held_for_a_colleague_up_to_its_quota(quota: Quota, held: int) -> None:
    town = with_quota(quota)
    for number in range(3):
        insert(town, "ann", f"a{number}")

    assert len(town.nodes["abe"].replicas) == held
    assert town.nodes["abe"].service.dropped["over_quota"] == 3 - held


def test_b5_subscriptions_count_by_subscriber() -> None:
    town = with_quota(Quota(subscriptions=1))
    town.subscribe("ann", TAG)
    town.subscribe("bea", TAG)

    conjunctions = subscribe(1, TAG).conjunctions
    code = town.fail(
        "ann",
        asked.Subscribe,
        conjunctions=conjunctions,
        frame=subscribe(1).frame,
        batch=20,
    )
    assert code == "over_quota"
    assert town.standing() == {"cat": 2, "col": 2}
