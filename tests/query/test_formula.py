"""Formulas: text → reverse Polish form, with errors that point at the character (M5, M8, M9)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.query.twin_dnf import And, Leaf, Not, Or, Tree, spelled, trees
from thyme.model.errors import QueryError, QuerySyntaxError, QueryTooLargeError
from thyme.query.formula import DEPTH_MAX, TEXT_CHARS_MAX, Operator, Symbol, parse

AND, OR, NOT = Operator.AND, Operator.OR, Operator.NOT


def polish(tree: Tree) -> list[str | Operator]:
    """A tree in reverse Polish form."""
    match tree:
        case Leaf(name):
            return [name]
        case Not(inner):
            return [*polish(inner), NOT]
        case And(left, right):
            return [*polish(left), *polish(right), AND]
        case Or(left, right):
            return [*polish(left), *polish(right), OR]


def value_of(symbols: tuple[Symbol, ...], present: set[str]) -> bool:
    """The value of a formula in reverse Polish form for an object with these tags."""
    stack: list[bool] = []
    for symbol in symbols:
        match symbol:
            case Operator.NOT:
                stack.append(not stack.pop())
            case Operator.AND | Operator.OR:
                right, left = stack.pop(), stack.pop()
                stack.append(left and right if symbol is AND else left or right)
            case _:
                stack.append(symbol in present)
    [value] = stack
    return value


def error_of(text: str) -> QuerySyntaxError:
    with pytest.raises(QuerySyntaxError) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "symbols"),
    [
        ("a", ("a",)),
        ("a & b", ("a", "b", AND)),
        ("a | b", ("a", "b", OR)),
        ("!a", ("a", NOT)),
        ("a | b & c", ("a", "b", "c", AND, OR)),
        ("a & b | c", ("a", "b", AND, "c", OR)),
        ("(a | b) & c", ("a", "b", OR, "c", AND)),
        ("a & (b | c)", ("a", "b", "c", OR, AND)),
        ("!a & b", ("a", NOT, "b", AND)),
        ("a & !b | c", ("a", "b", NOT, AND, "c", OR)),
        ("!(a & b)", ("a", "b", AND, NOT)),
        ("!!a", ("a", NOT, NOT)),
        ("a & b & c", ("a", "b", AND, "c", AND)),
        ("a, b | c", ("a", "b", AND, "c", OR)),
        ("a | b, c", ("a", "b", "c", AND, OR)),
        ("not a, b", ("a", NOT, "b", AND)),
    ],
)
def test_m5_not_binds_before_and_and_and_before_or(
    text: str, symbols: tuple[str | Operator, ...]
) -> None:
    assert parse(text) == symbols


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("a and b", "a & b"),
        ("a AND b Or c", "a & b | c"),
        ("not a or NOT b", "!a | !b"),
        ("a,b", "a & b"),
        ("a&b|!c", "a & b | ! c"),
        ("  a\t&\n b  ", "a & b"),
        ("not(a)and(b)", "!a & b"),
        ("not not a", "!!a"),
        ("!not a", "!!a"),
        ("GOAL & É", "goal & e\u0301"),
        ("((a))", "a"),
        ("a\u3000and\u00a0b", "a & b"),
    ],
)
def test_m5_words_signs_spaces_and_capitals_are_ways_to_write_the_same(
    text: str, same: str
) -> None:
    assert parse(text) == parse(same)


@pytest.mark.parametrize(
    "word", ["android", "order", "nothing", "band", "n0t", "a-and-b", "*", "?"]
)
def test_m5_a_word_that_only_contains_an_operator_word_is_a_tag(word: str) -> None:
    assert parse(word) == (word,)


@given(trees(), st.randoms(use_true_random=False))
def test_m5_every_spelling_of_a_formula_has_its_meaning(tree: Tree, rng: Random) -> None:
    written = parse(spelled(tree, rng))

    for present in [set(), {"a"}, {"b", "c"}, {"a", "c", "e"}, {"a", "b", "c", "d", "e"}]:
        assert value_of(written, present) is value_of(tuple(polish(tree)), present)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "position", "found"),
    [
        ("", 0, "the end"),
        ("   ", 3, "the end"),
        ("a &", 3, "the end"),
        ("a & ", 4, "the end"),
        ("a,", 2, "the end"),
        ("!", 1, "the end"),
        ("a and not", 9, "the end"),
        ("(", 1, "the end"),
        ("& a", 0, "'&'"),
        ("a & & b", 4, "'&'"),
        ("a | , b", 4, "','"),
        ("a,,b", 2, "','"),
        ("a and OR b", 6, "'OR'"),
        ("and", 0, "'and'"),
        ("!and", 1, "'and'"),
        ("()", 1, "')'"),
        ("a & ()", 5, "')'"),
        ("(a |)", 4, "')'"),
        (")", 0, "')'"),
        ("a b", 2, "'b'"),
        ("goal  eder", 6, "'eder'"),
        ("a !b", 2, "'!'"),
        ("a not b", 2, "'not'"),
        ("a (b)", 2, "'('"),
        ("(a)(b)", 3, "'('"),
        ("(a) b", 4, "'b'"),
        ("a)", 1, "')' that was never opened"),
        ("(a))", 3, "')' that was never opened"),
        ("(a", 0, "'(' that is never closed"),
        ("((a)", 0, "'(' that is never closed"),
        ("a & (b | c", 4, "'(' that is never closed"),
        ("é & & b", 4, "'&'"),
        ("👩‍🚀 & & b", 6, "'&'"),
    ],
)
def test_m9_a_syntax_error_points_at_the_character(text: str, position: int, found: str) -> None:
    error = error_of(text)

    assert (error.position, error.found) == (position, found)
    assert f"at character {position}: found {found}, expected " in str(error)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a & & b", "a tag, '!' or '('"),
        ("", "a tag, '!' or '('"),
        ("a b", "'&', '|', ',' or the end"),
        ("(a", "a matching ')'"),
    ],
)
def test_m9_a_syntax_error_says_what_would_do(text: str, expected: str) -> None:
    assert error_of(text).expected == expected


def test_m9_inside_parentheses_the_end_would_not_do_but_a_closing_one_would() -> None:
    expected = error_of("(a b)").expected

    assert "')'" in expected
    assert "the end" not in expected


@pytest.mark.parametrize(
    ("text", "position"),
    [("a & b\x00c", 5), ("a & \x07", 4), (f"goal{chr(0xD800)}", 4), ("a | bb\x7f & c", 6)],
    ids=["nul", "bell", "surrogate", "delete"],
)
def test_m9_a_character_that_no_tag_holds_is_pointed_at(text: str, position: int) -> None:
    error = error_of(text)

    assert error.position == position
    assert "no control character" in str(error)


def test_m9_a_tag_that_is_too_long_is_pointed_at_and_shown_in_part() -> None:
    error = error_of("a & " + "x" * 1000)

    assert error.position == 4
    assert "at most 128 bytes" in error.expected
    assert len(str(error)) < 300


noise = st.text(st.sampled_from([*"abé&|!(), \n\t\x00", chr(0xDC00)]), max_size=40)
pieces = st.lists(
    st.sampled_from([*"ab&|!(),", " ", "and ", " or ", "not ", "\x00", "\n", chr(0xDC00)]),
    max_size=25,
).map("".join)


def failure_of(text: str) -> QuerySyntaxError | None:
    try:
        parse(text)
    except QuerySyntaxError as error:
        return error
    return None


@given(noise | pieces | st.text(max_size=30))
def test_m25_any_text_is_a_formula_or_an_error_that_points_into_it(text: str) -> None:
    error = failure_of(text)

    if error is not None:
        assert 0 <= error.position <= len(text)
        assert str(error).encode()
    else:
        assert value_of(parse(text), {"a"}) in (True, False)


@given(pieces)
def test_m9_whatever_stands_before_the_character_could_have_gone_on(text: str) -> None:
    """The first error is reported: the text before it is invalid only because it ends too soon."""
    error = failure_of(text)
    earlier = None if error is None else failure_of(text[: error.position])

    assert earlier is None or earlier.found in {"the end", "'(' that is never closed"}


@pytest.mark.parametrize("depth", [DEPTH_MAX + 1, 10_000, 30_000])
def test_m8_parentheses_nested_too_deep_are_refused(depth: int) -> None:
    with pytest.raises(
        QueryTooLargeError, match=f"at most {DEPTH_MAX} deep.* character {DEPTH_MAX}"
    ):
        parse("(" * depth + "a" + ")" * depth)


def test_m8_parentheses_may_nest_up_to_the_limit_and_stand_side_by_side_without_one() -> None:
    assert parse("(" * DEPTH_MAX + "a" + ")" * DEPTH_MAX) == ("a",)
    assert len(parse(" & ".join(["(a)"] * 2 * DEPTH_MAX))) == 4 * DEPTH_MAX - 1


@pytest.mark.parametrize(
    "text", ["a" * 10**6, "a & " * 250_000, "(" * 10**6, " " * 10**6, "!" * 10**6]
)
def test_m8_a_megabyte_of_text_is_refused(text: str) -> None:
    with pytest.raises(QueryTooLargeError, match="at most 65536 characters, this one has 1000000"):
        parse(text)


def test_m8_the_limit_of_the_text_holds_at_the_boundary() -> None:
    assert parse("a".ljust(TEXT_CHARS_MAX)) == ("a",)
    with pytest.raises(QueryTooLargeError):
        parse("a".ljust(TEXT_CHARS_MAX + 1))


def test_m25_a_text_too_large_is_a_query_error_too() -> None:
    assert issubclass(QueryTooLargeError, QueryError)
