"""Range reconciliation: both sides learn exactly what the other lacks, in few bytes (U3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.protocol.messages.encounters import EventSummary
from thyme.protocol.messages.event_ranges import ID_BYTES, EventRange
from thyme.protocol.range_reconciliation import (
    LEAF_EVENTS,
    Item,
    RangeComparison,
    compare_ranges,
    open_ranges,
    open_recent_ranges,
)
from thyme.wire.codec import size_of


def item(number: int) -> Item:
    return number // 3, (number * 2_654_435_761 % 2**64).to_bytes(ID_BYTES, "big")


def reconcile(ana: list[Item], ben: list[Item]) -> tuple[set[Item], set[Item], int, int]:
    """Ana opens; both answer until all is settled. What each lacks, rounds, and bytes."""
    ana_lacks, ben_lacks = set[bytes](), set[bytes]()
    ranges, sides, rounds, sent = list(open_ranges(ana)), [ben, ana], 0, 0
    while ranges:
        found: RangeComparison = compare_ranges(sides[rounds % 2], ranges)
        here, there = {name for _, name in found.only_here}, set(found.only_there)
        ana_lacks |= here if rounds % 2 == 0 else there
        ben_lacks |= there if rounds % 2 == 0 else here
        sent += size_of(EventSummary(1, (), tuple(ranges), tuple(there), False))
        ranges, rounds = found.answer, rounds + 1
        assert rounds < 20
    names = {each[1]: each for each in (*ana, *ben)}
    return {names[name] for name in ana_lacks}, {names[name] for name in ben_lacks}, rounds, sent


numbers = st.sets(st.integers(0, 2_000), max_size=400)


@given(numbers, numbers, numbers)
def test_u3_both_learn_exactly_what_the_other_lacks(
    common: set[int], only_ana: set[int], only_ben: set[int]
) -> None:
    ana = sorted(map(item, common | only_ana))
    ben = sorted(map(item, common | only_ben))
    ana_lacks, ben_lacks, _, _ = reconcile(ana, ben)

    assert ana_lacks == set(ben) - set(ana)
    assert ben_lacks == set(ana) - set(ben)


def test_u3_equal_sets_cost_a_few_fingerprints_whatever_their_size() -> None:
    items = sorted(map(item, range(5_000)))
    ana_lacks, ben_lacks, rounds, sent = reconcile(items, items)

    assert (ana_lacks, ben_lacks, rounds) == (set(), set(), 1)
    assert sent < 300


def test_u3_few_differences_among_many_events_cost_little() -> None:
    items = sorted(map(item, range(5_000)))
    _, ben_lacks, rounds, sent = reconcile(items, [each for each in items if each != items[777]])

    assert ben_lacks == {items[777]}
    assert rounds <= 6
    assert sent < 5_000 * ID_BYTES / 20


@given(numbers, st.sets(st.integers(2_000, 2_050), max_size=20))
def test_l5_what_is_new_is_found_by_the_first_answer(common: set[int], new: set[int]) -> None:
    here = sorted(map(item, common | new))
    there = sorted(map(item, common))
    found = compare_ranges(there, open_recent_ranges(here))
    missing = {each[1] for each in here} - {each[1] for each in there}
    assert set(found.only_there) == missing
    assert compare_ranges(here, open_recent_ranges(here)).answer == []


def test_few_events_are_compared_in_one_round() -> None:
    items = sorted(map(item, range(LEAF_EVENTS)))
    [only] = open_ranges(items)

    assert only.ids == tuple(name for _, name in items)
    assert compare_ranges(items, [only]).answer == []


@pytest.mark.parametrize(
    "fields",
    [
        (None, b"short", None),
        (None, b"f" * 12, (b"i" * 8,)),
        ((1, b"short"), None, None),
        (None, None, (b"short",)),
        (None, None, (b"i" * 8,) * 5_000),
    ],
)
def test_ranges_that_make_no_sense_are_refused(fields: tuple[object, ...]) -> None:
    with pytest.raises(ValueError, match=r"range|identifier|fingerprint"):
        EventRange(*fields)  # type: ignore[arg-type]
