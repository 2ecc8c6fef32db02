"""Explanations: why an object matches a subscription or does not (M32)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import conjunctions, frame, photo, subscribe
from tests.query.twin_dnf import TAGS
from thyme.model.time_frames import ALWAYS, SECOND_US
from thyme.query.explain import Explanation, explain


def test_m32_a_match_names_the_conjunction_that_holds_and_the_frame() -> None:
    made = explain(
        "there",
        photo(tags=["goal", "eder"], at_us=0),
        conjunctions("eder & !replay | goal & ronaldo"),
        frame(0, SECOND_US),
    )

    assert made == Explanation(
        matches=True,
        state="there",
        formula=True,
        frame=True,
        reasons=(
            "object: stored",
            "formula: eder & !replay holds",
            "frame: 1970-01-01T00:00:00Z lies inside 1970-01-01T00:00:00Z..1970-01-01T00:00:01Z",
        ),
    )


def test_m32_a_formula_that_fails_says_why_for_each_conjunction() -> None:
    made = explain(
        "there",
        photo(tags=["goal", "replay"]),
        conjunctions("goal & !replay | eder & final | ronaldo & !foul & !replay"),
        ALWAYS,
    )

    assert (made.matches, made.formula, made.frame) == (False, False, True)
    assert made.reasons[1:4] == (
        "formula: eder & final fails, since the object lacks eder and lacks final",
        "formula: goal & !replay fails, since the object has replay",
        "formula: ronaldo & !foul & !replay fails, since the object lacks ronaldo and has replay",
    )


@pytest.mark.parametrize(
    ("at_us", "where"), [(9, "outside"), (10, "inside"), (20, "inside"), (21, "outside")]
)
def test_m32_an_object_outside_the_frame_says_so(at_us: int, where: str) -> None:
    made = explain("there", photo(at_us=at_us), conjunctions("goal"), frame(10, 20))

    assert made.matches is made.frame is (where == "inside")
    assert f" lies {where} " in made.reasons[-1]


def test_m32_formula_and_frame_are_told_apart_when_both_fail() -> None:
    made = explain("there", photo(tags=["save"], at_us=5), conjunctions("goal"), frame(10, 20))

    assert (made.matches, made.formula, made.frame) == (False, False, False)
    assert len(made.reasons) == 3


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("deleted", "object: deleted by its owner"),
        ("expired", "object: expired: its lifetime or the node's age limit has passed"),
        ("evicted", "object: evicted to free space"),
        ("unknown", "object: unknown: never received, or no longer recorded"),
    ],
)
def test_m32_an_object_that_is_not_there_says_why(state: str, words: str) -> None:
    made = explain(state, None, conjunctions("goal"), ALWAYS)

    assert made == Explanation(False, state, None, None, (words,))


def test_m32_a_deleted_object_does_not_match_although_all_else_would() -> None:
    made = explain("deleted", photo(), conjunctions("goal"), ALWAYS)

    assert (made.matches, made.formula, made.frame) == (False, True, True)
    assert made.reasons[0] == "object: deleted by its owner"


def test_m32_a_state_from_a_later_version_is_told_as_it_is() -> None:
    assert explain("archived", None, conjunctions("goal"), ALWAYS).reasons == ("object: archived",)


def test_m32_an_explanation_reads_as_verdict_and_reasons() -> None:
    made = explain("there", photo(tags=["save"]), conjunctions("goal"), ALWAYS)

    assert str(made).splitlines() == [
        "does not match",
        "object: stored",
        "formula: goal fails, since the object lacks goal",
        "frame: 1970-01-01T00:00:00Z lies inside ⊥..⊥",
    ]


@given(
    st.sets(st.sampled_from(TAGS), min_size=1),
    st.sampled_from(["a", "a & !b", "a & b | c", "a & !b & !c | d & e", "b | c & !d"]),
    st.integers(min_value=0, max_value=6),
)
def test_m32_the_verdict_is_the_brokers(tags: set[str], query: str, at_us: int) -> None:
    subscription = subscribe(1, query, frame(2, 4))
    made = explain(
        "there", photo(tags=tags, at_us=at_us), subscription.conjunctions, subscription.frame
    )

    assert made.matches is subscription.matches(photo(tags=tags, at_us=at_us))
    assert made.matches is bool(made.formula and made.frame)
