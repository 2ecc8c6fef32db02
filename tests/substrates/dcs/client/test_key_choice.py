"""Choice of the key of a conjunction: the literal whose cell gets the subscription (D16, B10)."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.builders import conjunction, subscribe
from tests.substrates.dcs.components import CELL, GRID
from thyme.model.tags import Tag
from thyme.storage.store import MemoryStore
from thyme.substrates.dcs.client.key_choice import KeyChooser
from thyme.substrates.dcs.client.tag_popularity import TagPopularity
from thyme.substrates.dcs.config import KeyChoice


def a_key_chooser(
    store: MemoryStore, seed: int, choice: KeyChoice = KeyChoice.RANDOM
) -> KeyChooser:
    return KeyChooser(store, Random(seed), choice, GRID.cell_of_key, choices_max=100)


@given(st.integers(0, 50))
def test_d16_a_key_is_a_positive_literal_and_stays_the_same(seed: int) -> None:
    chooser = a_key_chooser(MemoryStore(), seed)
    for query in ("a & b & c & !d", "a & b & c & !e", "z"):
        one = conjunction(query)
        chosen = chooser.choose_key(one)
        assert chosen in one.positive
        assert [chooser.choose_key(one) for _ in range(3)] == [chosen] * 3


def test_d16_random_choices_spread_over_the_literals_and_first_ones_do_not() -> None:
    one = conjunction("a & b & c")
    drawn = {a_key_chooser(MemoryStore(), seed).choose_key(one) for seed in range(30)}
    assert drawn == {"a", "b", "c"}
    first = {
        a_key_chooser(MemoryStore(), seed, KeyChoice.FIRST).choose_key(one) for seed in range(30)
    }
    assert first == {"a"}


def test_d16_the_cells_of_a_subscription_are_known_to_the_next_incarnation() -> None:
    store = MemoryStore()
    subscription = subscribe(1, "a & b & c | d & e & f | g")
    chooser = a_key_chooser(store, 1)
    by_cell = chooser.assign_cells(subscription)

    for seed in range(10):
        later = a_key_chooser(store, seed)
        assert later.cells_of(subscription.key.sid) == list(by_cell)
        assert later.assign_cells(subscription) == by_cell
    later.forget_subscription(subscription.key.sid)
    assert a_key_chooser(store, 1).cells_of(subscription.key.sid) == []


def test_remembered_keys_are_bounded() -> None:
    store = MemoryStore()
    chooser = a_key_chooser(store, 1)
    for number in range(300):
        chooser.assign_cells(subscribe(number, f"tag{number}"))
    chooser.prune_ended(lambda sid: sid == "sub299", 1)
    assert chooser.all_cells() == [GRID.cell_of_key("tag299")]


def test_b10_the_rarest_literal_is_the_key_and_of_equal_ones_the_closest() -> None:
    popularity = TagPopularity()
    for number in range(10):
        popularity.add_tags([Tag("common"), Tag("rare")] if number < 2 else [Tag("common")])

    def cost_of(tag: Tag) -> tuple[float, ...]:
        return popularity.count_of(tag), GRID.distance_m(CELL, GRID.cell_of_key(tag))

    chooser = KeyChooser(MemoryStore(), Random(1), KeyChoice.RAREST, GRID.cell_of_key, cost_of)

    assert chooser.choose_key(conjunction("common & rare")) == "rare"
    unknown = conjunction("x1 & x2 & x3 & x4")
    closest = min(unknown.positive, key=lambda tag: GRID.distance_m(CELL, GRID.cell_of_key(tag)))
    assert chooser.choose_key(unknown) == closest
    popularity.add_tags([closest] * 5)
    assert chooser.choose_key(unknown) == closest, "a choice stays"
