"""A node of Thyme-LS, input by input: what it does alone, what it says, whom it believes."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from tests.builders import ALICE, BOB, CAROL, conjunctions, frame, key, photo, subscribe
from thyme.model.ids import Key, NodeId, ObjectId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.time_frames import TimeFrame
from thyme.protocol.app_interface import (
    AppEvent,
    AppRequest,
    CaughtUp,
    Delete,
    Failed,
    FetchNextPage,
    Finished,
    Insert,
    NotificationEvent,
    Retrieve,
    Search,
    SearchResult,
    Subscribe,
    SubscriptionStarted,
    Unsubscribe,
)
from thyme.protocol.messages import common as wire
from thyme.protocol.node import (
    Action,
    AppRequested,
    Broadcast,
    Emit,
    Leaving,
    Received,
    Send,
    SendFailed,
    SetTimer,
    Started,
    TimerFired,
)
from thyme.protocol.reliable_send import ResendTimer
from thyme.protocol.request_tracker import RetryTimer
from thyme.protocol.retry import RetryPolicy
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import SUBSCRIPTIONS, BrokerConfig
from thyme.substrates.common.broker_service import BrokerExpiryTimer
from thyme.substrates.ls.config import PAPER, ROBUST, LsConfig
from thyme.substrates.ls.flooded_queries import CollectionConfig, CollectionTimer
from thyme.substrates.ls.node import LsNode
from thyme.substrates.ls.subscription_fetch import LsJoinTimer

SECOND_US = 1_000_000


def a_node(
    name: NodeId = ALICE, config: LsConfig = PAPER, store: MemoryStore | None = None
) -> LsNode:
    node = LsNode(name, store or MemoryStore(), Random(1), config)
    node.handle(Started(), now_us=0)
    return node


def ask(node: LsNode, request: AppRequest, at_us: int = 10) -> list[Action]:
    return node.handle(AppRequested(request), at_us)


def hear(node: LsNode, sender: NodeId, message: wire.Message, at_us: int = 50) -> list[Action]:
    return node.handle(Received(sender, message), at_us)


def flood(
    node: LsNode, origin: NodeId, message: wire.Message, at_us: int = 50, number: int = 1
) -> list[Action]:
    return hear(node, origin, wire.Flooded(origin, number, 0, message), at_us)


def sent(actions: list[Action]) -> list[tuple[NodeId, wire.Message]]:
    return [(action.to, action.message) for action in actions if isinstance(action, Send)]


def said_to_all(actions: list[Action]) -> list[wire.Message]:
    found = [action.message for action in actions if isinstance(action, Broadcast)]
    return [message.message if isinstance(message, wire.Flooded) else message for message in found]


def told(actions: list[Action]) -> list[AppEvent]:
    return [action.event for action in actions if isinstance(action, Emit)]


def heard(actions: list[Action]) -> list[str]:
    return [
        item.notification.key.oid for item in told(actions) if isinstance(item, NotificationEvent)
    ]


def insert(number: int, *tags: str, ask: int = 1) -> Insert:
    return Insert(
        request_id=ask, data=b"pixels", tags=tags or ("goal",), oid=ObjectId(f"photo{number}")
    )  # type: ignore[arg-type]


def follow(query: str = "goal", batch: int = 20, within: TimeFrame | None = None) -> Subscribe:
    within = within or frame()
    return Subscribe(request_id=2, conjunctions=conjunctions(query), frame=within, batch=batch)


def follows(node: LsNode, batch: int = 20, at_us: int = 10) -> SubscriptionId:
    """Lets a node subscribe; returns the identifier."""
    [finished, *_] = told(ask(node, follow(batch=batch), at_us))
    assert isinstance(finished, Finished)
    assert isinstance(finished.value, SubscriptionStarted)
    return finished.value.sid


def start(number: int = 1, by: NodeId = BOB, batch: int = 20) -> wire.StartSubscription:
    return wire.StartSubscription(99, subscribe(number, by=by), batch)


def owned(number: int, by: NodeId, at_us: int = 5) -> Metadata:
    return photo(number, by=by, data=b"pixels", at_us=at_us)


# L1, L3: objects


def test_l1_insert_and_delete_are_the_owner_s_own_business() -> None:
    alice = a_node()
    for request, value in (
        (insert(1, ask=1), key(1, ALICE)),
        (Delete(request_id=2, key=key(1, ALICE)), None),
    ):
        actions = ask(alice, request)
        assert told(actions) == [Finished(request.request_id, value)]
        assert sent(actions) == []
        assert said_to_all(actions) == []


def test_l3_on_insert_the_owner_notifies_each_subscriber_in_one_message() -> None:
    alice = a_node()
    for number, query, by in ((1, "goal", BOB), (2, "goal & eder", BOB), (3, "replay", CAROL)):
        subscription = subscribe(number, query, by=by)
        flood(alice, by, wire.StartSubscription(1, subscription, 20), number=number)

    [(to, note)] = sent(ask(alice, insert(7, "eder", "goal"), 90))

    assert to == BOB
    assert isinstance(note, wire.Notify)
    assert (note.metadata.key, note.sids) == (key(7, ALICE), ("sub1", "sub2"))


def test_l3_a_node_that_hears_of_a_subscription_tells_what_it_has() -> None:
    alice = a_node()
    for number in (1, 2, 3):
        ask(alice, insert(number), at_us=number)

    [(to, page)] = sent(flood(alice, BOB, start(batch=2)))

    assert to == BOB
    assert isinstance(page, wire.PastMatches)
    assert (page.sid, page.total, page.has_more) == ("sub1", 3, True)
    assert [item.oid for item in page.items] == ["photo3", "photo2"]


def test_l3_a_node_with_nothing_to_tell_is_silent() -> None:
    alice = a_node()
    ask(alice, insert(1, "replay"))
    assert sent(flood(alice, BOB, start())) == []
    fetch = wire.FetchPage(5, conjunctions("goal"), frame(), 20)
    assert sent(flood(alice, BOB, fetch, number=2)) == []


def test_l3_one_s_own_objects_and_subscriptions_match_without_a_word() -> None:
    alice = a_node()
    follows(alice)
    actions = ask(alice, insert(1), 20)
    assert heard(actions) == ["photo1"]
    assert sent(actions) == []


# L2: subscriptions


def test_l2_a_subscription_is_flooded_and_stands_at_once() -> None:
    alice = a_node()
    actions = ask(alice, follow())
    [message] = said_to_all(actions)
    assert isinstance(message, wire.StartSubscription)
    assert message.subscription.key.subscriber == ALICE
    [finished] = told(actions)
    assert finished == Finished(2, SubscriptionStarted(message.subscription.key.sid, 0))
    assert alice.broker.subscription_count == 1


def test_l2_an_unsubscribe_is_flooded_and_everybody_forgets() -> None:
    alice, bob = a_node(ALICE), a_node(BOB)
    [flooded] = [a.message for a in ask(alice, follow()) if isinstance(a, Broadcast)]
    hear(bob, ALICE, flooded)
    assert bob.broker.subscription_count == 1
    sid = next(alice.broker.active_subscriptions()).key.sid

    actions = ask(alice, Unsubscribe(request_id=3, sid=sid))

    [flooded] = [a.message for a in actions if isinstance(a, Broadcast)]
    assert Finished(3, None) in told(actions)
    hear(bob, ALICE, flooded)
    assert (alice.broker.subscription_count, bob.broker.subscription_count) == (0, 0)
    assert sent(ask(bob, insert(1))) == []


def test_l2_what_is_heard_is_passed_on_and_stored_once() -> None:
    alice = a_node()
    assert any(isinstance(action, SetTimer) for action in flood(alice, BOB, start()))
    assert flood(alice, BOB, start()) == []
    assert alice.broker.subscription_count == 1


def test_m18_a_subscribe_that_arrives_after_the_unsubscribe_stays_cancelled() -> None:
    alice = a_node()
    flood(alice, BOB, wire.StopSubscription(1, subscribe(by=BOB).key), number=2)
    flood(alice, BOB, start(), number=1)
    assert alice.broker.subscription_count == 0


@pytest.mark.parametrize(
    "forged",
    [start(by=BOB), wire.StopSubscription(1, subscribe(by=BOB).key)],
    ids=["subscribe", "unsubscribe"],
)
def test_m18_only_the_subscriber_floods_for_itself(forged: wire.Message) -> None:
    alice = a_node()
    flood(alice, BOB, start(2), number=1)
    flood(alice, CAROL, forged, number=2)
    assert alice.broker.subscription_count == 1
    assert alice.dropped == {"not_owner": 1}


def test_m18_only_the_subscriber_stops_a_subscription_by_itself() -> None:
    alice = a_node()
    flood(alice, BOB, start())
    stop = wire.StopSubscription(5, subscribe(by=BOB).key)
    [(_, refused)] = sent(hear(alice, CAROL, stop))
    assert isinstance(refused, wire.Refused)
    assert refused.code == "not_owner"
    assert sent(hear(alice, BOB, stop)) == [(BOB, wire.Done(5))]
    assert alice.broker.subscription_count == 0


def test_m18_the_state_of_a_subscription_leaves_every_node_by_timer_alone() -> None:
    store = MemoryStore()
    alice = a_node(store=store)
    lasting = wire.StartSubscription(1, subscribe(1, within=frame(None, 500), by=BOB), 20)
    assert SetTimer(BrokerExpiryTimer(), 501) in flood(alice, BOB, lasting)
    alice.handle(TimerFired(BrokerExpiryTimer()), now_us=501)
    assert alice.broker.subscription_count == 0
    assert list(store.load(SUBSCRIPTIONS)) == []


def test_a_subscriber_stops_what_it_knows_nothing_of_where_it_still_stands() -> None:
    bob = a_node(BOB)
    sid = subscribe(9).key.sid
    for news in (
        wire.Notify(owned(1, ALICE), (sid,)),
        wire.PastMatches(sid, 1, (owned(1, ALICE),), False),
    ):
        [(to, stop), *rest] = sent(hear(bob, ALICE, news)) or [(ALICE, None)]
        assert (to, rest) == (ALICE, [])
        assert stop is None or isinstance(stop, wire.StopSubscription)
    assert stop is None, "once is enough"


# L4: messages to one


def test_l4_retrieve_asks_the_owner_again_and_again_then_times_out() -> None:
    bob = a_node(BOB, msgspec.structs.replace(PAPER, retries=RetryPolicy(tries_max=3)))
    [(to, fetch)] = sent(ask(bob, Retrieve(request_id=1, metadata=owned(1, ALICE))))
    assert to == ALICE
    assert isinstance(fetch, wire.FetchObject)
    timer = TimerFired(RetryTimer(fetch.request_id))
    assert sent(bob.handle(timer, SECOND_US)) == [(ALICE, fetch)]
    assert sent(bob.handle(timer, 3 * SECOND_US)) == [(ALICE, fetch)]
    [failed] = told(bob.handle(timer, 9 * SECOND_US))
    assert isinstance(failed, Failed)
    assert failed.code == "timeout"


def test_m14_whoever_retrieves_a_deleted_object_hears_that_it_was_deleted() -> None:
    alice = a_node()
    ask(alice, insert(1))
    ask(alice, Delete(request_id=2, key=key(1, ALICE)))
    [(_, refused)] = sent(hear(alice, BOB, wire.FetchObject(5, key(1, ALICE))))
    assert isinstance(refused, wire.Refused)
    assert refused.code == "not_found"
    assert "deleted" in refused.detail


def test_l4_in_the_robust_profile_news_are_repeated_until_they_are_acknowledged() -> None:
    alice, bob = a_node(ALICE, ROBUST), a_node(BOB, ROBUST)
    [flooded] = [a.message for a in ask(bob, follow()) if isinstance(a, Broadcast)]
    hear(alice, BOB, flooded)
    [(_, reliable)] = sent(ask(alice, insert(1)))
    assert isinstance(reliable, wire.ReliableMessage)
    timer = TimerFired(ResendTimer(reliable.number))
    assert sent(alice.handle(timer, SECOND_US)) == [(BOB, reliable)]

    for _ in range(2):
        assert sent(hear(bob, ALICE, reliable)) == [(ALICE, wire.ReliableAck(reliable.number))]
    assert bob.subscriber.duplicates == 1
    hear(alice, CAROL, wire.ReliableAck(reliable.number))
    assert sent(alice.handle(timer, 2 * SECOND_US)) != [], "a stranger's receipt says nothing"
    hear(alice, BOB, wire.ReliableAck(reliable.number))
    assert alice.handle(timer, 3 * SECOND_US) == []


@pytest.mark.parametrize("shown", [True, False], ids=["of the past", "of the present"])
def test_m23_news_of_an_object_deleted_meanwhile_are_not_repeated(shown: bool) -> None:
    alice = a_node(ALICE, ROBUST)
    if shown:
        ask(alice, insert(1))
        [(_, reliable)] = sent(flood(alice, BOB, start()))
    else:
        flood(alice, BOB, start())
        [(_, reliable)] = sent(ask(alice, insert(1)))
    assert isinstance(reliable, wire.ReliableMessage)
    ask(alice, Delete(request_id=2, key=key(1, ALICE)))
    assert sent(alice.handle(TimerFired(ResendTimer(reliable.number)), SECOND_US)) == []


def test_news_for_a_subscriber_that_is_gone_are_given_up() -> None:
    alice = a_node(ALICE, ROBUST)
    flood(alice, BOB, start())
    [(_, reliable)] = sent(ask(alice, insert(1)))
    assert isinstance(reliable, wire.ReliableMessage)
    tries = 1
    while True:
        [(to, message)] = sent(
            alice.handle(TimerFired(ResendTimer(reliable.number)), tries * SECOND_US)
        )
        if message != reliable:
            break
        tries += 1
    assert tries == ROBUST.notify_retries.tries_max
    assert to == BOB
    assert isinstance(message, wire.Missed), "M34: he will read it when he is back"


# L7, M17, M20: the past of many


def page_of(
    by: NodeId, sid: SubscriptionId, *numbers: int, total: int, more: bool
) -> wire.PastMatches:
    items = tuple(owned(number, by, at_us=number) for number in numbers)
    return wire.PastMatches(sid, total, items, more)


def over(node: LsNode, subject: int | SubscriptionId, at_us: int = SECOND_US) -> list[Action]:
    return node.handle(TimerFired(CollectionTimer(subject)), at_us)


def test_l7_the_batches_of_all_owners_are_merged_newest_first() -> None:
    alice = a_node()
    ask(alice, insert(5), at_us=5)
    sid = follows(alice, batch=4)
    hear(alice, BOB, page_of(BOB, sid, 9, 6, 3, 2, total=7, more=True))
    assert heard(hear(alice, CAROL, page_of(CAROL, sid, 8, 7, total=2, more=False))) == []

    actions = over(alice, sid)

    assert heard(actions) == ["photo9", "photo8", "photo7", "photo6"]
    assert CaughtUp(sid, 1 + 7 + 2) in told(actions)


def test_l7_more_asks_those_who_have_more_from_where_each_was_read() -> None:
    alice = a_node()
    ask(alice, insert(5), at_us=5)
    sid = follows(alice, batch=2)
    hear(alice, BOB, page_of(BOB, sid, 9, 4, total=3, more=True))
    hear(alice, CAROL, page_of(CAROL, sid, 8, total=1, more=False))
    assert heard(over(alice, sid)) == ["photo9", "photo8"]

    actions = ask(alice, FetchNextPage(request_id=4, sid=sid, count=3), 2 * SECOND_US)

    [(to, fetch)] = sent(actions)
    assert to == BOB, "carol has no more; what alice has herself needs no message"
    assert isinstance(fetch, wire.FetchPage)
    assert fetch.before is not None
    assert (fetch.before.key.oid, fetch.count) == ("photo9", 3)
    items = (owned(4, BOB, 4), owned(1, BOB, 1))
    actions = hear(alice, BOB, wire.Page(fetch.request_id, 3, items, False), 2 * SECOND_US)
    assert heard(actions) == ["photo5", "photo4", "photo1"]
    assert Finished(4, 3) in told(actions)
    assert told(ask(alice, FetchNextPage(request_id=5, sid=sid, count=3), 3 * SECOND_US)) == [
        Finished(5, 0)
    ]


def test_l6_an_owner_that_is_gone_is_left_out_when_more_is_asked_for() -> None:
    alice = a_node(config=msgspec.structs.replace(PAPER, retries=RetryPolicy(tries_max=1)))
    sid = follows(alice, batch=1)
    hear(alice, BOB, page_of(BOB, sid, 9, total=2, more=True))
    hear(alice, CAROL, page_of(CAROL, sid, 8, total=1, more=False))
    over(alice, sid)
    questions = dict(sent(ask(alice, FetchNextPage(request_id=4, sid=sid, count=5), 2 * SECOND_US)))
    of_bob, of_carol = questions[BOB], questions[CAROL]
    assert isinstance(of_bob, wire.FetchPage)
    assert isinstance(of_carol, wire.FetchPage)
    hear(alice, CAROL, wire.Page(of_carol.request_id, 1, (owned(8, CAROL, 8),), False))

    actions = alice.handle(TimerFired(RetryTimer(of_bob.request_id)), 4 * SECOND_US)

    assert heard(actions) == ["photo8"]
    assert Finished(4, 1) in told(actions)


def test_m17_more_waits_for_the_first_batch() -> None:
    alice = a_node()
    sid = follows(alice, batch=1)
    assert told(ask(alice, FetchNextPage(request_id=4, sid=sid, count=5), 20)) == []
    hear(alice, BOB, page_of(BOB, sid, 9, 8, total=2, more=False))
    actions = over(alice, sid)
    assert heard(actions) == ["photo9"]
    [(_, fetch)] = sent(actions)
    assert isinstance(fetch, wire.FetchPage)
    page = wire.Page(fetch.request_id, 2, (owned(8, BOB, 8),), False)
    assert Finished(4, 1) in told(hear(alice, BOB, page))


def test_l7_a_batch_that_comes_late_is_told_as_it_comes() -> None:
    alice = a_node()
    sid = follows(alice, batch=2)
    over(alice, sid)
    late = page_of(BOB, sid, 9, 8, 7, total=9, more=True)
    assert heard(hear(alice, BOB, late, 2 * SECOND_US)) == ["photo9", "photo8"]
    assert heard(hear(alice, BOB, late, 3 * SECOND_US)) == []
    [(_, fetch)] = sent(ask(alice, FetchNextPage(request_id=4, sid=sid, count=3), 4 * SECOND_US))
    assert isinstance(fetch, wire.FetchPage)
    assert fetch.before is not None
    assert fetch.before.key.oid == "photo8"


def test_l7_without_a_time_to_merge_each_batch_is_told_as_it_comes() -> None:
    alice = a_node(config=LsConfig(collecting=CollectionConfig(subscribe_wait_us=0)))
    actions = ask(alice, follow())
    [_, caught_up] = told(actions)
    assert isinstance(caught_up, CaughtUp)
    page = page_of(BOB, caught_up.sid, 9, 8, total=2, more=False)
    assert heard(hear(alice, BOB, page)) == ["photo9", "photo8"]


def test_m26_what_comes_by_both_paths_is_told_once() -> None:
    alice = a_node()
    sid = follows(alice)
    assert heard(hear(alice, BOB, wire.Notify(owned(9, BOB, 9), (sid,)))) == ["photo9"]
    hear(alice, BOB, page_of(BOB, sid, 9, 8, total=2, more=False))
    assert heard(over(alice, sid)) == ["photo8"]


def test_m20_a_search_is_flooded_and_answered_after_a_set_time() -> None:
    alice = a_node()
    ask(alice, insert(5), at_us=5)
    actions = ask(
        alice, Search(request_id=7, conjunctions=conjunctions("goal"), frame=frame(), count=3)
    )
    [fetch] = said_to_all(actions)
    assert isinstance(fetch, wire.FetchPage)
    assert told(actions) == []
    for by, numbers in ((BOB, (9, 3, 2)), (CAROL, (4,))):
        items = tuple(owned(number, by, number) for number in numbers)
        hear(alice, by, wire.Page(fetch.request_id, len(items), items, False))

    [finished] = told(over(alice, fetch.request_id))

    assert isinstance(finished, Finished)
    assert isinstance(finished.value, SearchResult)
    assert [note.key.oid for note in finished.value] == ["photo9", "photo5", "photo4"]
    assert finished.value.total == 5
    assert alice.broker.subscription_count == 0


def test_searches_under_way_are_bounded() -> None:
    alice = a_node(config=LsConfig(collecting=CollectionConfig(collections_max=2)))
    search = Search(request_id=7, conjunctions=conjunctions("goal"), frame=frame(), count=3)
    assert [told(ask(alice, search)) for _ in range(2)] == [[], []]
    [failed] = told(ask(alice, search))
    assert isinstance(failed, Failed)
    assert failed.code == "rejected"


# M25: strangers


@pytest.mark.parametrize(
    "message",
    [
        wire.InsertObject(1, owned(1, BOB), b"pixels"),
        wire.DeleteObject(1, key(1, BOB)),
        start(),
        wire.ReliableMessage(1, wire.InsertObject(1, owned(1, BOB), b"pixels")),
        wire.ReliableMessage(1, wire.Flooded(BOB, 1, 0, start())),
        wire.RouteUpdate(()),
    ],
    ids=lambda message: type(message).__name__,
)
def test_m25_what_nobody_should_say_to_a_node_is_dropped_and_counted(message: wire.Message) -> None:
    alice = a_node()
    assert hear(alice, BOB, message) == []
    assert alice.dropped == {"not spoken here": 1}
    assert (alice.broker.subscription_count, len(alice.broker.catalogue)) == (0, 0)


def test_m25_what_is_not_for_everybody_is_not_taken_from_a_flood() -> None:
    alice = a_node()
    assert sent(flood(alice, BOB, wire.FetchObject(1, key(1, ALICE)))) == []
    assert alice.dropped == {"not for everybody": 1}


def test_m23_news_are_believed_from_the_owner_only() -> None:
    alice = a_node()
    sid = follows(alice)
    for news in (
        wire.Notify(owned(1, BOB), (sid,)),
        wire.PastMatches(sid, 1, (owned(1, BOB),), False),
    ):
        assert hear(alice, CAROL, news) == []
    assert alice.dropped == {"news from a stranger": 2}
    assert heard(over(alice, sid)) == []


def test_m25_a_full_node_takes_no_more_subscriptions() -> None:
    alice = a_node(config=LsConfig(broker=BrokerConfig(subscriptions_max=1)))
    flood(alice, BOB, start(1), number=1)
    flood(alice, BOB, start(2), number=2)
    assert alice.dropped == {"rejected": 1}
    [failed] = [item for item in told(ask(alice, follow())) if isinstance(item, Failed)]
    assert failed.code == "rejected"
    assert said_to_all(ask(alice, follow())) == []


def test_a_link_that_fails_and_a_goodbye_change_nothing() -> None:
    alice = a_node()
    assert alice.handle(SendFailed(BOB, wire.Done(1)), 5) == []
    assert alice.handle(Leaving(), 6) == []
    assert alice.dropped == {"unreachable": 1}


# L5: what a node does with what it learns by joining


def learns(node: LsNode, *numbers: int, by: NodeId = BOB) -> list[Action]:
    """A node starts, and a neighbour answers its question."""
    node.handle(Started(), 0)
    [request] = said_to_all(node.handle(TimerFired(LsJoinTimer()), 1))
    assert isinstance(request, wire.JoinRequest)
    held = tuple(subscribe(number, by=by) for number in numbers)
    return hear(node, CAROL, wire.JoinReply(request.request_id, 0, 1, held))


def test_l5_a_node_that_joins_notifies_those_it_did_not_know() -> None:
    store = MemoryStore()
    before = a_node(store=store)
    ask(before, insert(1))
    flood(before, BOB, start(1))

    again = LsNode(ALICE, store, Random(2), PAPER)
    actions = learns(again, 1, 2)

    [(to, page)] = sent(actions)
    assert to == BOB
    assert isinstance(page, wire.PastMatches)
    assert page.sid == "sub2", "the other one it knew from its earlier life"
    assert again.broker.subscription_count == 2
    assert sent(learns(again, 1, 2)) == []


def test_l5_what_was_cancelled_does_not_come_back_by_joining() -> None:
    alice = a_node()
    ask(alice, insert(1))
    flood(alice, BOB, start(1), number=1)
    flood(alice, BOB, wire.StopSubscription(1, subscribe(1, by=BOB).key), number=2)
    assert sent(learns(alice, 1)) == []
    assert alice.broker.subscription_count == 0


def test_l5_a_subscription_of_one_s_own_that_others_still_hold_is_stopped_there() -> None:
    alice = LsNode(ALICE, MemoryStore(), Random(1), PAPER)
    [(to, stop)] = sent(learns(alice, 1, by=ALICE))
    assert to == CAROL
    assert isinstance(stop, wire.StopSubscription)
    assert stop.key == subscribe(1, by=ALICE).key
    assert alice.broker.subscription_count == 0


def test_l5_before_the_join_is_over_everything_works() -> None:
    alice = a_node()
    assert heard(ask(alice, insert(1))) == []
    sid = follows(alice)
    assert heard(over(alice, sid)) == ["photo1"]
    assert alice.joining.phase.value == "joining"


def test_a_look_up_of_a_key_never_used_asks_its_owner() -> None:
    alice = a_node()
    unknown = Key(ObjectId("never"), ALICE)
    [(_, status)] = sent(hear(alice, BOB, wire.FetchStatus(3, unknown)))
    assert status == wire.ObjectStatus(3, "unknown", None)


def test_m34_a_subscriber_that_resumes_is_told_at_once_that_it_missed_objects() -> None:
    alice = a_node(config=ROBUST)
    flood(alice, BOB, start())
    [timer] = [
        action.timer
        for action in ask(alice, insert(1), at_us=SECOND_US)
        if isinstance(action, SetTimer) and isinstance(action.timer, ResendTimer)
    ]
    for second in range(2, 12):  # Bob does not acknowledge the notification
        alice.handle(TimerFired(timer), second * SECOND_US)

    actions = flood(alice, BOB, start(), 60 * SECOND_US, number=2)

    missed = [message for to, message in sent(actions) if isinstance(message, wire.Missed)]
    assert [each.sid for each in missed] == [start().subscription.key.sid]
