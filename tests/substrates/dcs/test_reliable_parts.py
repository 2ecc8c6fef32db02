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
from thyme.protocol.cells import CellId, Grave, Indexed, Interest, Replica
from thyme.routing.cells import Grid
from thyme.storage.store import MemoryStore
from thyme.substrates.broker import BrokerConfig
from thyme.substrates.catalogue import DELETED, Retention
from thyme.substrates.dcs.config import KeyChoice
from thyme.substrates.dcs.digest import (
    BUCKETS,
    Sum,
    differing,
    mark_of,
    packed,
    sums_of,
    total_of,
    unpacked,
)
from thyme.substrates.dcs.index import CellIndex
from thyme.substrates.dcs.keys import Keys
from thyme.substrates.dcs.popularity import Popularity
from thyme.substrates.dcs.replicas import HeldObject, Replicas, Role
from thyme.substrates.dcs.seam import Seam
from thyme.substrates.graveyard import Burial

HERE = CellId(0)
NAMES = st.lists(st.text("abc", min_size=1, max_size=3), max_size=12)

# Digests


@given(NAMES, NAMES, st.randoms())
def test_b2_a_sum_depends_on_what_is_there_and_not_on_how_it_came(
    names: list[str], others: list[str], rng: Random
) -> None:
    shuffled = names + others
    rng.shuffle(shuffled)
    detour = Sum(shuffled)
    for name in others:
        detour.remove(name)
    straight = Sum(name for name in names if name not in others)

    assert detour.total == straight.total
    assert len(detour) == len(straight)
    assert total_of([detour]) == total_of([straight])


@given(st.sets(st.text(max_size=4), max_size=20), st.sets(st.text(max_size=4), max_size=20))
def test_b2_two_that_differ_see_it_in_a_bucket_and_two_that_agree_in_none(
    ones: set[str], others: set[str]
) -> None:
    marks, their_marks = sorted(map(mark_of, ones)), sorted(map(mark_of, others))
    buckets = differing(sums_of(marks), sums_of(their_marks))

    assert (buckets == []) == (ones == others)
    assert all(0 <= bucket < BUCKETS for bucket in buckets)
    assert unpacked(packed(marks)) == set(marks)


def index_of(store: MemoryStore | None = None, **retention: int) -> CellIndex:
    broker = BrokerConfig(metadata_only=True, retention=Retention(**retention))
    return CellIndex(store or MemoryStore(), broker, 3)


def indexed(number: int, at_us: int = 1) -> Indexed:
    return Indexed(photo(number, tags=["goal"], at_us=at_us), (Replica(CellId(5)),))


def digest(index: CellIndex, now_us: int = 10) -> bytes:
    return total_of(index.sums(now_us))


@given(st.permutations(range(4)))
def test_b2_two_indexes_that_know_the_same_have_the_same_digest(order: list[int]) -> None:
    def fill(index: CellIndex, steps: list[int]) -> None:
        acts: list[Callable[[], object]] = [
            lambda: index.add(indexed(1), BOB, 10),
            lambda: index.delete(key(2), BOB, 10),
            lambda: index.take_up(Interest(subscribe(1, "goal & a | b"), HERE), ALICE, 10),
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
        one.take_up(Interest(subscribe(1, query), HERE), ALICE, 10)
    other.take_up(Interest(subscribe(1, "goal & a | b"), HERE), ALICE, 10)
    assert digest(one) == digest(other)


def test_b2_what_leaves_by_itself_leaves_the_digest() -> None:
    index = index_of(objects_max=2)
    index.take_up(Interest(subscribe(1, "goal", frame(0, 20)), HERE), ALICE, 10)
    for number in range(5):
        index.add(indexed(number, at_us=number), BOB, 10)
    index.broker.expire(30)
    index.delete(key(9), BOB, 30)

    expected = index_of()
    for number in (3, 4):
        expected.add(indexed(number, at_us=number), BOB, 30)
    expected.learn_burial(key(9), Grave(str(key(9)), DELETED, 29))
    assert digest(index, 30) == digest(expected, 30)

    life_us = Burial().life_us
    assert digest(index, 31 + life_us) != digest(index_of(), 30)  # two objects
    for number in (3, 4):
        index.forget_object(key(number))
    assert digest(index, 31 + life_us) == digest(index_of()), "tombstones do not last for ever"


def test_b2_copies_count_where_all_of_the_cell_should_have_them() -> None:
    replicas = Replicas(MemoryStore(), Retention(), Burial())
    replicas.settle(HERE)
    here, elsewhere = (Replica(HERE),), (Replica(CellId(3)),)
    few = (Replica(HERE, ALICE), Replica(HERE, BOB))
    kinds = [
        (Role.OWN, here, True),
        (Role.OWN, elsewhere, False),
        (Role.OWN, few, False),
        (Role.ACTIVE, (), True),
        (Role.ACTIVE, few, False),
        (Role.PASSIVE, (), False),
    ]
    for number, (role, active, _) in enumerate(kinds):
        held = HeldObject(photo(number, data=b"12345"), role, active)
        replicas.hold(held, b"12345", 10)

    shared = {metadata.key for metadata in replicas.shares()}
    assert shared == {key(number) for number, (_, _, counts) in enumerate(kinds) if counts}
    assert len(replicas.shared) == len(shared)
    assert {held.metadata.key for held in replicas.few()} == {key(2), key(4)}
    replicas.settle(CellId(3))
    assert key(1) in {metadata.key for metadata in replicas.shares()}
    replicas.bury(key(3), DELETED, 11)
    assert len(replicas.shared) == len(list(replicas.shares()))


def test_d15_what_was_evicted_and_then_deleted_does_not_come_back() -> None:
    replicas = Replicas(MemoryStore(), Retention(objects_max=1), Burial())
    for number in range(2):
        replicas.hold(HeldObject(photo(number, data=b"1"), Role.ACTIVE), b"1", 10)
    assert replicas.why_gone(key(0)) == "evicted"

    replicas.bury(key(0), DELETED, 11)

    with pytest.raises(RejectedError, match="deleted"):
        replicas.hold(HeldObject(photo(0, data=b"1"), Role.ACTIVE), b"1", 12)


# The seam


def test_m26_b2_what_was_answered_without_knowing_is_found_for_a_while() -> None:
    index = index_of()
    seam = Seam(index, seam_us=5, late_us=100)
    subscription = subscribe(1, "goal")
    index.take_up(Interest(subscription, HERE), ALICE, 10)
    index.add(indexed(1), BOB, 10)
    seam.subscribed(subscription.key, 10)
    seam.indexed(key(1), 10)

    for now_us, fresh, late in ((14, True, True), (16, False, True), (111, False, False)):
        assert (seam.fresh([subscription], now_us) == [subscription]) == fresh
        assert (seam.missed_by(indexed(2).metadata, now_us) == [subscription]) == late
        assert (seam.missed_of(subscription, now_us) == [indexed(1).metadata]) == late


# Keys


def test_b10_the_rarest_literal_is_the_key_and_of_equal_ones_the_closest() -> None:
    popularity = Popularity()
    for number in range(10):
        popularity.note([Tag("common"), Tag("rare")] if number < 2 else [Tag("common")])
    grid = Grid(columns=10, rows=10)

    def cost_of(tag: Tag) -> tuple[float, ...]:
        return popularity.of(tag), grid.distance_m(HERE, grid.cell_of_key(tag))

    keys = Keys(MemoryStore(), Random(1), KeyChoice.RAREST, 100, grid.cell_of_key, cost_of)

    assert keys.key_of(conjunction("common & rare")) == "rare"
    unheard = conjunction("x1 & x2 & x3 & x4")
    closest = min(unheard.positive, key=lambda tag: grid.distance_m(HERE, grid.cell_of_key(tag)))
    assert keys.key_of(unheard) == closest
    popularity.note([closest] * 5)
    assert keys.key_of(unheard) == closest, "a choice stays"


def test_b10_what_is_remembered_of_tags_is_bounded_and_keeps_the_common_ones() -> None:
    popularity = Popularity(tags_max=20)
    for number in range(200):
        popularity.note([Tag("common"), Tag(f"tag{number}")])
        assert len(popularity) <= 20
    assert popularity.of(Tag("common")) > max(popularity.of(Tag(f"tag{n}")) for n in range(200))
