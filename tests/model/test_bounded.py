"""A bounded dict evicts its oldest entry, and only that one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from thyme.model.bounded import BoundedDict, drop_before


def bounded(size_max: int, keys: str) -> BoundedDict[str, int]:
    entries: BoundedDict[str, int] = BoundedDict(size_max)
    for value, key in enumerate(keys):
        entries[key] = value
    return entries


def test_the_first_inserted_entry_is_evicted_although_it_was_set_again() -> None:
    entries = bounded(2, "aba")
    assert entries.put("c", 3) == "a"
    assert entries == {"b": 1, "c": 3}


def test_a_refreshed_entry_is_the_newest() -> None:
    entries = bounded(2, "ab")
    entries.refresh("a", 2)
    assert entries.put("c", 3) == "b"
    assert list(entries.items()) == [("a", 2), ("c", 3)]


def test_nothing_is_evicted_below_the_limit_nor_by_setting_an_entry_again() -> None:
    entries = bounded(2, "a")
    assert entries.put("b", 1) is None
    assert entries.put("a", 2) is None
    assert entries == {"a": 2, "b": 1}


@given(st.integers(1, 5), st.lists(st.sampled_from("abcdefgh")))
def test_it_keeps_the_entries_of_the_hand_written_pattern(size_max: int, keys: list[str]) -> None:
    plain: dict[str, int] = {}
    entries: BoundedDict[str, int] = BoundedDict(size_max)
    for value, key in enumerate(keys):
        plain[key] = value
        if len(plain) > size_max:
            del plain[next(iter(plain))]
        entries[key] = value
    assert list(entries.items()) == list(plain.items())


def test_entries_are_dropped_up_to_the_first_recent_one() -> None:
    times_us = {"a": 1, "b": 2, "c": 5, "d": 3}
    assert drop_before(times_us, 4) == ["a", "b"]
    assert list(times_us) == ["c", "d"]
