"""Identifiers of nodes, objects and subscriptions; keys and their written form (M3)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import ALICE, BOB
from thyme.model.errors import KeyFormatError
from thyme.model.ids import (
    Key,
    NodeId,
    ObjectId,
    as_node_id,
    as_object_id,
    as_subscription_id,
    random_id,
)


def is_name(text: str) -> bool:
    try:
        as_object_id(text)
    except KeyFormatError:
        return False
    return True


names = st.text(min_size=1, max_size=64).filter(is_name)
keys = st.builds(Key, names.map(ObjectId), st.binary(min_size=1, max_size=32).map(NodeId))


def test_m3_two_owners_may_use_the_same_object_id() -> None:
    of_alice, of_bob = Key(ObjectId("photo"), ALICE), Key(ObjectId("photo"), BOB)

    assert of_alice != of_bob
    assert len({of_alice, of_bob}) == 2


@given(keys)
def test_m3_a_key_is_read_back_from_its_written_form(key: Key) -> None:
    assert Key.parse(str(key)) == key


@given(keys, keys)
def test_m3_different_keys_are_written_differently(one: Key, other: Key) -> None:
    assert (str(one) == str(other)) is (one == other)


def test_m3_a_key_is_written_as_its_object_at_its_owner() -> None:
    assert str(Key(ObjectId("photo"), BOB)) == "photo@626f62"


def test_m3_the_owner_may_be_written_in_capitals() -> None:
    assert Key.parse("photo@FF") == Key(ObjectId("photo"), NodeId(b"\xff"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@",
        "photo",
        "photo@",
        "@626f62",
        "photo@xyz",
        "photo@6",
        "photo@62 6f",
        "photo@ 62",
        "photo@62\n",
        " photo@62",
        "pho to@62",
        "a@b@62",
        "photo@" + "00" * 33,
        "x" * 65 + "@62",
    ],
)
def test_m25_text_that_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(KeyFormatError):
        Key.parse(text)


@pytest.mark.parametrize("thing", [None, 7, b"photo@62"])
def test_m25_a_key_is_read_from_text_only(thing: Any) -> None:
    with pytest.raises(KeyFormatError):
        Key.parse(thing)


@pytest.mark.parametrize("text", ["x", "x" * 64, "é" * 32, "IMG_0001.jpg", "日本", "a/b#c:d"])
@pytest.mark.parametrize("as_name", [as_object_id, as_subscription_id])
def test_a_name_has_1_to_64_bytes_of_printable_text(text: str, as_name: Any) -> None:
    assert as_name(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 65,
        "é" * 32 + "x",
        "a b",
        "a\u00a0b",
        "a@b",
        "a\nb",
        "a\x00",
        "\ud800",
        "\u200b",
        "\u2028",
    ],
)
@pytest.mark.parametrize(
    ("as_name", "what"), [(as_object_id, "an object id"), (as_subscription_id, "a subscription id")]
)
def test_m25_a_name_that_cannot_be_written_in_a_line_is_refused(
    text: str, as_name: Any, what: str
) -> None:
    with pytest.raises(KeyFormatError, match=f"^{what} is 1 to 64 bytes of printable text"):
        as_name(text)


@pytest.mark.parametrize("thing", [None, 7, b"photo", ["photo"]])
def test_m25_a_name_is_text(thing: Any) -> None:
    with pytest.raises(KeyFormatError, match="an object id is text, not "):
        as_object_id(thing)


@pytest.mark.parametrize("node", [b"a", b"\x00" * 32])
def test_a_node_id_has_1_to_32_bytes(node: bytes) -> None:
    assert as_node_id(node) == node


@pytest.mark.parametrize("thing", [b"", b"x" * 33, "bob", None, 7, bytearray(b"bob")])
def test_m25_what_is_no_node_id_is_refused(thing: Any) -> None:
    with pytest.raises(KeyFormatError, match="a node id is 1 to 32 bytes"):
        as_node_id(thing)


@pytest.mark.parametrize(("oid", "owner"), [("", b"bob"), ("a b", b"bob"), ("photo", b"")])
def test_m25_a_key_that_exists_is_valid(oid: str, owner: bytes) -> None:
    with pytest.raises(KeyFormatError):
        Key(ObjectId(oid), NodeId(owner))


@given(st.lists(keys, max_size=6))
def test_keys_are_ordered_by_object_and_then_by_owner(some: list[Key]) -> None:
    assert sorted(some) == sorted(some, key=lambda key: (key.oid, key.owner))


@given(st.integers(), st.integers(min_value=1, max_value=320))
def test_a_drawn_name_is_a_name_and_repeats_with_its_generator(seed: int, bits: int) -> None:
    name = random_id(Random(seed), bits)

    assert as_object_id(name) == name
    assert len(name) == -(-bits // 5)
    assert random_id(Random(seed), bits) == name


def test_drawn_names_differ() -> None:
    rng = Random(1)

    assert len({random_id(rng) for _ in range(1000)}) == 1000
