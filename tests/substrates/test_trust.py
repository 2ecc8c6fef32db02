"""Nobody can forge, delete or end what is another's, in ES and in LS; and quotas by peer (B5)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, CAROL, conjunctions, key, photo, subscribe
from tests.fake_signer import FakeSigner, authenticator, signed, vouched_for
from thyme.model.errors import QuotaError
from thyme.model.ids import NodeId, ObjectId
from thyme.model.metadata import Metadata
from thyme.model.signed_records import DeleteRecord, UnsubscribeRecord
from thyme.model.time_frames import ALWAYS
from thyme.protocol import app_interface as asked
from thyme.protocol.messages import common as wire
from thyme.protocol.node import Action, AppRequested, Broadcast, Emit, Received, Send, Started
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.quotas import PeerUsage, Quota, UsageTable
from thyme.substrates.es import EsConfig, EsNode
from thyme.substrates.ls.config import LsConfig
from thyme.substrates.ls.node import LsNode

SERVER, MALLORY = NodeId(b"server"), NodeId(b"mallory")


def es_node(
    name: NodeId = SERVER, quota: Quota | None = None, store: MemoryStore | None = None
) -> EsNode:
    config = EsConfig(broker=BrokerConfig(quota=quota or Quota()))
    node = EsNode(name, SERVER, store or MemoryStore(), Random(1), config, authenticator(name))
    node.handle(Started(), 0)
    return node


def ls_node(name: NodeId, quota: Quota | None = None) -> LsNode:
    config = LsConfig(broker=BrokerConfig(quota=quota or Quota()))
    node = LsNode(name, MemoryStore(), Random(1), config, authenticator(name))
    node.handle(Started(), 0)
    return node


def a_photo(number: int = 7, by: NodeId = ALICE, data: bytes = b"pixels") -> Metadata:
    return signed(photo(number, by=by, data=data, at_us=90))


def said(actions: list[Action]) -> list[wire.Message]:
    return [action.message for action in actions if isinstance(action, Send | Broadcast)]


def hear(node: EsNode | LsNode, sender: NodeId, *messages: wire.Message) -> list[wire.Message]:
    return [
        reply for message in messages for reply in said(node.handle(Received(sender, message), 100))
    ]


def stored(server: EsNode) -> int:
    assert server.broker is not None
    return len(server.broker.catalogue)


def standing(node: EsNode | LsNode) -> int:
    assert node.broker is not None
    return node.broker.subscription_count


def a_delete(by: NodeId, number: int = 7) -> wire.SignedDelete:
    record = DeleteRecord(key(number, ALICE))
    return wire.SignedDelete(2, record.key, FakeSigner(by).sign(record))


def a_stop(by: NodeId) -> wire.SignedStop:
    record = UnsubscribeRecord(subscribe(1, by=ALICE).key)
    return wire.SignedStop(3, record.key, FakeSigner(by).sign(record))


def a_start(by: NodeId = ALICE, number: int = 1) -> wire.StartSubscription:
    return wire.StartSubscription(1, vouched_for(subscribe(number, by=ALICE), by), 20)


# Thyme-ES


def test_b5_es_a_client_and_its_server_understand_each_other() -> None:
    server, client = es_node(), es_node(ALICE)

    def ask(request: asked.AppRequest) -> object:
        actions = client.handle(AppRequested(request), 100)
        for reply in hear(server, ALICE, *said(actions)):
            actions += client.handle(Received(SERVER, reply), 100)
        told = [action.event for action in actions if isinstance(action, Emit)]
        [finished] = [one for one in told if isinstance(one, asked.Finished)]
        return finished.value

    inserted = ask(
        asked.Insert(request_id=1, data=b"pixels", tags=("goal",), oid=ObjectId("photo1"))
    )
    begun = ask(
        asked.Subscribe(request_id=2, conjunctions=conjunctions("goal"), frame=ALWAYS, batch=20)
    )
    assert inserted == key(1, ALICE)
    assert isinstance(begun, asked.SubscriptionStarted)
    assert begun.total == 1
    assert (stored(server), standing(server)) == (1, 1)
    ask(asked.Delete(request_id=3, key=key(1, ALICE)))
    ask(asked.Unsubscribe(request_id=4, sid=begun.sid))
    assert (stored(server), standing(server)) == (0, 0)
    assert not server.dropped


def test_b5_es_nobody_publishes_in_anothers_name() -> None:
    server = es_node()
    forged = signed(photo(7, by=ALICE, data=b"pixels", at_us=90), by=MALLORY)
    changed = Metadata(
        a_photo().key,
        ("save",),
        b"",
        90,
        6,
        a_photo().digest_and_proof,  # type: ignore[arg-type]
    )

    for metadata in (forged, changed, photo(7, by=ALICE, data=b"pixels", at_us=90)):
        assert hear(server, ALICE, wire.InsertObject(1, metadata, b"pixels")) == []
    assert stored(server) == 0
    assert server.dropped == {"not genuine: object": 3}


def test_b5_es_nobody_deletes_or_unsubscribes_for_another() -> None:
    server = es_node()
    hear(server, ALICE, wire.InsertObject(1, a_photo(), b"pixels"), a_start())

    for stranger in (
        a_delete(MALLORY),
        wire.DeleteObject(2, key(7, ALICE)),
        a_delete(ALICE, number=8),  # another object's
        a_stop(MALLORY),
        wire.StopSubscription(3, subscribe(1, by=ALICE).key),
    ):
        assert not any(isinstance(reply, wire.Done) for reply in hear(server, ALICE, stranger))
    assert (stored(server), standing(server)) == (1, 1)
    assert server.dropped == {"not genuine: delete": 2, "not genuine: unsubscribe": 2}
    assert hear(server, ALICE, a_delete(ALICE), a_stop(ALICE)) == [wire.Done(2), wire.Done(3)]
    assert (stored(server), standing(server)) == (0, 0)


def test_b5_es_nobody_subscribes_in_anothers_name() -> None:
    server = es_node()

    assert hear(server, ALICE, a_start(by=MALLORY)) == []
    assert hear(server, ALICE, wire.StartSubscription(1, subscribe(1, by=ALICE), 20)) == []
    assert standing(server) == 0
    assert server.dropped == {"not genuine: subscription": 2}


def test_b5_es_what_is_said_again_does_no_harm() -> None:
    """Whoever recorded genuine messages sends them again, in the author's name or its own."""
    server = es_node()
    insert = wire.InsertObject(1, a_photo(), b"pixels")
    hear(server, ALICE, insert, a_start())
    hear(server, ALICE, a_delete(ALICE), a_stop(ALICE))

    replies = hear(server, ALICE, insert, a_start(), a_delete(ALICE), a_stop(ALICE))
    assert [type(reply) for reply in replies] == [wire.Refused, wire.Refused, wire.Done, wire.Done]
    replies = hear(server, MALLORY, insert, a_start(), a_delete(ALICE), a_stop(ALICE))
    assert {reply.code for reply in replies if isinstance(reply, wire.Refused)} == {"not_owner"}
    assert (stored(server), standing(server)) == (0, 0)


def test_b5_es_a_client_is_not_told_of_what_nobody_published() -> None:
    client = es_node(ALICE)
    [start] = said(
        client.handle(
            AppRequested(
                asked.Subscribe(
                    request_id=2, conjunctions=conjunctions("goal"), frame=ALWAYS, batch=20
                )
            ),
            100,
        )
    )
    assert isinstance(start, wire.StartSubscription)
    forged = signed(photo(8, by=BOB, at_us=90), by=MALLORY)
    page = wire.Page(start.request_id, 2, (a_photo(7, BOB), forged), False)
    news = wire.ReliableMessage(1, wire.Notify(forged, (start.subscription.key.sid,)))

    actions = [
        *client.handle(Received(SERVER, page), 110),
        *client.handle(Received(SERVER, news), 120),
    ]
    told = [action.event for action in actions if isinstance(action, Emit)]
    notes = [one.notification.key for one in told if isinstance(one, asked.NotificationEvent)]
    assert notes == [key(7, BOB)]
    assert client.dropped == {"not genuine: object": 2}


# Thyme-LS


def test_b5_ls_floods_are_believed_from_their_subscriber_only() -> None:
    node = ls_node(BOB)

    for forged in (a_start(by=MALLORY), wire.StartSubscription(1, subscribe(1, by=ALICE), 20)):
        assert hear(node, CAROL, wire.Flooded(ALICE, 1, 0, forged)) == []
    assert standing(node) == 0
    node.handle(Received(CAROL, wire.Flooded(ALICE, 1, 0, a_start())), 100)
    assert standing(node) == 1, "a forged one takes the place of none"
    for number, stop in enumerate((a_stop(MALLORY), wire.StopSubscription(3, a_stop(ALICE).key))):
        hear(node, CAROL, wire.Flooded(ALICE, 10 + number, 0, stop), stop)
    assert standing(node) == 1
    hear(node, CAROL, wire.Flooded(ALICE, 20, 0, a_stop(ALICE)))
    assert standing(node) == 0


def test_b5_ls_a_subscription_is_learnt_from_anybody_if_it_is_genuine() -> None:
    teacher, pupil = ls_node(ALICE), ls_node(BOB)
    teacher.handle(
        AppRequested(
            asked.Subscribe(request_id=1, conjunctions=conjunctions("goal"), frame=ALWAYS, batch=20)
        ),
        50,
    )
    [held] = teacher.broker.active_subscriptions()
    forged = vouched_for(subscribe(2, by=ALICE), by=MALLORY)
    request = pupil.joining._request_number

    hear(pupil, CAROL, wire.JoinReply(request, 0, 1, (held, forged, subscribe(3, by=ALICE))))
    assert [one.key for one in pupil.broker.active_subscriptions()] == [held.key]
    assert pupil.dropped == {"not genuine: subscription": 2}


def test_b5_ls_news_are_of_what_the_owner_published() -> None:
    node = ls_node(ALICE)
    actions = node.handle(
        AppRequested(
            asked.Subscribe(request_id=1, conjunctions=conjunctions("goal"), frame=ALWAYS, batch=20)
        ),
        50,
    )
    [begun] = [action.event for action in actions if isinstance(action, Emit)][:1]
    assert isinstance(begun, asked.Finished)
    assert isinstance(begun.value, asked.SubscriptionStarted)
    sids = (begun.value.sid,)
    forged = signed(photo(8, by=BOB, at_us=90), by=MALLORY)

    told = [
        action.event.notification.key
        for metadata in (forged, a_photo(7, BOB))
        for action in node.handle(Received(BOB, wire.Notify(metadata, sids)), 100)
        if isinstance(action, Emit) and isinstance(action.event, asked.NotificationEvent)
    ]
    assert told == [key(7, BOB)]
    assert node.dropped == {"not genuine: object": 1}


# Quotas


def insert(server: EsNode, number: int, by: NodeId, data: bytes = b"pixels") -> str:
    [reply, *_] = hear(server, by, wire.InsertObject(number, a_photo(number, by, data), data))
    return reply.code if isinstance(reply, wire.Refused) else "done"


def test_b5_es_one_owner_over_its_quota_does_not_cost_others_theirs() -> None:
    server = es_node(quota=Quota(objects=2))

    assert [insert(server, number, ALICE) for number in range(4)] == ["done"] * 2 + [
        "over_quota"
    ] * 2
    assert [insert(server, number, BOB) for number in range(2)] == ["done"] * 2
    assert insert(server, 1, ALICE) == "done", "one that is here is here"
    hear(server, ALICE, a_delete(ALICE, number=0))
    assert insert(server, 9, ALICE) == "done", "there is room again"
    assert insert(server, 10, ALICE) == "over_quota"


def test_b5_es_bytes_count_too() -> None:
    server = es_node(quota=Quota(bytes=10))

    assert insert(server, 1, ALICE, b"123456") == "done"
    assert insert(server, 2, ALICE, b"12345") == "over_quota"
    assert insert(server, 3, ALICE, b"1234") == "done"
    assert insert(server, 4, BOB, b"0123456789") == "done"


def test_b5_es_subscriptions_count_by_subscriber() -> None:
    server = es_node(quota=Quota(subscriptions=2))

    def start(number: int, by: NodeId) -> str:
        subscription = vouched_for(subscribe(number, by=by))
        [reply] = hear(server, by, wire.StartSubscription(number, subscription, 20))
        return reply.code if isinstance(reply, wire.Refused) else "done"

    assert [start(number, ALICE) for number in (1, 2, 3)] == ["done", "done", "over_quota"]
    assert start(2, ALICE) == "done", "one that stands stands"
    assert start(1, BOB) == "done"
    hear(server, ALICE, a_stop(ALICE))
    assert start(4, ALICE) == "done"
    assert start(5, ALICE) == "over_quota"


def test_b5_es_a_server_has_no_quota_for_itself_and_remembers_those_of_others() -> None:
    store = MemoryStore()
    server = es_node(quota=Quota(objects=1), store=store)
    for number in (1, 2):
        actions = server.handle(
            AppRequested(
                asked.Insert(
                    request_id=number, data=b"", tags=("goal",), oid=ObjectId(f"o{number}")
                )
            ),
            50,
        )
        assert any(
            isinstance(action, Emit) and isinstance(action.event, asked.Finished)
            for action in actions
        )
    assert insert(server, 1, ALICE) == "done"

    again = es_node(quota=Quota(objects=1), store=store)
    assert insert(again, 2, ALICE) == "over_quota"
    hear(again, ALICE, a_delete(ALICE, number=1))
    assert insert(again, 2, ALICE) == "done"


def test_b5_ls_keeps_so_many_subscriptions_of_each() -> None:
    node = ls_node(BOB, Quota(subscriptions=2))

    for number in range(4):
        start = a_start(number=number)
        hear(node, CAROL, wire.Flooded(ALICE, number, 0, start))
    assert standing(node) == 2
    assert node.dropped == {"over_quota": 2}


PEERS = [ALICE, BOB]


@given(st.lists(st.tuples(st.sampled_from(PEERS), st.integers(0, 9), st.booleans()), max_size=60))
def test_b5_shares_are_what_was_kept_and_never_more_than_the_quota(
    steps: list[tuple[NodeId, int, bool]],
) -> None:
    store = MemoryStore()
    shares = UsageTable("objects", 4, 20, store=store)
    kept: dict[NodeId, list[int]] = {peer: [] for peer in PEERS}
    for peer, weight, more in steps:
        mine = kept[peer]
        if more:
            fits = len(mine) < 4 and sum(mine) + weight <= 20
            try:
                shares.check_quota(peer, weight)
            except QuotaError:
                assert not fits
                continue
            assert fits
            shares.add(peer, weight)
            mine.append(weight)
        elif mine:
            shares.remove(peer, mine.pop())
        assert shares.usage_of(peer) == PeerUsage(peer, len(mine), sum(mine))
    again = UsageTable("objects", 4, 20, store=store)
    assert [again.usage_of(peer) for peer in PEERS] == [shares.usage_of(peer) for peer in PEERS]


@pytest.mark.parametrize("quota", [Quota(), Quota(bytes=1)])
def test_b5_where_there_is_no_quota_nothing_is_counted(quota: Quota) -> None:
    shares = UsageTable("subscriptions", quota.subscriptions, exempt=ALICE)
    for _ in range(5):
        shares.check_quota(BOB)
        shares.add(BOB)
    assert shares.usage_of(BOB) == PeerUsage(BOB)
