"""Neighbours compare the subscriptions that they know, and send only what one of them lacks."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from tests.builders import ALICE, BOB, CAROL, conjunctions, subscribe
from tests.fake_signer import FakeSigner, authenticator, vouched_for
from tests.links import Links
from thyme.model.ids import NodeId, SubscriptionId
from thyme.model.signed_records import UnsubscribeRecord
from thyme.model.subscriptions import SubscriptionKey
from thyme.model.time_frames import ALWAYS
from thyme.protocol.app_interface import Insert, NotificationEvent, Subscribe
from thyme.protocol.messages import common as wire
from thyme.protocol.messages.cell_records import SignedInstant, TombstoneRecord
from thyme.protocol.messages.event_ranges import EventRange
from thyme.protocol.node import Action, Broadcast, Received, Send, SetTimer, Started, TimerFired
from thyme.protocol.outbox import Outbox
from thyme.storage.store import MemoryStore
from thyme.substrates.ls.config import ROBUST
from thyme.substrates.ls.digest_timing import DigestTimer, DigestTiming
from thyme.substrates.ls.node import LsNode
from thyme.substrates.ls.subscription_comparison import ComparisonTimer, SubscriptionSet
from thyme.substrates.ls.subscription_fetch import LsJoinTimer

SECOND_US = 1_000_000
DAVE, MALLORY = NodeId(b"dave"), NodeId(b"mallory")


def a_node(name: NodeId, *, keys: bool = False, seed: int = 1) -> LsNode:
    """A node that has joined, without neighbours."""
    rng, checks = Random(f"{seed}{name!r}"), authenticator(name) if keys else None
    node = LsNode(name, MemoryStore(), rng, ROBUST, checks)
    node.handle(Started(), 0)
    for at_us in range(1, 5):
        node.handle(TimerFired(LsJoinTimer()), at_us)
    return node


def said(actions: list[Action]) -> list[wire.Message]:
    return [each.message for each in actions if isinstance(each, Send | Broadcast)]


def hear(node: LsNode, sender: NodeId, message: wire.Message, at_us: int = 100) -> list[Action]:
    actions = node.handle(Received(sender, message), at_us)
    node.check()
    return actions


def flood(node: LsNode, number: int, by: NodeId = CAROL, *, keys: bool = False) -> None:
    record = subscribe(number, by=by)
    record = vouched_for(record, by) if keys else record
    hear(node, by, wire.Flooded(by, number, 0, wire.StartSubscription(1, record, 20)))


def digest(node: LsNode) -> wire.SubscriptionDigest:
    """The digest that a node broadcasts."""
    for _ in range(4):
        for message in said(node.handle(TimerFired(DigestTimer()), 200)):
            if isinstance(message, wire.SubscriptionDigest):
                return message
    raise AssertionError("no digest")


def starts_comparison(node: LsNode, sender: NodeId, at_us: int = 100) -> list[wire.Message]:
    """What a node that heard a digest sends to its sender after its delay."""
    return said(node.handle(TimerFired(ComparisonTimer()), at_us + SECOND_US))


def is_about_to_compare(actions: list[Action]) -> bool:
    return any(isinstance(each, SetTimer) and each.timer == ComparisonTimer() for each in actions)


def talk(one: LsNode, other: LsNode, messages: list[wire.Message]) -> list[wire.Message]:
    """Two nodes exchange messages, `one` has sent the first; returns all of them."""
    every, sender, receiver = list(messages), one, other
    while messages:
        replies = [
            reply for message in messages for reply in said(hear(receiver, sender.node_id, message))
        ]
        messages = [
            each
            for each in replies
            if isinstance(each, wire.CompareSubscriptions | wire.MissingSubscriptions)
        ]
        every += messages
        sender, receiver = receiver, sender
    return every


def active(node: LsNode) -> set[str]:
    return {each.key.sid for each in node.broker.active_subscriptions()}


def test_l5_a_node_that_a_flood_missed_gets_that_subscription_and_no_other() -> None:
    alice, bob = a_node(ALICE), a_node(BOB)
    for number in range(100):
        flood(alice, number)
        if number != 70:
            flood(bob, number)

    hear(bob, ALICE, digest(alice))
    sent = talk(bob, alice, starts_comparison(bob, ALICE))

    assert active(bob) == active(alice)
    [moved] = [each for each in sent if isinstance(each, wire.MissingSubscriptions)]
    assert [each.key.sid for each in moved.subscriptions] == ["sub70"]


def test_l5_of_two_that_differ_the_one_that_knows_fewer_begins() -> None:
    alice, bob = a_node(ALICE), a_node(BOB)
    flood(alice, 1)
    hear(alice, BOB, digest(bob))
    assert starts_comparison(alice, BOB) == []
    hear(bob, ALICE, digest(alice))
    [begun] = starts_comparison(bob, ALICE)
    assert isinstance(begun, wire.CompareSubscriptions)


def test_l5_both_learn_what_the_other_has() -> None:
    alice, bob = a_node(ALICE), a_node(BOB)
    flood(alice, 1)
    flood(bob, 2)
    hear(bob, ALICE, digest(alice))
    talk(bob, alice, starts_comparison(bob, ALICE))
    assert active(alice) == active(bob) == {"sub1", "sub2"}


def test_l5_a_flood_that_arrives_meanwhile_makes_the_comparison_needless() -> None:
    alice, bob = a_node(ALICE), a_node(BOB)
    flood(alice, 1)
    hear(bob, ALICE, digest(alice))
    flood(bob, 1)
    assert starts_comparison(bob, ALICE) == []


def test_l5_equal_nodes_send_nothing_but_digests() -> None:
    alice, bob = a_node(ALICE), a_node(BOB)
    for node in (alice, bob):
        flood(node, 1)
    actions = hear(bob, ALICE, digest(alice))
    assert said(actions) == []
    assert not is_about_to_compare(actions)
    assert said(hear(alice, BOB, wire.CompareSubscriptions((), ()))) == []


@pytest.mark.parametrize("keys", [False, True], ids=["open", "signed"])
def test_m18_a_cancellation_that_a_flood_did_not_bring_comes_by_the_comparison(keys: bool) -> None:
    alice, bob = a_node(ALICE, keys=keys), a_node(BOB, keys=keys)
    for node in (alice, bob):
        flood(node, 1, keys=keys)
    key = subscribe(1, by=CAROL).key
    stop: wire.Message = wire.StopSubscription(2, key)
    if keys:
        stop = wire.SignedStop(2, key, FakeSigner(CAROL).sign(UnsubscribeRecord(key)))
    hear(alice, CAROL, wire.Flooded(CAROL, 9, 0, stop))

    hear(bob, ALICE, digest(alice))
    talk(bob, alice, starts_comparison(bob, ALICE))

    assert active(alice) == active(bob) == set()
    assert bob.broker.is_cancelled(key)


def test_m18_a_subscriber_proves_its_own_cancellation() -> None:
    alice, bob = a_node(ALICE, keys=True), a_node(BOB, keys=True)
    flood(bob, 1, by=ALICE, keys=True)
    key = subscribe(1, by=ALICE).key
    alice.broker.unsubscribe(key, ALICE, 50)

    hear(bob, ALICE, digest(alice))
    talk(bob, alice, starts_comparison(bob, ALICE))
    assert active(bob) == set()


def test_b5_a_forged_cancellation_or_subscription_is_not_believed() -> None:
    bob = a_node(BOB, keys=True)
    flood(bob, 1, keys=True)
    key = subscribe(1, by=CAROL).key
    forged = FakeSigner(MALLORY).sign(UnsubscribeRecord(key))
    for removed in (5, SignedInstant(5, forged)):
        record = TombstoneRecord(str(key), "cancelled", removed)
        hear(bob, MALLORY, wire.MissingSubscriptions((), (record,)))
    false = vouched_for(subscribe(2, by=CAROL), MALLORY)
    hear(bob, MALLORY, wire.MissingSubscriptions((false,), ()))
    assert active(bob) == {"sub1"}
    assert bob.dropped == {"not genuine: unsubscribe": 2, "not genuine: subscription": 1}


def test_b5_nobody_ends_a_node_s_own_subscription() -> None:
    bob = a_node(BOB)
    key = SubscriptionKey(SubscriptionId("sub1"), BOB)
    bob.broker.activate(subscribe(1, by=BOB), BOB, 5)
    hear(bob, MALLORY, wire.MissingSubscriptions((), (TombstoneRecord(str(key), "cancelled", 5),)))
    hear(bob, MALLORY, wire.MissingSubscriptions((), (TombstoneRecord("nonsense", "", 5),)))
    assert active(bob) == {"sub1"}


def test_b5_a_node_that_compares_all_the_time_is_answered_now_and_then() -> None:
    bob = a_node(BOB)
    flood(bob, 1)
    everything = wire.CompareSubscriptions((wire_range(),), ())
    answers = [len(said(hear(bob, MALLORY, everything, 100))) for _ in range(100)]
    assert sum(map(bool, answers)) == 10
    assert said(hear(bob, DAVE, everything, 100)), "others are answered"
    assert said(hear(bob, MALLORY, everything, 100 + SECOND_US)), "and this one later"


def wire_range() -> EventRange:
    return EventRange(None, None, ())


def test_l5_a_difference_that_stays_is_compared_less_and_less() -> None:
    """A neighbour may store what this node refuses, or pretend to."""
    bob = a_node(BOB)
    other = wire.SubscriptionDigest(1_000, b"f" * 12)
    compared = []
    for second in range(600):
        actions = hear(bob, MALLORY, other, second * SECOND_US)
        if is_about_to_compare(actions):
            bob.handle(TimerFired(ComparisonTimer()), second * SECOND_US + 1)
            compared.append(second)
    assert len(compared) <= 10
    waits = [later - before for before, later in pairwise(compared)]
    assert waits == sorted(waits)


def test_m26_an_owner_that_learns_of_a_subscription_by_comparison_sends_its_matches() -> None:
    names = [ALICE, BOB]
    world = Links([(ALICE, BOB)])
    told: list[object] = []
    for name in names:
        node = LsNode(name, MemoryStore(), Random(f"{name!r}"), ROBUST)
        world.add(node, told.append)
    world.run(10)
    world.ask(BOB, Insert(request_id=1, data=b"pixels", tags=("goal",)))  # type: ignore[arg-type]
    world.loss = 1.0
    world.ask(
        ALICE,
        Subscribe(request_id=1, conjunctions=conjunctions("goal"), frame=ALWAYS, batch=20),
    )
    world.run(3)
    world.loss = 0.0
    world.run(10)
    assert sum(isinstance(each, NotificationEvent) for each in told) == 1


# The set and the timing


def test_the_fingerprint_depends_on_the_subscriptions_alone() -> None:
    one, other = SubscriptionSet(), SubscriptionSet()
    keys = [subscribe(number, by=CAROL).key for number in range(10)]
    for key in keys:
        one.change(key, is_active=True)
    for key in reversed(keys):
        other.change(key, is_active=True)
        other.change(key, is_active=True)
    assert one.fingerprint() == other.fingerprint()
    assert one.items == other.items == sorted(one.items)
    other.change(keys[3], is_active=False)
    assert one.fingerprint() != other.fingerprint()
    other.change(keys[3], is_active=False)
    other.change(keys[3], is_active=True)
    assert one.fingerprint() == other.fingerprint()


class Timing:
    """The timing of one node by itself."""

    def __init__(self, seed: int = 1) -> None:
        self.outbox = Outbox()
        self.timing = DigestTiming(self.outbox, Random(seed), 2 * SECOND_US, 8 * SECOND_US, 2)
        self.timing.start(0)

    def next_us(self) -> int:
        [*_, last] = [each for each in self.outbox.drain_actions() if isinstance(each, SetTimer)]
        return last.at_us


def test_l5_digests_become_rarer_while_nothing_differs_and_frequent_after_a_change() -> None:
    one = Timing()
    sent = []
    for _ in range(10):
        at_us = one.next_us()
        if one.timing.on_timer(at_us):
            sent.append(at_us)
    intervals = [(1, 2), (4, 6), (10, 14), (18, 22), (26, 30)]
    assert len(sent) == 5
    for at_us, (first, last) in zip(sent, intervals, strict=True):
        assert first * SECOND_US <= at_us <= last * SECOND_US

    one.timing.shorten(40 * SECOND_US)
    assert 41 * SECOND_US <= one.next_us() <= 42 * SECOND_US


def test_l5_who_hears_its_own_digest_from_two_neighbours_does_not_repeat_it() -> None:
    for equal, sends in ((0, True), (1, True), (2, False)):
        one = Timing()
        for _ in range(equal):
            one.timing.count_equal()
        assert one.timing.on_timer(one.next_us()) is sends
