"""Queries: valid ones, their normal form, and the two ways to make them (M5-M9, M31)."""

from __future__ import annotations

import copy
import pickle
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import conjunction
from tests.query.twin_dnf import Tree, assignments, built, holds, spelled, trees, twin_normal_form
from thyme.model.errors import (
    QueryError,
    QuerySyntaxError,
    QueryTooLargeError,
    TagError,
)
from thyme.model.subscriptions import Conjunction
from thyme.query.formula import SYMBOLS_MAX, TEXT_CHARS_MAX
from thyme.query.query import Formula, Query, as_query, query_from_conjunctions, tag


def keyed(tree: Tree) -> bool:
    """Whether every conjunction has a positive tag, and there is at least one conjunction."""
    terms = twin_normal_form(tree)
    return bool(terms) and all(any(wanted for _, wanted in term) for term in terms)


keyed_trees = trees(10).filter(keyed)


def a_long_query(tags: int) -> Query:
    """64 conjunctions of 6 + `tags` long tags: short as a formula, long in its normal form."""
    choices = [f"({'a' * 100}{n} | {'b' * 100}{n})" for n in range(6)]
    return Query(" & ".join([*choices, *(f"{'c' * 100}{n}" for n in range(tags))]))


def a_wide_query() -> Query:
    """320 conjunctions: 16 tags times 20."""
    some, others = (" | ".join(f"{name}{n}" for n in range(count)) for name, count in SIDES)
    return Query(f"({some}) & ({others})", conjunctions_max=320)


SIDES = [("a", 16), ("b", 20)]


def test_m5_a_query_says_which_objects_match() -> None:
    query = Query("goal & (eder | ronaldo) & !replay")

    assert query.matches(["goal", "eder"])
    assert query.matches({"Goal", "RONALDO", "final"})
    assert not query.matches(["goal", "eder", "replay"])
    assert not query.matches(["goal"])
    assert not query.matches([])


def test_m6_a_query_is_its_conjunctions_in_order() -> None:
    query = Query("goal & (ronaldo | eder) & !replay")

    assert query.conjunctions == (
        conjunction("eder & goal & !replay"),
        conjunction("goal & ronaldo & !replay"),
    )
    assert str(query) == "eder & goal & !replay | goal & ronaldo & !replay"
    assert query.tags == ("eder", "goal", "replay", "ronaldo")


@given(keyed_trees, st.randoms(use_true_random=False))
def test_m6_a_query_matches_what_its_formula_says(tree: Tree, rng: Random) -> None:
    query = Query(spelled(tree, rng))

    for present in assignments():
        assert query.matches(present) is holds(tree, present)


@given(keyed_trees)
def test_m6_a_query_is_read_back_from_its_written_form(tree: Tree) -> None:
    query = Query(built(tree))
    again = Query(str(query))

    assert again == query
    assert str(again) == str(query)
    assert again.conjunctions == query.conjunctions


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=6))
def test_m6_any_tag_can_be_written_and_read_back(words: list[str]) -> None:
    try:
        query = Query(tag(words[0]))
        for word in words[1:]:
            query = Query(query & tag(word))
    except TagError:
        return
    assert Query(str(query)) == query


def test_m6_a_query_whose_written_form_is_long_is_read_back_too() -> None:
    query = a_long_query(3)

    assert 50_000 < len(str(query)) <= TEXT_CHARS_MAX
    assert Query(str(query)) == query


def test_m8_a_query_whose_written_form_could_not_be_read_back_is_refused() -> None:
    with pytest.raises(QueryTooLargeError, match=f"at most {TEXT_CHARS_MAX} characters"):
        a_long_query(8)


def test_m6_a_query_under_a_larger_bound_is_read_back_under_it() -> None:
    query = a_wide_query()

    assert Query(str(query), conjunctions_max=320) == query


def test_m6_the_query_of_stored_conjunctions_is_the_one_they_came_from() -> None:
    query = Query("goal & (eder | ronaldo) & !replay | save")

    assert query_from_conjunctions(query.conjunctions) == query


def test_m6_conjunctions_that_were_stored_can_always_be_listed_as_a_query() -> None:
    long, wide = a_long_query(3), a_wide_query()

    assert query_from_conjunctions(long.conjunctions) == long
    assert query_from_conjunctions(wide.conjunctions) == wide


@given(keyed_trees)
def test_m7_every_conjunction_is_keyed_by_a_positive_tag(tree: Tree) -> None:
    assert all(conjunction.positive for conjunction in Query(built(tree)).conjunctions)


@given(trees(10).filter(lambda tree: not keyed(tree)), st.randoms(use_true_random=False))
def test_m7_a_formula_without_a_key_for_each_conjunction_is_refused(
    tree: Tree, rng: Random
) -> None:
    with pytest.raises(QueryError):
        Query(spelled(tree, rng))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("!a", "!a"),
        ("not goal", "!goal"),
        ("!(b | a)", "!a & !b"),
        ("a | !b", "!b"),
        ("a | b & !c | !c & !d & !e", "!c & !d & !e"),
        ("!(a & b)", "!a"),
    ],
)
def test_m7_a_purely_negative_conjunction_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(QueryError) as caught:
        Query(text)

    assert str(caught.value).endswith(f"this one has none: {named}")


@pytest.mark.parametrize("text", ["a & !a", "a & b & !a", "(a | b) & !a & !b", "!a & a | b & !b"])
def test_m7_a_contradiction_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="is a contradiction"):
        Query(text)


@pytest.mark.parametrize(
    "text", ["a | !a", "!(a & !a)", "a & b | !a | !b", "a | b | !a & !b", "a | !a | goal"]
)
def test_m7_a_tautology_is_refused(text: str) -> None:
    with pytest.raises(QueryError, match="is a tautology"):
        Query(text)


def test_m7_a_tautology_of_many_tags_is_refused_too() -> None:
    with pytest.raises(QueryError, match="this one has none: !a"):
        Query(" | ".join(["a", "!a", *(f"t{number}" for number in range(20))]))


def test_m8_a_query_over_the_bound_is_refused_and_the_bound_is_a_setting() -> None:
    text = " | ".join(f"t{number}" for number in range(65))

    with pytest.raises(QueryTooLargeError, match="more than 64 conjunctions"):
        Query(text)
    with pytest.raises(QueryTooLargeError, match="more than 10 conjunctions"):
        Query(text, conjunctions_max=10)
    assert len(Query(text, conjunctions_max=65).conjunctions) == 65


def test_m8_a_formula_that_grows_without_end_is_stopped() -> None:
    formula = tag("a")
    while 2 * len(formula._symbols) + 1 <= SYMBOLS_MAX:
        formula = formula & formula

    assert Query(formula) == Query("a")
    with pytest.raises(QueryTooLargeError, match=f"at most {SYMBOLS_MAX} symbols"):
        formula & formula


@pytest.mark.parametrize("text", ["", "   ", "()", "(a", "a)", "&", "and", "a b"])
def test_m9_text_that_is_no_formula_is_a_syntax_error(text: str) -> None:
    with pytest.raises(QuerySyntaxError, match=r"at character \d+: found .*, expected "):
        Query(text)


@pytest.mark.parametrize("thing", [None, 7, b"goal", ["goal"], {"goal"}, conjunction("goal")])
def test_m25_a_query_is_text_or_a_formula(thing: Any) -> None:
    with pytest.raises(QueryError, match="a query is text or built from tag"):
        Query(thing)


@pytest.mark.parametrize("tags", ["goal", b"goal"])
def test_m25_a_query_is_held_against_a_list_of_tags_and_not_against_one_text(tags: Any) -> None:
    """A text is a list of letters to Python, so that `Query("g").matches("goal")` would hold."""
    with pytest.raises(TagError, match="tags are a list of words"):
        Query("g").matches(tags)


def test_m25_a_query_is_held_against_valid_tags_only() -> None:
    with pytest.raises(TagError):
        Query("goal").matches(["goal", "not a tag"])


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (tag("goal"), "goal"),
        (tag("Goal") & ~tag("replay"), "goal & !replay"),
        (tag("goal") & "eder", "goal & eder"),
        (tag("goal") | "save", "goal | save"),
        (tag("goal") & (tag("eder") | "ronaldo"), "goal & (eder | ronaldo)"),
        (tag("goal") & "eder | ronaldo", "goal & (eder | ronaldo)"),
        ("goal" & ~tag("replay"), "goal & !replay"),
        ("goal | save" & ~tag("replay"), "(goal | save) & !replay"),
        ("save" | tag("goal"), "goal | save"),
        (tag("a") | tag("b") & ~tag("c"), "a | b & !c"),
        (tag("a") & ~(tag("b") | tag("c")), "a & !(b | c)"),
        (~~tag("a"), "a"),
    ],
)
def test_m31_a_query_built_in_python_equals_the_parsed_one(formula: Formula, text: str) -> None:
    assert Query(formula) == Query(text)
    assert Query(formula).conjunctions == Query(text).conjunctions
    assert formula == Query(text)
    assert str(formula) == str(Query(text))


@given(keyed_trees, st.randoms(use_true_random=False))
def test_m31_built_and_parsed_are_one_value(tree: Tree, rng: Random) -> None:
    from_python, from_text = Query(built(tree)), Query(spelled(tree, rng))

    assert {from_python, from_text} == {from_python}
    assert repr(from_python) == repr(from_text)


def test_m31_a_query_is_a_formula_to_build_on() -> None:
    query = Query("goal | save")

    assert Query(query & ~tag("replay")) == Query("(goal | save) & !replay")
    assert Query("a & b") == Query(Query("a & b"))
    assert as_query(query) is query
    assert as_query("goal | save") == query
    assert as_query(tag("goal") | "save") == query


def test_m31_a_lone_negation_may_be_built_but_not_subscribed_to() -> None:
    negation = ~tag("replay")

    assert str(negation) == "!replay"
    with pytest.raises(QueryError, match="this one has none: !replay"):
        Query(negation)


def test_m31_a_tag_is_one_word_and_no_formula() -> None:
    with pytest.raises(TagError):
        tag("goal & eder")
    with pytest.raises(QuerySyntaxError):
        tag("goal") & "not"


@pytest.mark.parametrize("thing", [7, None, ["eder"]])
def test_m31_a_formula_combines_with_formulas_and_words_only(thing: Any) -> None:
    with pytest.raises(TypeError):
        tag("goal") & thing
    with pytest.raises(TypeError):
        tag("goal") | thing


def test_different_queries_are_different_and_print_differently() -> None:
    texts = ["a", "b", "a & b", "a | b", "a & !b", "b & !a", "a & b | a & c", "a & b & c"]

    assert len({Query(text) for text in texts}) == len(texts)
    assert len({str(Query(text)) for text in texts}) == len(texts)
    assert Query("a") != "a"


def test_a_query_can_be_copied_and_sent_to_another_process() -> None:
    query = Query("goal & !replay")

    assert pickle.loads(pickle.dumps(query)) == query
    assert copy.deepcopy(query).conjunctions == query.conjunctions


def test_a_query_shows_itself_as_it_would_be_made() -> None:
    query = Query("b & a | !c & a")

    assert eval(repr(query)) == query
    assert isinstance(query.conjunctions[0], Conjunction)
