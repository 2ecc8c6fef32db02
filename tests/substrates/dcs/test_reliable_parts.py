"""The parts of the profile `robust`, each for itself."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB, conjunction, frame, key, photo, subscribe
from thyme.model.errors import RejectedError
from thyme.model.tags import Tag
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    IndexedMetadata,
    Replica,
    TombstoneRecord,
)
from thyme.routing.cells import Grid
from thyme.storage.store import MemoryStore
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.catalogue import DELETED, Retention
from thyme.substrates.common.tombstones import TOMBSTONE_AGE_US_MAX
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.client.tag_popularity import TagPopularity
from thyme.substrates.dcs.config import KeyChoice
from thyme.substrates.dcs.service.recent_answers import RecentAnswers
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
from thyme.substrates.dcs.state.replica_store import ReplicaRole, ReplicaStore, StoredReplica

HERE = CellId(0)
NAMES = st.lists(st.text("abc", min_size=1, max_size=3), max_size=12)

# Digests


@given(NAMES, NAMES, st.randoms())
def test_b2_a_sum_depends_on_what_is_there_and_not_on_how_it_came(
    names: list[str], others: list[str], rng: Random
) -> None:
    shuffled = names + others
    rng.shuffle(shuffled)
    detour = SetDigest(shuffled)
    for name in others:
        detour.remove(name)
    straight = SetDigest(name for name in names if name not in others)

    assert detour.total == straight.total
    assert len(detour) == len(straight)
    assert combine_digests([detour]) == combine_digests([straight])


@given(st.sets(st.text(max_size=4), max_size=20), st.sets(st.text(max_size=4), max_size=20))
def test_b2_two_that_differ_see_it_in_a_bucket_and_two_that_agree_in_none(
    ones: set[str], others: set[str]
) -> None:
    marks, their_marks = sorted(map(hash_record, ones)), sorted(map(hash_record, others))
    buckets = differing_buckets(bucket_digests(marks), bucket_digests(their_marks))

    assert (buckets == []) == (ones == others)
    assert all(0 <= bucket < BUCKETS for bucket in buckets)
    assert unpack_hashes(pack_hashes(marks)) == set(marks)


def index_of(store: MemoryStore | None = None, **retention: int) -> CellIndex:
    broker = BrokerConfig(metadata_only=True, retention=Retention(**retention))
    return CellIndex(store or MemoryStore(), broker, 3)


def indexed(number: int, at_us: int = 1) -> IndexedMetadata:
    return IndexedMetadata(photo(number, tags=["goal"], at_us=at_us), (Replica(CellId(5)),))


def digest(index: CellIndex, now_us: int = 10) -> bytes:
    return combine_digests(index.digests(now_us))


@given(st.permutations(range(4)))
def test_b2_two_indexes_that_know_the_same_have_the_same_digest(order: list[int]) -> None:
    def fill(index: CellIndex, steps: list[int]) -> None:
        acts: list[Callable[[], object]] = [
            lambda: index.add_object(indexed(1), BOB, 10),
            lambda: index.delete_object(key(2), BOB, 10),
            lambda: index.add_subscription(
                CellSubscription(subscribe(1, "goal & a | b"), HERE), ALICE, 10
            ),
            lambda: index.unsubscribe(subscribe(2).key, ALICE, 10),
        ]
        for step in steps:
            acts[step]()

    store = MemoryStore()
    one, other = index_of(store), index_of()
    fill(one, order)
    fill(other, list(range(4)))

    assert digest(one) == digest(other) != digest(index_of())
    assert digest(index_of(store)) == digest(one), "a later life sums up the same"


def test_b2_conjunctions_that_came_apart_count_as_those_that_came_together() -> None:
    one, other = index_of(), index_of()
    for query in ("b", "goal & a"):
        one.add_subscription(CellSubscription(subscribe(1, query), HERE), ALICE, 10)
    other.add_subscription(CellSubscription(subscribe(1, "goal & a | b"), HERE), ALICE, 10)
    assert digest(one) == digest(other)


def test_b2_what_leaves_by_itself_leaves_the_digest() -> None:
    index = index_of(objects_max=2)
    index.add_subscription(CellSubscription(subscribe(1, "goal", frame(0, 20)), HERE), ALICE, 10)
    for number in range(5):
        index.add_object(indexed(number, at_us=number), BOB, 10)
    index.broker.expire(30)
    index.delete_object(key(9), BOB, 30)

    expected = index_of()
    for number in (3, 4):
        expected.add_object(indexed(number, at_us=number), BOB, 30)
    expected.merge_object_tombstone(key(9), TombstoneRecord(str(key(9)), DELETED, 29))
    assert digest(index, 30) == digest(expected, 30)

    later_us = 31 + TOMBSTONE_AGE_US_MAX
    assert digest(index, later_us) != digest(index_of(), 30)  # two objects
    for number in (3, 4):
        index.forget_object(key(number))
    assert digest(index, later_us) == digest(index_of()), "tombstones do not last for ever"


def test_b2_copies_count_where_all_of_the_cell_should_have_them() -> None:
    replicas = ReplicaStore(MemoryStore(), Retention())
    replicas.set_cell(HERE)
    here, elsewhere = (Replica(HERE),), (Replica(CellId(3)),)
    few = (Replica(HERE, ALICE), Replica(HERE, BOB))
    kinds = [
        (ReplicaRole.OWN, here, True),
        (ReplicaRole.OWN, elsewhere, False),
        (ReplicaRole.OWN, few, False),
        (ReplicaRole.ACTIVE, (), True),
        (ReplicaRole.ACTIVE, few, False),
        (ReplicaRole.PASSIVE, (), False),
    ]
    for number, (role, active, _) in enumerate(kinds):
        held = StoredReplica(photo(number, data=b"12345"), role, active)
        replicas.add_replica(held, b"12345", 10)

    shared = {metadata.key for metadata in replicas.cell_wide_objects()}
    assert shared == {key(number) for number, (_, _, counts) in enumerate(kinds) if counts}
    assert len(replicas.cell_wide_digest) == len(shared)
    assert {held.metadata.key for held in replicas.partially_replicated()} == {key(2), key(4)}
    replicas.set_cell(CellId(3))
    assert key(1) in {metadata.key for metadata in replicas.cell_wide_objects()}
    replicas.remove_with_tombstone(key(3), DELETED, 11)
    assert len(replicas.cell_wide_digest) == len(list(replicas.cell_wide_objects()))


def test_d15_what_was_evicted_and_then_deleted_does_not_come_back() -> None:
    replicas = ReplicaStore(MemoryStore(), Retention(objects_max=1))
    for number in range(2):
        replicas.add_replica(StoredReplica(photo(number, data=b"1"), ReplicaRole.ACTIVE), b"1", 10)
    assert replicas.removal_reason(key(0)) == "evicted"

    replicas.remove_with_tombstone(key(0), DELETED, 11)

    with pytest.raises(RejectedError, match="deleted"):
        replicas.add_replica(StoredReplica(photo(0, data=b"1"), ReplicaRole.ACTIVE), b"1", 12)


# The seam


def test_m26_b2_what_was_answered_without_knowing_is_found_for_a_while() -> None:
    index = index_of()
    seam = RecentAnswers(index, race_window_us=5, late_window_us=100)
    subscription = subscribe(1, "goal")
    index.add_subscription(CellSubscription(subscription, HERE), ALICE, 10)
    index.add_object(indexed(1), BOB, 10)
    seam.add_subscription(subscription.key, 10)
    seam.add_object(key(1), 10)

    for now_us, fresh, late in ((14, True, True), (16, False, True), (111, False, False)):
        assert (seam.select_recent([subscription], now_us) == [subscription]) == fresh
        assert (seam.missed_subscriptions(indexed(2).metadata, now_us) == [subscription]) == late
        assert (seam.missed_objects(subscription, now_us) == [indexed(1).metadata]) == late


# Keys


def test_b10_the_rarest_literal_is_the_key_and_of_equal_ones_the_closest() -> None:
    popularity = TagPopularity()
    for number in range(10):
        popularity.add_tags([Tag("common"), Tag("rare")] if number < 2 else [Tag("common")])
    grid = Grid(columns=10, rows=10)

    def cost_of(tag: Tag) -> tuple[float, ...]:
        return popularity.count_of(tag), grid.distance_m(HERE, grid.cell_of_key(tag))

    keys = KeyChooser(MemoryStore(), Random(1), KeyChoice.RAREST, grid.cell_of_key, cost_of)

    assert keys.choose_key(conjunction("common & rare")) == "rare"
    unheard = conjunction("x1 & x2 & x3 & x4")
    closest = min(unheard.positive, key=lambda tag: grid.distance_m(HERE, grid.cell_of_key(tag)))
    assert keys.choose_key(unheard) == closest
    popularity.add_tags([closest] * 5)
    assert keys.choose_key(unheard) == closest, "a choice stays"


def test_b10_what_is_remembered_of_tags_is_bounded_and_keeps_the_common_ones() -> None:
    popularity = TagPopularity(tags_max=20)
    for number in range(200):
        popularity.add_tags([Tag("common"), Tag(f"tag{number}")])
        assert len(popularity) <= 20
    assert popularity.count_of(Tag("common")) > max(
        popularity.count_of(Tag(f"tag{n}")) for n in range(200)
    )
