"""A removed record stays removed, however many removals follow (B5, D15)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, photo
from thyme.model.errors import ClosedError, RejectedError
from thyme.model.ids import NodeId, new_subscription_id, subscription_started_us
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction, SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import ALWAYS
from thyme.storage.store import MemoryStore
from thyme.substrates.common import tombstones
from thyme.substrates.common.broker import Broker, BrokerConfig

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
LIMIT = 8


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tombstones, "TOMBSTONES_MAX", LIMIT)
    monkeypatch.setattr(tombstones, "HORIZONS_MAX", LIMIT)


def a_broker(
    store: MemoryStore | None = None, now_us: int = 0, config: BrokerConfig | None = None
) -> Broker:
    return Broker(store or MemoryStore(), config or BrokerConfig(), now_us)


def publish_and_delete(broker: Broker, item: Metadata, now_us: int) -> None:
    broker.insert(item, item.owner, b"", now_us)
    broker.delete(item.key, item.owner, now_us)


def is_refused(broker: Broker, item: Metadata, now_us: int) -> bool:
    try:
        broker.insert(item, item.owner, b"", now_us)
    except RejectedError:
        return True
    return False


def test_b5_a_flush_of_tombstones_by_another_does_not_bring_back_what_was_deleted() -> None:
    broker = a_broker()
    deleted = photo(1, at_us=1 * SECOND_US, by=BOB)
    publish_and_delete(broker, deleted, 2 * SECOND_US)

    for number in range(100):
        item = photo(number, at_us=(3 + number) * SECOND_US, by=ALICE)
        publish_and_delete(broker, item, item.published_us)

    assert broker.look_up(deleted.key, 200 * SECOND_US).state == "deleted"
    assert is_refused(broker, deleted, 200 * SECOND_US)


def test_b5_many_identities_do_not_bring_it_back_either_and_new_objects_are_accepted() -> None:
    store = MemoryStore()
    broker = a_broker(store)
    deleted = photo(1, at_us=1 * SECOND_US, by=BOB)
    publish_and_delete(broker, deleted, 2 * SECOND_US)

    for number in range(50):
        item = photo(number, at_us=(3 + number) * SECOND_US, by=NodeId(b"sybil %d" % number))
        publish_and_delete(broker, item, item.published_us)

    now_us = 200 * SECOND_US
    for each in (broker, a_broker(store, now_us)):  # also after a restart
        assert broker.look_up(deleted.key, now_us).state == "unknown"
        assert is_refused(each, deleted, now_us)
        assert not is_refused(each, photo(2, at_us=now_us, by=BOB), now_us)


def test_b5_an_insert_recorded_before_the_tombstone_expired_has_no_effect_afterwards() -> None:
    broker = a_broker()
    deleted = photo(1, at_us=HOUR_US, by=BOB)
    publish_and_delete(broker, deleted, 2 * HOUR_US)

    assert is_refused(broker, deleted, 100 * HOUR_US)
    assert not is_refused(broker, photo(2, at_us=99 * HOUR_US, by=BOB), 100 * HOUR_US)


def test_b5_a_tombstone_from_the_future_refuses_nothing_of_others() -> None:
    broker = a_broker()
    broker.expire(10 * SECOND_US)
    for number in range(10 * LIMIT):
        key = photo(number, by=NodeId(b"sybil %d" % number)).key
        broker.catalogue.remove_with_tombstone(key, "deleted", 10**15)

    assert not is_refused(broker, photo(1, at_us=11 * SECOND_US, by=BOB), 11 * SECOND_US)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30)), max_size=80))
def test_b5_no_removed_object_is_ever_accepted_again(steps: list[tuple[int, int]]) -> None:
    broker, removed = a_broker(), []
    for now_s, (owner, number) in enumerate(steps, start=1):
        item = photo(number, at_us=now_s * SECOND_US, by=NodeId(b"node %d" % owner))
        if not is_refused(broker, item, item.published_us):
            broker.delete(item.key, item.owner, item.published_us)
            removed.append(item)
        broker.check()
    end_us = (len(steps) + 100) * SECOND_US
    assert all(is_refused(broker, item, end_us) for item in removed)


def test_b5_an_object_that_expired_is_forgotten_and_one_that_was_deleted_is_not() -> None:
    broker = a_broker(config=BrokerConfig(metadata_only=True))
    deleted = photo(1, at_us=HOUR_US, by=BOB)
    publish_and_delete(broker, deleted, 2 * HOUR_US)
    expired = photo(2, at_us=HOUR_US, by=BOB, expires_us=2 * HOUR_US)
    broker.insert(expired, BOB, b"", HOUR_US)
    broker.expire(3 * HOUR_US)
    assert len(list(broker.catalogue.tombstones())) == 2

    broker.expire(100 * HOUR_US)

    assert [key for key, _ in broker.catalogue.tombstones()] == [str(deleted.key)]
    assert is_refused(broker, deleted, 100 * HOUR_US)
    assert not is_refused(broker, photo(3, at_us=HOUR_US, by=BOB), 100 * HOUR_US), (
        "old records of the same owner, from other nodes of the cell, are accepted"
    )


def a_subscription(subscriber: NodeId, started_us: int) -> SubscriptionRecord:
    sid = new_subscription_id(Random(started_us), started_us)
    return SubscriptionRecord(SubscriptionKey(sid, subscriber), (Conjunction(("goal",)),), ALWAYS)


def is_closed(broker: Broker, subscription: SubscriptionRecord, now_us: int) -> bool:
    try:
        broker.activate(subscription, subscription.key.subscriber, now_us)
    except ClosedError:
        return True
    return False


def subscribe_and_cancel(broker: Broker, subscription: SubscriptionRecord, now_us: int) -> None:
    broker.activate(subscription, subscription.key.subscriber, now_us)
    broker.unsubscribe(subscription.key, subscription.key.subscriber, now_us)


@pytest.mark.parametrize("flooder", ["one", "many", "itself"])
def test_b5_an_ended_subscription_stays_ended_after_many_others(flooder: str) -> None:
    store = MemoryStore()
    broker = a_broker(store)
    ended, active = a_subscription(BOB, 2 * SECOND_US), a_subscription(BOB, 1 * SECOND_US)
    broker.activate(active, BOB, 2 * SECOND_US)
    subscribe_and_cancel(broker, ended, 3 * SECOND_US)

    for number in range(100):
        at_us = (4 + number) * SECOND_US
        name = {"one": ALICE, "many": NodeId(b"sybil %d" % number), "itself": BOB}[flooder]
        subscribe_and_cancel(broker, a_subscription(name, at_us), at_us)

    now_us = 200 * SECOND_US
    for each in (broker, a_broker(store, now_us)):  # also after a restart
        assert is_closed(each, ended, now_us)
        assert not is_closed(each, active, now_us), "one that never ended goes on"
        assert not is_closed(each, a_subscription(BOB, now_us), now_us)
        each.check()


def test_b5_an_ended_subscription_stays_ended_after_days() -> None:
    broker = a_broker()
    ended = a_subscription(BOB, HOUR_US)
    subscribe_and_cancel(broker, ended, 2 * HOUR_US)
    broker.expire(1_000 * HOUR_US)
    assert is_closed(broker, ended, 1_000 * HOUR_US)


def test_b5_subscriptions_of_a_clock_that_is_ahead_stay_ended_and_go_on() -> None:
    broker = a_broker()
    ahead_us = 600 * SECOND_US
    ended = [a_subscription(BOB, ahead_us + number * SECOND_US) for number in range(1, 50)]
    for number, subscription in enumerate(ended, start=1):
        subscribe_and_cancel(broker, subscription, number * SECOND_US)

    assert all(is_closed(broker, each, 60 * SECOND_US) for each in ended)
    assert not is_closed(broker, a_subscription(BOB, ahead_us + 60 * SECOND_US), 60 * SECOND_US)


@given(st.integers(0, 2**34 * SECOND_US))
def test_b5_an_identifier_tells_when_its_subscription_was_started(started_us: int) -> None:
    sid = new_subscription_id(Random(1), started_us)
    assert subscription_started_us(sid) == started_us // SECOND_US * SECOND_US
    assert len(sid) == 16
    assert subscription_started_us(new_subscription_id(Random(1), None)) == 0
