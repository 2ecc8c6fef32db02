"""Message authentication: a record that its author did not sign is rejected in any message (B5)."""

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, CAROL, conjunctions, frame, key, photo, subscribe
from tests.fake_signer import FakeSigner, authenticator, signed, vouched_for
from tests.wire.strategies import disjunctions, frames, metadata, subscriptions
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import (
    DeleteRecord,
    LocationRecord,
    UnsubscribeRecord,
    sign_subscription,
    verify_subscription,
)
from thyme.model.subscriptions import SignedConjunctions, SubscriptionRecord
from thyme.protocol import message_auth
from thyme.protocol.messages import cells as cell_wire
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    IndexedMetadata,
    MatchedObject,
    SignedInstant,
    SignedLocation,
    TombstoneRecord,
)
from thyme.protocol.node import Broadcast, Send

MALLORY = NodeId(b"mallory")
CELL = CellId(7)
RECORDS = (
    Metadata,
    SubscriptionRecord,
    IndexedMetadata,
    CellSubscription,
    MatchedObject,
    TombstoneRecord,
    cell_wire.CellState,
)
ROUTING = (wire.Packet, wire.CellPacket, wire.CellBroadcast)
"""Opened by routing, which delivers the messages inside."""


def a_place(by: NodeId, says: NodeId | None = None) -> SignedLocation:
    proof = FakeSigner(by).sign(LocationRecord(says or by, CELL, 5))
    return SignedLocation(CELL, SignedInstant(5, proof))


def a_tombstone(by: NodeId, *, subscription: bool = False) -> TombstoneRecord:
    sub_key = subscribe(1, by=ALICE).key
    record = UnsubscribeRecord(sub_key) if subscription else DeleteRecord(key(1, ALICE))
    written = str(sub_key if subscription else key(1, ALICE))
    return TombstoneRecord(written, "deleted", SignedInstant(5, FakeSigner(by).sign(record)))


def an_interest(by: NodeId, at: NodeId | None = None) -> CellSubscription:
    place = a_place(at or by, ALICE)
    return CellSubscription(vouched_for(subscribe(1, by=ALICE), by), CELL, (), place.since)


def a_photo(by: NodeId) -> Metadata:
    return signed(photo(1, by=ALICE), by)


def whole(by: NodeId) -> list[wire.Message]:
    """Messages with one record of Alice, which are dropped without it."""
    listed = IndexedMetadata(a_photo(by), ())
    stop = UnsubscribeRecord(subscribe(1, by=ALICE).key)
    start = wire.LocatedSubscription(1, vouched_for(subscribe(1, by=ALICE), by), 20, a_place(ALICE))
    return [
        wire.InsertObject(1, a_photo(by), b""),
        cell_wire.StoreReplica(a_photo(by), b""),
        cell_wire.ConfirmReplica(1, a_photo(by), False),
        wire.Notify(a_photo(by), ()),
        cell_wire.IndexObject(1, listed),
        cell_wire.CellNotify(listed, ()),
        wire.ObjectStatus(1, "there", a_photo(by)),
        cell_wire.CellStatus(1, "there", listed),
        wire.SignedDelete(1, key(1, ALICE), FakeSigner(by).sign(DeleteRecord(key(1, ALICE)))),
        wire.SignedStop(1, stop.key, FakeSigner(by).sign(stop)),
        start,
        wire.LocatedSubscription(1, vouched_for(subscribe(1, by=ALICE)), 20, a_place(by, ALICE)),
        cell_wire.SignedLocationUpdate(1, (), (), a_place(by, ALICE)),
        wire.ReliableMessage(1, wire.Notify(a_photo(by), ())),
        wire.Flooded(ALICE, 1, 0, start),
        wire.ReplyFromCell(CELL, cell_wire.CellStatus(1, "there", listed)),
    ]


def many(by: NodeId) -> list[tuple[wire.Message, Callable[[Any], Any]]]:
    """Messages with a list, in which one record of Alice is signed by this signer."""
    listed = IndexedMetadata(a_photo(by), ())
    state = cell_wire.CellState(0, 0, 1)
    return [
        (wire.Page(1, 1, (a_photo(by),), False), lambda m: m.items),
        (wire.PastMatches(subscribe(1).key.sid, 1, (a_photo(by),), False), lambda m: m.items),
        (cell_wire.CellPage(1, 1, (listed,), False), lambda m: m.items),
        (cell_wire.CellNotifyBatch((MatchedObject(listed, ()),)), lambda m: m.items),
        (cell_wire.ReindexObjects(1, (listed,)), lambda m: m.objects),
        (wire.JoinReply(1, 0, 1, (vouched_for(subscribe(1), by),)), lambda m: m.subscriptions),
        *(
            (make(msgspec.structs.replace(state, **{field: (record,)})), found)
            for field, record in (
                ("objects", listed),
                ("subscriptions", an_interest(by)),
                ("subscriptions", an_interest(ALICE, at=by)),
                ("object_tombstones", a_tombstone(by)),
                ("subscription_tombstones", a_tombstone(by, subscription=True)),
                ("replicated", a_photo(by)),
            )
            for make, found in (
                (lambda state: state, lambda m, field=field: getattr(m, field)),
                (
                    lambda state: cell_wire.TransferState(1, CELL, state),
                    lambda m, field=field: getattr(m.state, field),
                ),
                (
                    lambda state: cell_wire.BackupState(1, CELL, 1, state),
                    lambda m, field=field: getattr(m.state, field),
                ),
            )
        ),
    ]


@pytest.mark.parametrize("at", range(len(whole(ALICE))))
def test_b5_a_message_about_one_thing_passes_or_not_at_all(at: int) -> None:
    ours = authenticator(BOB, places=True)

    assert ours.verify_message(ALICE, whole(ALICE)[at]) is not None
    assert not ours.dropped
    assert ours.verify_message(ALICE, whole(MALLORY)[at]) is None
    assert sum(ours.dropped.values()) == 1


@pytest.mark.parametrize("at", range(len(many(ALICE))))
def test_b5_what_is_forged_is_left_out_of_a_list(at: int) -> None:
    ours = authenticator(BOB, places=True)
    genuine, _ = many(ALICE)[at]
    forged, found = many(MALLORY)[at]

    assert ours.verify_message(CAROL, genuine) is genuine, "whoever says so"
    assert not ours.dropped
    admitted = ours.verify_message(ALICE, forged)
    assert admitted is not None
    assert found(admitted) == ()
    assert len(found(forged)) == 1
    assert sum(ours.dropped.values()) == 1


def test_b5_after_a_few_forged_records_the_rest_of_a_list_is_not_verified() -> None:
    ours = authenticator(BOB, places=True)
    forged = wire.Page(1, 1_000, (a_photo(ALICE), *[a_photo(MALLORY)] * 999), has_more=False)

    page = ours.verify_message(ALICE, forged)

    assert page is not None
    assert page.items == (a_photo(ALICE),)
    assert ours.dropped == {"not genuine: object": 8, "not genuine: rest": 991}


@pytest.mark.parametrize(
    "message",
    [
        wire.InsertObject(1, photo(1, by=ALICE), b""),
        wire.DeleteObject(1, key(1, ALICE)),
        wire.StopSubscription(1, subscribe(1, by=ALICE).key),
        wire.StartSubscription(1, subscribe(1, by=ALICE), 20),
        wire.StartSubscription(1, vouched_for(subscribe(1, by=ALICE)), 20),
        cell_wire.LocationUpdate(1),
        cell_wire.SignedLocationUpdate(1),
    ],
    ids=lambda message: type(message).__name__,
)
def test_b5_what_nobody_signed_is_not_believed(message: wire.Message) -> None:
    ours = authenticator(BOB, places=True)

    assert ours.verify_message(ALICE, message) is None
    assert sum(ours.dropped.values()) == 1


def test_b5_where_there_are_no_cells_a_subscriber_need_not_say_where_it_is() -> None:
    start = wire.StartSubscription(1, vouched_for(subscribe(1, by=ALICE)), 20)

    assert authenticator(BOB).verify_message(ALICE, start) is start


def test_b5_tombstones_that_nobody_signed_are_passed_over() -> None:
    ours = authenticator(BOB, places=True)
    left = (TombstoneRecord(str(key(1)), "deleted", 5), TombstoneRecord(str(key(2)), "expired", 5))
    nonsense = (TombstoneRecord("nobody's", "cancelled", SignedInstant(5, b"")),)
    state = cell_wire.CellState(0, 0, 1, object_tombstones=left, subscription_tombstones=nonsense)

    assert ours.verify_message(ALICE, state) == cell_wire.CellState(0, 0, 1)
    assert ours.dropped == {"not genuine: delete": 1, "not genuine: unsubscribe": 1}


def test_b5_every_message_that_brings_records_is_looked_at() -> None:
    def brings(kind: Any) -> bool:
        if isinstance(kind, type) and issubclass(kind, RECORDS):
            return True
        return kind == wire.Message or any(map(brings, typing.get_args(kind)))

    own = (wire.DeleteObject, wire.StopSubscription, cell_wire.LocationUpdate)
    bringing = {
        kind
        for kind in typing.get_args(wire.Message)
        if issubclass(kind, own) or any(brings(f.type) for f in msgspec.structs.fields(kind))
    }

    assert bringing - set(ROUTING) == message_auth._VERIFIABLE


def test_b5_a_node_signs_what_it_says_in_its_own_name() -> None:
    mine, theirs = authenticator(ALICE, places=True), authenticator(BOB, places=True)
    subscription = vouched_for(subscribe(1, by=ALICE))
    for said in (
        wire.DeleteObject(1, key(1, ALICE)),
        wire.StopSubscription(1, subscription.key),
        wire.StartSubscription(1, subscription, 20),
        cell_wire.LocationUpdate(1, (subscription.key.sid,)),
    ):
        assert theirs.verify_message(ALICE, mine.sign_message(said, 5, CELL)) is not None, said
    assert not theirs.dropped


def test_b5_a_node_signs_nothing_for_others() -> None:
    mine = authenticator(BOB, places=True)
    for said in (
        wire.DeleteObject(1, key(1, ALICE)),
        wire.StopSubscription(1, subscribe(1, by=ALICE).key),
        wire.StartSubscription(1, subscribe(1, by=ALICE), 20),
        wire.Flooded(ALICE, 1, 0, wire.DeleteObject(1, key(1, BOB))),
        wire.Done(1),
    ):
        assert mine.sign_message(said, 5, CELL) is said


def test_b5_what_is_sent_is_signed_alone_and_in_a_flood() -> None:
    stop = wire.StopSubscription(1, subscribe(1, by=ALICE).key)
    proof = FakeSigner(ALICE).sign(UnsubscribeRecord(stop.key))
    signed_stop = wire.SignedStop(1, stop.key, proof)
    flood = wire.Flooded(ALICE, 1, 0, stop)
    said = [Send(BOB, stop), Broadcast(flood), Send(BOB, wire.Done(1))]

    assert authenticator(ALICE).sign_actions(said, 5) == [
        Send(BOB, signed_stop),
        Broadcast(wire.Flooded(ALICE, 1, 0, signed_stop)),
        Send(BOB, wire.Done(1)),
    ]


def test_b5_a_part_of_a_subscription_is_believed_and_nothing_else() -> None:
    asked = vouched_for(subscribe(1, "goal | save & !replay", frame(0, 10), by=ALICE))
    part = asked.with_conjunctions(conjunctions("goal"))
    wider = asked.with_conjunctions(conjunctions("save"))
    longer = SubscriptionRecord(asked.key, asked.query_terms, frame(0, 11))
    another = SubscriptionRecord(subscribe(2, by=ALICE).key, asked.query_terms, asked.frame)

    stamps = FakeSigner(BOB)
    assert verify_subscription(asked, stamps)
    assert verify_subscription(part, stamps)
    for forged in (wider, longer, another):
        assert not verify_subscription(forged, stamps)


@given(metadata, metadata)
def test_b5_a_seal_is_good_for_all_of_the_metadata(one: Metadata, other: Metadata) -> None:
    sealed = signed(one)
    stamps = FakeSigner(BOB)

    assert stamps.verify(sealed, sealed.proof)
    assert sealed.digest == one.digest
    changed = msgspec.structs.replace(other, digest_and_proof=other.digest + sealed.proof)
    assert stamps.verify(changed, changed.proof) == (
        msgspec.structs.replace(other, digest_and_proof=other.digest)
        == msgspec.structs.replace(one, digest_and_proof=one.digest)
    )


@given(subscriptions, disjunctions, frames(), st.data())
def test_b5_whatever_part_of_whatever_subscription(
    whole: SubscriptionRecord, others: Any, span: Any, data: st.DataObject
) -> None:
    asked = sign_subscription(whole, FakeSigner(whole.key.subscriber))
    some = tuple(data.draw(st.lists(st.sampled_from(whole.conjunctions), min_size=1)))
    stamps = FakeSigner(BOB)

    assert verify_subscription(asked.with_conjunctions(some), stamps)
    assert verify_subscription(asked.with_conjunctions(others), stamps) == (
        set(others) <= set(whole.conjunctions)
    )
    moved = SubscriptionRecord(asked.key, asked.query_terms, span)
    assert verify_subscription(moved, stamps) == (span == whole.frame)
    assert isinstance(asked.query_terms, SignedConjunctions)
    assert (
        not verify_subscription(whole.with_conjunctions(some), stamps) or whole.proof == asked.proof
    )
