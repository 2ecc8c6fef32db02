"""Disjunctive normal form, compared with a naive implementation, and its bounds (M6, M8)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.twin_dnf import (
    Terms,
    Tree,
    assignments,
    built,
    holds,
    rewritten,
    spelled,
    trees,
    twin_normal_form,
)
from thyme.model.errors import QueryTooLargeError
from thyme.query.dnf import CONJUNCTIONS_MAX, LITERALS_MAX, Literals, normal_form
from thyme.query.formula import parse

# Over five tags no formula has more conjunctions than this.
AMPLE = 243


def conjunctions_of(text: str, most: int = AMPLE) -> tuple[Literals, ...]:
    return normal_form(parse(text), most)


def as_terms(literals: tuple[Literals, ...]) -> Terms:
    return frozenset(
        frozenset([*((tag, True) for tag in positive), *((tag, False) for tag in negative)])
        for positive, negative in literals
    )


@settings(max_examples=250)
@given(trees(16), st.randoms(use_true_random=False))
def test_m6_the_normal_form_is_its_twins(tree: Tree, rng: Random) -> None:
    made = conjunctions_of(spelled(tree, rng))

    assert as_terms(made) == twin_normal_form(tree)
    assert len(made) == len(as_terms(made))


@settings(max_examples=250)
@given(trees(16), st.randoms(use_true_random=False))
def test_m6_a_formula_and_its_normal_form_agree_on_every_object(tree: Tree, rng: Random) -> None:
    made = conjunctions_of(spelled(tree, rng))

    for present in assignments():
        verdict = any(present.issuperset(yes) and present.isdisjoint(no) for yes, no in made)
        assert verdict is holds(tree, present)


@given(trees(10), st.randoms(use_true_random=False))
def test_m6_formulas_that_reduce_to_the_same_form_are_equal_and_print_the_same(
    tree: Tree, rng: Random
) -> None:
    one, other = built(tree), built(rewritten(tree, rng))

    assert one == other
    assert hash(one) == hash(other)
    assert str(one) == str(other)


@given(trees(16))
def test_m6_the_normal_form_is_in_order(tree: Tree) -> None:
    made = normal_form(built(tree)._symbols, AMPLE)

    assert list(made) == sorted(made)
    for positive, negative in made:
        assert list(positive) == sorted(set(positive))
        assert list(negative) == sorted(set(negative))
        assert set(positive).isdisjoint(negative)


@given(trees(10))
def test_the_twin_itself_agrees_with_the_truth_table(tree: Tree) -> None:
    terms = twin_normal_form(tree)

    for present in assignments():
        verdict = any(all((tag in present) is wanted for tag, wanted in term) for term in terms)
        assert verdict is holds(tree, present)


@given(trees(10), st.randoms(use_true_random=False))
def test_the_twins_rewriting_keeps_the_meaning(tree: Tree, rng: Random) -> None:
    other = rewritten(tree, rng)

    assert all(holds(other, present) is holds(tree, present) for present in assignments())


@pytest.mark.parametrize(
    ("text", "literals"),
    [
        ("a", [(["a"], [])]),
        ("b & a", [(["a", "b"], [])]),
        ("a & a", [(["a"], [])]),
        ("a | a & b", [(["a"], [])]),
        ("a & b | a", [(["a"], [])]),
        ("a & !a | b", [(["b"], [])]),
        ("a & !a", []),
        ("a & b & !c & !b", []),
        ("a & (b | c)", [(["a", "b"], []), (["a", "c"], [])]),
        ("a & !(b & c)", [(["a"], ["b"]), (["a"], ["c"])]),
        ("a & !(b | c)", [(["a"], ["b", "c"])]),
        ("!(!a)", [(["a"], [])]),
        ("a | !a", [([], ["a"]), (["a"], [])]),
        ("b | a | A", [(["a"], []), (["b"], [])]),
    ],
)
def test_m6_contradictions_duplicates_and_absorbed_conjunctions_go(
    text: str, literals: list[tuple[list[str], list[str]]]
) -> None:
    assert [(list(yes), list(no)) for yes, no in conjunctions_of(text)] == literals


def choices(count: int, *, options: int = 2) -> str:
    """A formula of `options ** count` conjunctions: a choice, and a choice, and …"""
    return " & ".join(
        "(" + " | ".join(f"t{number}x{option}" for option in range(options)) + ")"
        for number in range(count)
    )


def test_m8_64_conjunctions_are_fine_and_one_more_is_refused() -> None:
    assert len(conjunctions_of(choices(6), CONJUNCTIONS_MAX)) == 64
    assert len(conjunctions_of(choices(1, options=64), CONJUNCTIONS_MAX)) == 64
    with pytest.raises(QueryTooLargeError, match="more than 64 conjunctions"):
        conjunctions_of(choices(1, options=65), CONJUNCTIONS_MAX)
    with pytest.raises(QueryTooLargeError, match="more than 64 conjunctions"):
        conjunctions_of(choices(7), CONJUNCTIONS_MAX)


def test_m8_the_bound_counts_what_is_left_after_simplifying() -> None:
    text = f"t & ({choices(7)}) | t"

    assert conjunctions_of(text, most=1) == ((("t",), ()),)


@pytest.mark.parametrize("most", [1, 10, 300, 1000])
def test_m8_the_bound_is_a_setting(most: int) -> None:
    """16 · 20 tags make 320 conjunctions; the error names the bound that was set."""
    text = f"{choices(1, options=16)} & {choices(1, options=20).replace('t', 'u')}"
    if most >= 320:
        assert len(conjunctions_of(text, most)) == 320
    else:
        with pytest.raises(QueryTooLargeError, match=f"more than {most} conjunctions"):
            conjunctions_of(text, most)


def exclusive_or(tags: int) -> str:
    """True where an odd number of the tags is present: 2 ** (tags - 1) conjunctions."""
    text = "t0"
    for number in range(1, tags):
        text = f"(({text}) & !t{number} | !({text}) & t{number})"
    return text


@pytest.mark.parametrize(
    "text",
    [
        choices(100),
        choices(4, options=60),
        choices(128),
        "!(" + " | ".join(f"(a{n} & !b{n})" for n in range(100)) + ")",
        " & ".join(f"(t{n} | !t{n} | t{n + 1})" for n in range(200)),
        " | ".join(f"({choices(5)} & u{n})" for n in range(50)),
        exclusive_or(10),
        " & ".join([f"({choices(1, options=64)})"] * 80),
        " | ".join(f"t{n % 200} & t{n % 199}" for n in range(2000)),
        " & ".join(f"(t{n % 101} | !t{n % 103})" for n in range(2000)),
    ],
    ids=[
        "choices", "wide", "long", "negated", "hidden", "sums", "xor", "again", "pairs", "mixed",
    ],
)  # fmt: skip
def test_m8_a_formula_that_explodes_is_refused(text: str) -> None:
    with pytest.raises(QueryTooLargeError, match="split it into several subscriptions"):
        conjunctions_of(text, CONJUNCTIONS_MAX)


def test_m8_a_flat_formula_of_many_tags_is_told_that_it_has_too_many_conjunctions() -> None:
    with pytest.raises(QueryTooLargeError, match="more than 64 conjunctions"):
        conjunctions_of(choices(1, options=200), CONJUNCTIONS_MAX)


def test_m8_256_different_tags_are_fine_and_one_more_is_refused() -> None:
    tags = [f"t{number}" for number in range(LITERALS_MAX)]
    [(positive, negative)] = conjunctions_of(" & ".join([*tags, *tags]))

    assert (set(positive), negative) == (set(tags), ())
    with pytest.raises(QueryTooLargeError, match="at most 256 different tags, this one has 257"):
        conjunctions_of(" & ".join([*tags, "one-more"]))


@pytest.mark.parametrize("sign", ["&", "|"])
def test_m8_a_long_formula_that_says_little_is_fine(sign: str) -> None:
    assert conjunctions_of(sign.join(["a"] * 10_000)) == ((("a",), ()),)


def test_m8_negations_pile_up_without_harm() -> None:
    assert conjunctions_of("!" * 10_000 + "a") == ((("a",), ()),)


def test_m8_a_deep_tree_is_no_recursion() -> None:
    text = "a" + "".join([" & (a | b"] * 400) + ")" * 400

    assert conjunctions_of(text) == ((("a",), ()),)
