"""A removed record stays removed, however many removals follow (B5, D15)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, photo
from thyme.model.errors import RejectedError
from thyme.model.ids import NodeId
from thyme.model.metadata import Metadata
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


def a_broker(store: MemoryStore | None = None, now_us: int = 0) -> Broker:
    return Broker(store or MemoryStore(), BrokerConfig(), now_us)


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
