"""A node of Thyme-ES, input by input: strangers, stragglers and repeated messages."""

from __future__ import annotations

from random import Random

from tests.builders import ALICE, BOB, frame, photo, subscribe
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import Subscribe
from thyme.protocol.messages import common as wire
from thyme.protocol.node import Action, AppRequested, Received, Send, SetTimer, Started, TimerFired
from thyme.protocol.reliable_send import ResendTimer
from thyme.query.query import Query
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import SUBSCRIPTIONS
from thyme.substrates.common.broker_service import BrokerExpiryTimer
from thyme.substrates.es import ROBUST, EsConfig, EsNode

SERVER = NodeId(b"server")


def a_server(store: MemoryStore | None = None, config: EsConfig | None = None) -> EsNode:
    node = EsNode(SERVER, SERVER, store or MemoryStore(), Random(1), config or EsConfig())
    node.handle(Started(), now_us=0)
    return node


def a_client(name: NodeId = ALICE) -> EsNode:
    node = EsNode(name, SERVER, MemoryStore(), Random(2), EsConfig())
    node.handle(Started(), now_us=0)
    return node


def sent(actions: list[Action]) -> list[tuple[NodeId, wire.Message]]:
    return [(action.to, action.message) for action in actions if isinstance(action, Send)]


def insert(
    server: EsNode, metadata: Metadata, at_us: int = 100
) -> list[tuple[NodeId, wire.Message]]:
    message = wire.InsertObject(7, metadata, b"pixels")
    return sent(server.handle(Received(metadata.owner, message), at_us))


def refusal(replies: list[tuple[NodeId, wire.Message]]) -> str:
    (_, reply), *_ = replies
    assert isinstance(reply, wire.Refused), reply
    return reply.code


def test_e2_an_insert_is_answered_and_its_subscribers_are_told_in_one_message_each() -> None:
    server = a_server()
    for sid, query in ((1, "goal"), (2, "goal & eder"), (3, "replay")):
        start = wire.StartSubscription(1, subscribe(sid, query, by=BOB), 20)
        server.handle(Received(BOB, start), now_us=10)
    metadata = photo(7, tags=("eder", "goal"), by=ALICE, data=b"pixels", at_us=90)

    assert insert(server, metadata) == [
        (BOB, wire.Notify(metadata, ("sub1", "sub2"))),
        (ALICE, wire.Done(7)),
    ]


def test_e4_a_repeated_insert_is_answered_again_and_nobody_is_told_twice() -> None:
    server = a_server()
    start = wire.StartSubscription(1, subscribe(1, "goal", by=BOB), 20)
    server.handle(Received(BOB, start), now_us=10)
    metadata = photo(7, tags=("goal",), by=ALICE, data=b"pixels", at_us=90)
    insert(server, metadata)
    assert insert(server, metadata) == [(ALICE, wire.Done(7))]


def test_d15_an_insert_that_arrives_after_the_delete_stays_deleted() -> None:
    server = a_server()
    metadata = photo(7, tags=("goal",), by=ALICE, data=b"pixels", at_us=90)
    insert(server, metadata)
    server.handle(Received(ALICE, wire.DeleteObject(8, metadata.key)), now_us=110)
    assert refusal(insert(server, metadata, at_us=120)) == "rejected"
    assert server.broker is not None
    assert len(server.broker.catalogue) == 0


def test_m18_a_subscribe_that_arrives_after_the_unsubscribe_stays_cancelled() -> None:
    server = a_server()
    start = wire.StartSubscription(1, subscribe(1, "goal", by=BOB), 20)
    stop = wire.StopSubscription(2, SubscriptionKey(start.subscription.key.sid, BOB))
    server.handle(Received(BOB, start), now_us=10)
    server.handle(Received(BOB, stop), now_us=20)
    assert refusal(sent(server.handle(Received(BOB, start), now_us=30))) == "ended"
    assert server.broker is not None
    assert server.broker.subscription_count == 0


def test_m14_strangers_cannot_do_what_only_an_owner_may() -> None:
    server = a_server()
    metadata = photo(7, tags=("goal",), by=ALICE, data=b"pixels", at_us=90)
    insert(server, metadata)
    his = subscribe(1, "goal", by=ALICE)
    for forged in (
        wire.DeleteObject(1, metadata.key),
        wire.InsertObject(1, photo(8, tags=("goal",), by=ALICE, data=b"x", at_us=90), b"x"),
        wire.StartSubscription(1, his, 20),
        wire.StopSubscription(1, his.key),
    ):
        assert refusal(sent(server.handle(Received(BOB, forged), now_us=100))) == "not_owner"
    assert server.broker is not None
    assert len(server.broker.catalogue) == 1


def test_m25_bytes_that_are_not_what_the_metadata_says_are_not_stored() -> None:
    server = a_server()
    metadata = photo(7, tags=("goal",), by=ALICE, data=b"other pixels", at_us=90)
    assert refusal(insert(server, metadata)) == "rejected"


def test_m25_a_request_to_a_node_that_is_not_the_server_is_dropped_and_counted() -> None:
    client = a_client()
    metadata = photo(7, tags=("goal",), by=BOB, data=b"pixels", at_us=90)
    assert client.handle(Received(BOB, wire.InsertObject(1, metadata, b"pixels")), 100) == []
    assert client.handle(Received(BOB, wire.Notify(metadata, ())), 100) == []
    assert client.dropped == {"not the server": 1, "notify from a stranger": 1}


def test_m25_what_other_substrates_say_is_dropped_and_counted() -> None:
    server = a_server()
    for strange in (
        wire.Flooded(BOB, 1, 0, wire.StartSubscription(1, subscribe(1, by=BOB), 20)),
        wire.ReliableMessage(1, wire.Done(1)),
        wire.JoinRequest(1, 1),
    ):
        assert server.handle(Received(BOB, strange), 100) == []
    assert server.dropped == {"not spoken here": 3}


def test_a_client_stops_a_subscription_it_knows_nothing_of_once() -> None:
    client = a_client(BOB)
    metadata = photo(7, tags=("goal",), by=ALICE, data=b"pixels", at_us=90)
    notify = wire.Notify(metadata, (subscribe(9, "goal", by=BOB).key.sid,))
    (to, message), *rest = sent(client.handle(Received(SERVER, notify), now_us=100))
    assert to == SERVER
    assert isinstance(message, wire.StopSubscription)
    assert rest == []
    assert sent(client.handle(Received(SERVER, notify), now_us=101)) == []


def test_m23_a_subscriber_drops_a_notification_that_does_not_match() -> None:
    client = a_client(BOB)
    query = Query("goal & !replay")
    ask = Subscribe(
        request_id=1, conjunctions=query.conjunctions, frame=TimeFrame(0, 1_000), batch=20
    )
    ((_, start),) = sent(client.handle(AppRequested(ask), now_us=10))
    assert isinstance(start, wire.StartSubscription)
    client.handle(Received(SERVER, wire.Page(start.request_id, 0, (), False)), now_us=20)
    sid = start.subscription.key.sid
    for wrong in (
        photo(1, tags=("goal", "replay"), by=ALICE, at_us=90),
        photo(2, tags=("goal",), by=ALICE, at_us=2_000),
    ):
        client.handle(Received(SERVER, wire.Notify(wrong, (sid,))), now_us=100)
    assert client.subscriber.spurious == 2


def test_m18_state_of_a_subscription_leaves_the_server_by_timer_alone() -> None:
    store = MemoryStore()
    server = a_server(store)
    lasting = wire.StartSubscription(1, subscribe(1, "goal", frame(None, 500), by=BOB), 20)
    actions = server.handle(Received(BOB, lasting), now_us=10)
    assert SetTimer(BrokerExpiryTimer(), 501) in actions
    server.handle(TimerFired(BrokerExpiryTimer()), now_us=501)
    assert server.broker is not None
    assert server.broker.subscription_count == 0
    assert list(store.load(SUBSCRIPTIONS)) == []


def test_e2_a_robust_server_says_it_again_until_it_is_heard_and_as_long_as_it_is_so() -> None:
    server = a_server(config=ROBUST)
    start = wire.StartSubscription(1, subscribe(1, "goal", by=BOB), 20)
    server.handle(Received(BOB, start), now_us=10)
    told = insert(server, photo(7, tags=("goal",), by=ALICE, data=b"pixels", at_us=90))
    [reliable] = [message for to, message in told if to == BOB]
    assert isinstance(reliable, wire.ReliableMessage)
    assert isinstance(reliable.message, wire.Notify)
    again = server.handle(TimerFired(ResendTimer(reliable.number)), now_us=600_000)
    assert sent(again) == [(BOB, reliable)]

    server.handle(
        Received(ALICE, wire.ReliableAck(reliable.number)), now_us=700_000
    )  # not for her to say
    assert sent(server.handle(TimerFired(ResendTimer(reliable.number)), 1_500_000)) == [
        (BOB, reliable)
    ]
    server.handle(Received(BOB, wire.ReliableAck(reliable.number)), now_us=1_600_000)
    assert sent(server.handle(TimerFired(ResendTimer(reliable.number)), 3_000_000)) == []


def test_e2_a_client_says_that_a_message_came_and_takes_none_from_strangers() -> None:
    client = a_client()
    note = wire.Notify(photo(7, tags=("goal",), by=BOB, at_us=90), ("s1",))
    assert (SERVER, wire.ReliableAck(5)) in sent(
        client.handle(Received(SERVER, wire.ReliableMessage(5, note)), now_us=10)
    )
    assert sent(client.handle(Received(BOB, wire.ReliableMessage(6, note)), now_us=20)) == []
    assert client.dropped["notify from a stranger"] == 1
