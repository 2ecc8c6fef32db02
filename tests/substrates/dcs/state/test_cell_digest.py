"""Digests of the state of a cell, by which its nodes find differences (B2)."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, frame, key, subscribe
from tests.substrates.dcs.components import CELL, a_cell_index, indexed
from thyme.model.errors import RejectedError
from thyme.protocol.messages.cell_records import CellSubscription, TombstoneRecord
from thyme.storage.store import MemoryStore
from thyme.substrates.common.catalogue import DELETED
from thyme.substrates.common.tombstones import TOMBSTONE_AGE_US_MAX
from thyme.substrates.dcs.state.cell_digest import (
    BUCKETS,
    SetDigest,
    bucket_digests,
    combine_digests,
    differing_buckets,
    hash_record,
    pack_hashes,
    unpack_hashes,
)
from thyme.substrates.dcs.state.cell_index import CellIndex

NAMES = st.lists(st.text("abc", min_size=1, max_size=3), max_size=12)


def digest(index: CellIndex) -> bytes:
    return combine_digests(index.digests())


@given(NAMES, NAMES, st.randoms())
def test_b2_a_digest_depends_on_the_members_and_not_on_their_order(
    names: list[str], others: list[str], rng: Random
) -> None:
    shuffled = names + others
    rng.shuffle(shuffled)
    changed = SetDigest((name, name) for name in shuffled)
    for name in others:
        changed.remove(name)
    fresh = SetDigest((name, name) for name in names if name not in others)

    assert changed.total == fresh.total
    assert len(changed) == len(fresh)
    assert combine_digests([changed]) == combine_digests([fresh])


@given(st.sets(st.text(max_size=4), max_size=20), st.sets(st.text(max_size=4), max_size=20))
def test_b2_sets_that_differ_differ_in_a_bucket_and_equal_sets_in_none(
    ones: set[str], others: set[str]
) -> None:
    hashes = sorted(map(hash_record, ones))
    one, other = (SetDigest((name, name) for name in names) for names in (ones, others))
    buckets = differing_buckets(bucket_digests([one]), bucket_digests([other]))

    assert (buckets == []) == (ones == others)
    assert all(one.in_bucket(each) != other.in_bucket(each) for each in buckets)
    assert sorted(h for bucket in range(BUCKETS) for h in one.in_bucket(bucket)) == hashes
    assert unpack_hashes(pack_hashes(hashes)) == set(hashes)


@given(st.permutations(range(4)))
def test_b2_two_indexes_with_the_same_records_have_the_same_digest(order: list[int]) -> None:
    def fill(index: CellIndex, steps: list[int]) -> None:
        changes: list[Callable[[], object]] = [
            lambda: index.add_object(indexed(1), BOB, 10),
            lambda: index.delete_object(key(2), BOB, 10),
            lambda: index.add_subscription(
                CellSubscription(subscribe(1, "goal & a | b"), CELL), ALICE, 10
            ),
            lambda: index.unsubscribe(subscribe(2).key, ALICE, 10),
        ]
        for step in steps:
            changes[step]()

    store = MemoryStore()
    one, other = a_cell_index(store), a_cell_index()
    fill(one, order)
    fill(other, list(range(4)))

    assert digest(one) == digest(other) != digest(a_cell_index())
    assert digest(a_cell_index(store)) == digest(one), "equal after a restart"


def test_b2_conjunctions_added_separately_give_the_digest_of_those_added_together() -> None:
    one, other = a_cell_index(), a_cell_index()
    for query in ("b", "goal & a"):
        one.add_subscription(CellSubscription(subscribe(1, query), CELL), ALICE, 10)
    other.add_subscription(CellSubscription(subscribe(1, "goal & a | b"), CELL), ALICE, 10)
    assert digest(one) == digest(other)


def test_b2_expired_records_leave_the_digest() -> None:
    index = a_cell_index(objects_max=2)
    index.add_subscription(CellSubscription(subscribe(1, "goal", frame(0, 20)), CELL), ALICE, 10)
    for number in range(5):
        index.add_object(indexed(number, at_us=number), BOB, 10)
    index.broker.expire(30)
    index.delete_object(key(9), BOB, 30)

    expected = a_cell_index()
    for number in (3, 4):
        expected.add_object(indexed(number, at_us=number), BOB, 30)
    expected.merge_object_tombstone(key(9), TombstoneRecord(str(key(9)), DELETED, 29))
    assert digest(index) == digest(expected)

    for number in (3, 4):
        index.forget_object(key(number))
    index.broker.expire(31 + 10 * TOMBSTONE_AGE_US_MAX)
    assert digest(index) != digest(a_cell_index()), "a delete lasts"
    with pytest.raises(RejectedError):
        index.add_object(indexed(9, at_us=9), BOB, 32 + 10 * TOMBSTONE_AGE_US_MAX)
