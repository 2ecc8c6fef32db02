"""Conjunctions, subscriptions and notifications (M7, M10, M11, M16)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.builders import ALICE, BOB, conjunction, frame, photo, subscribe
from thyme.model.errors import InputError, KeyFormatError, QueryError
from thyme.model.ids import NodeId, SubscriptionId
from thyme.model.subscriptions import Conjunction, Notification, SubscriptionKey, SubscriptionRecord
from thyme.model.tags import Tag


def literals(*words: str) -> tuple[Tag, ...]:
    return tuple(map(Tag, words))


@pytest.mark.parametrize(
    ("tags", "matches"),
    [
        ({"goal", "eder"}, True),
        ({"goal", "eder", "final"}, True),
        ({"goal"}, False),
        ({"eder"}, False),
        ({"goal", "eder", "replay"}, False),
        (set(), False),
    ],
)
def test_m11_a_conjunction_wants_all_of_its_tags_and_none_of_the_others(
    tags: set[str], matches: bool
) -> None:
    assert conjunction("goal & eder & !replay & !foul").matches(tags) is matches


def test_m7_a_conjunction_without_a_positive_tag_is_refused_by_name() -> None:
    with pytest.raises(QueryError, match="needs a tag without '!': !foul & !replay"):
        Conjunction((), literals("foul", "replay"))


def test_m6_a_conjunction_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(QueryError, match="contradicts itself: a & b & !b"):
        Conjunction(literals("a", "b"), literals("b"))


@pytest.mark.parametrize(
    ("positive", "negative"),
    [
        (("b", "a"), ()),
        (("a", "a"), ()),
        (("A",), ()),
        (("a",), ("c", "b")),
        (("a",), ("B",)),
        (("a b",), ()),
        (("and",), ()),
        (("a",), ("",)),
    ],
)
def test_m6_a_conjunction_has_one_form_only(
    positive: tuple[str, ...], negative: tuple[str, ...]
) -> None:
    with pytest.raises(InputError):
        Conjunction(literals(*positive), literals(*negative))


def test_a_conjunction_is_written_as_a_query() -> None:
    assert str(Conjunction(literals("eder", "goal"), literals("replay"))) == "eder & goal & !replay"


@pytest.mark.parametrize(
    ("tags", "at_us", "wanted"),
    [
        ({"goal"}, 10, True),
        ({"goal"}, 20, True),
        ({"save", "x"}, 15, True),
        ({"goal"}, 9, False),
        ({"goal"}, 21, False),
        ({"foul"}, 15, False),
    ],
)
def test_m11_a_subscription_wants_what_satisfies_its_query_inside_its_frame(
    tags: set[str], at_us: int, wanted: bool
) -> None:
    subscription = subscribe(1, "goal | save", frame(10, 20))

    assert subscription.matches(photo(tags=tags, at_us=at_us)) is wanted


def test_m10_a_subscription_needs_a_conjunction() -> None:
    with pytest.raises(QueryError, match="at least one conjunction"):
        SubscriptionRecord(SubscriptionKey(SubscriptionId("sub1"), ALICE), (), frame())


def test_m8_a_subscription_has_at_most_1024_conjunctions() -> None:
    some = tuple(Conjunction(literals(f"t{number}")) for number in range(1025))
    key = SubscriptionKey(SubscriptionId("sub1"), ALICE)

    assert len(SubscriptionRecord(key, some[:1024], frame()).conjunctions) == 1024
    with pytest.raises(QueryError, match="at most 1024, not 1025"):
        SubscriptionRecord(key, some, frame())


def test_two_subscribers_may_use_the_same_subscription_id() -> None:
    keys = [SubscriptionKey(SubscriptionId("sub1"), node) for node in (ALICE, BOB)]

    assert len({*keys, *keys}) == 2
    assert str(keys[1]) == "sub1@626f62"


@pytest.mark.parametrize(
    ("sid", "node"), [*itertools.product(["", "a b", "a@b"], [b"bob"]), ("sub1", b"")]
)
def test_m25_a_subscription_key_that_exists_is_valid(sid: str, node: bytes) -> None:
    with pytest.raises(KeyFormatError):
        SubscriptionKey(SubscriptionId(sid), NodeId(node))


def test_m28_a_notification_keeps_the_publishers_stamp_and_the_arrival_apart() -> None:
    note = Notification(
        SubscriptionId("sub1"), photo(7, at_us=10), arrived_us=50, from_history=True
    )

    assert (note.metadata.published_us, note.arrived_us) == (10, 50)
    assert note.key == photo(7).key


def test_m16_a_notification_has_no_room_for_the_object() -> None:
    note: Any = Notification(SubscriptionId("sub1"), photo(7, data=b"pixels"), 50, False)

    assert b"pixels" not in {getattr(note, name) for name in note.__struct_fields__}
    assert not hasattr(note, "data")
