"""Versions of an object: their names, and which one is the latest (B9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.model.ids import Key, NodeId, ObjectId
from thyme.model.metadata import Metadata, make_metadata
from thyme.model.object_versions import (
    FIRST,
    NUMBER_MAX,
    first_key,
    make_version,
    sort_versions,
    version_number,
    version_tag,
)

ANA, RUI = NodeId(b"ana"), NodeId(b"rui")
PHOTO = Key(ObjectId("photo"), ANA)
numbers = st.integers(0, NUMBER_MAX - 1)


def metadata(key: Key) -> Metadata:
    return make_metadata(key, b"", ["goal"], 1)


@given(numbers, numbers)
def test_a_new_version_is_later_than_the_latest_whatever_the_clock_says(
    latest: int, now_us: int
) -> None:
    """M36: the clock may have been set back."""
    version = make_version(PHOTO, latest, now_us)

    assert version_number(version) == max(latest + 1, now_us)
    assert first_key(version) == PHOTO
    assert version_tag(version) == version_tag(PHOTO)


@given(st.lists(numbers, unique=True).flatmap(st.permutations))
def test_the_latest_is_the_same_in_whatever_order_versions_arrive(found: list[int]) -> None:
    keys = [PHOTO, *(make_version(PHOTO, FIRST, number + 1) for number in found)]
    others = [Key(PHOTO.oid, RUI), make_version(Key(PHOTO.oid, RUI), FIRST, 7)]

    versions = sort_versions(keys[-1], map(metadata, [*keys, *others, *keys]))

    assert [version_number(each.key) for each in versions] == sorted(
        [FIRST, *(number + 1 for number in found)], reverse=True
    )


def test_a_version_of_a_version_is_one_of_the_first() -> None:
    second = make_version(PHOTO, FIRST, 1_000)

    assert make_version(second, 1_000, 2_000) == make_version(PHOTO, 1_000, 2_000)
    assert version_tag(PHOTO) != version_tag(Key(PHOTO.oid, RUI))


def test_an_object_id_without_space_for_a_number_is_refused() -> None:
    with pytest.raises(InputError, match="too long for versions: 12 bytes more must fit"):
        make_version(Key(ObjectId("x" * 53), ANA), FIRST, 1)
    assert make_version(Key(ObjectId("x" * 52), ANA), FIRST, 1)
