"""Errors: each has a code of its own, points at the cause, and stays readable (M9, M25)."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from thyme.model import errors
from thyme.model.errors import (
    DecodeError,
    InputError,
    NotFoundError,
    OperationError,
    OperationTimeoutError,
    QuerySyntaxError,
    ThymeError,
    error_for_code,
)
from thyme.model.ids import Key, as_node_id, as_object_id
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag, as_tag, as_tags
from thyme.model.worlds import check_world_name

ALL_ERRORS = [
    thing
    for thing in vars(errors).values()
    if isinstance(thing, type) and issubclass(thing, ThymeError)
]


def test_m25_every_error_has_a_code_of_its_own() -> None:
    codes = [error.code for error in ALL_ERRORS]

    assert len(set(codes)) == len(codes)


def test_bad_input_is_a_value_error_and_a_timeout_a_timeout_error() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(OperationTimeoutError, TimeoutError)


@pytest.mark.parametrize(
    "error", [error for error in ALL_ERRORS if issubclass(error, OperationError)]
)
def test_an_operations_code_that_travels_is_the_same_error_on_arrival(
    error: type[OperationError],
) -> None:
    arrived = error_for_code(error.code, "why")

    assert type(arrived) is error
    assert str(arrived) == "why"


@pytest.mark.parametrize("code", ["", "from_the_future", "bad_query_syntax"])
def test_a_code_we_do_not_know_is_a_plain_failure(code: str) -> None:
    assert type(error_for_code(code, "why")) is OperationError


def test_a_failure_without_words_says_its_code() -> None:
    assert str(error_for_code(NotFoundError.code, "")) == "not_found"


@pytest.mark.parametrize(
    ("text", "position", "picture"),
    [
        ("a & & b", 4, "  a & & b\n      ^"),
        ("", 0, "  \n  ^"),
        ("a &", 3, "  a &\n     ^"),
        ("a\n& &", 4, "  a\N{REPLACEMENT CHARACTER}& &\n      ^"),
        ("x" * 40 + "!" + "y" * 40, 40, "  …" + "x" * 30 + "!" + "y" * 29 + "…\n" + " " * 33 + "^"),
    ],
)
def test_m9_a_syntax_error_shows_the_place(text: str, position: int, picture: str) -> None:
    error = QuerySyntaxError(text, position, "this", "that")

    assert str(error) == f"at character {position}: found this, expected that\n{picture}"


@pytest.mark.parametrize(
    "error", [QuerySyntaxError("a &", 3, "the end", "a tag"), DecodeError("version", "we speak 1")]
)
def test_an_error_survives_the_way_between_two_processes(error: ThymeError) -> None:
    arrived = pickle.loads(pickle.dumps(error))

    assert type(arrived) is type(error)
    assert (str(arrived), vars(arrived)) == (str(error), vars(error))


MEGA = 10**6


@pytest.mark.parametrize(
    "refused",
    [
        lambda: as_tag("x" * MEGA),
        lambda: as_tag(b"x" * MEGA),  # type: ignore[arg-type]
        lambda: as_tags("x" * MEGA),
        lambda: as_object_id("x" * MEGA),
        lambda: as_node_id(b"x" * MEGA),
        lambda: Key.parse("x" * MEGA),
        lambda: check_world_name("x" * MEGA),
        lambda: check_world_name("\n" * MEGA),
        lambda: Conjunction(tuple(Tag(f"t{number}") for number in range(MEGA // 100, 0, -1))),
        lambda: Metadata(
            Key("a", b"b"),  # type: ignore[arg-type]
            tuple(Tag(f"{number}x" * 20) for number in range(60, 0, -1)),
            b"",
            0,
            0,
            b"x" * 32,
        ),
    ],
    ids=[
        "tag",
        "tag of bytes",
        "tags",
        "object id",
        "node id",
        "key",
        "world",
        "blank world",
        "conjunction",
        "metadata",
    ],
)
def test_m25_the_message_stays_short_however_long_the_input_was(
    refused: Callable[[], object],
) -> None:
    with pytest.raises(InputError) as caught:
        refused()

    assert len(str(caught.value)) < 1000
