"""Queries: formulas match their objects, and invalid ones are refused."""

from __future__ import annotations

import pytest

from tests.conformance.environment import Environment
from thyme.model.errors import QueryError, QuerySyntaxError, QueryTooLargeError
from thyme.query.query import Query, tag

ALBUM = {
    "goal-eder": ("goal", "eder"),
    "goal-ronaldo": ("goal", "ronaldo"),
    "replay": ("goal", "eder", "replay"),
    "crowd": ("stands",),
}


@pytest.fixture
def album(env: Environment) -> Environment:
    alice = env.person("alice")
    for oid, tags in ALBUM.items():
        alice.insert(*tags, oid=oid)
    return env


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("goal", {"goal-eder", "goal-ronaldo", "replay"}),
        ("goal & !replay", {"goal-eder", "goal-ronaldo"}),
        ("goal and not (eder or replay)", {"goal-ronaldo"}),
        ("goal, eder", {"goal-eder", "replay"}),
        ("stands | goal & ronaldo", {"crowd", "goal-ronaldo"}),
        ("(stands | goal) & !(eder & !replay)", {"crowd", "goal-ronaldo", "replay"}),
    ],
)
def test_m5_a_formula_finds_what_it_describes(
    album: Environment, query: str, expected: set[str]
) -> None:
    bob = album.person("bob")
    assert {note.key.oid for note in bob.search(query)} == expected
    assert bob.search(query).total == len(expected)


def test_m6_formulas_that_mean_the_same_are_the_same_subscription(album: Environment) -> None:
    one = Query("goal & (eder | ronaldo)")
    other = Query("ronaldo & goal | eder & goal | goal & eder")
    assert one == other
    assert str(one) == str(other)
    bob = album.person("bob")
    found = [note.key for note in bob.search(one)]
    assert found == [note.key for note in bob.search(other)]
    assert len(found) == 3


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("!replay", QueryError, "!replay"),
        ("goal | !replay", QueryError, "!replay"),
        ("goal & !goal", QueryError, "contradiction"),
        ("goal | !goal", QueryError, "tautology"),
        ("goal &", QuerySyntaxError, "at character 6"),
        ("goal eder", QuerySyntaxError, "at character 5"),
        ("", QuerySyntaxError, "the end"),
        ("(" * 10_000, QueryTooLargeError, "deep"),
        (" & ".join(f"(a{n} | b{n})" for n in range(30)), QueryTooLargeError, "64"),
        ("a " * 500_000, QueryTooLargeError, "characters"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else None,  # in the environment, too
)
def test_m7_m8_m9_a_formula_that_cannot_be_is_refused_with_words(
    env: Environment, query: str, error: type[Exception], words: str
) -> None:
    bob = env.person("bob")
    with pytest.raises(error, match=words):
        bob.follow(query)
    with pytest.raises(error, match=words):
        bob.search(query)
    assert bob.subscriptions() == ()


def test_m31_a_query_built_in_python_is_the_parsed_one(album: Environment) -> None:
    built = tag("goal") & ~tag("replay")
    assert built == Query("goal & !replay")
    news = album.person("bob").subscribe(built)
    album.person("alice").insert("goal", "replay", oid="again")
    album.person("alice").insert("goal", oid="last")
    album.elapse(2)
    album.hears(news, ["goal-eder", "goal-ronaldo", "last"])
