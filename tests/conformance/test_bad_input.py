"""M25: bad input gets a precise error, changes nothing, and affects nobody else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from tests.conformance.environment import Environment
from thyme.model.errors import (
    InputError,
    KeyFormatError,
    MetadataError,
    OptionError,
    TagError,
    ThymeError,
)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"tags": []}, TagError, "at least one tag"),
        ({"tags": "goal"}, TagError, "list of words"),
        ({"tags": ["goal", ""]}, TagError, "empty"),
        ({"tags": ["two words"]}, TagError, "white space"),
        ({"tags": ["a&b"]}, TagError, "operator"),
        ({"tags": ["NOT"]}, TagError, "operator"),
        ({"tags": ["bell\x07"]}, TagError, "control"),
        ({"tags": ["x" * 129]}, TagError, "128 bytes"),
        ({"tags": [7]}, TagError, "text"),
        ({"tags": [f"t{n}" for n in range(65)]}, TagError, "at most 64"),
        ({"data": "text"}, MetadataError, "encode"),
        ({"data": None}, MetadataError, "bytes"),
        ({"description": 7}, MetadataError, "summary"),
        ({"oid": ""}, KeyFormatError, "object id"),
        ({"oid": "a b"}, KeyFormatError, "object id"),
        ({"oid": "x" * 65}, KeyFormatError, "64 bytes"),
        ({"ttl": timedelta(0)}, OptionError, "longer than 0, not 0 s"),
        ({"ttl": 5}, OptionError, "time to live"),
        ({"copies": "many"}, OptionError, "copies"),
    ],
)
def test_m25_an_insert_that_makes_no_sense_is_refused(
    env: Environment, arguments: dict[str, Any], error: type[ThymeError], words: str
) -> None:
    alice = env.person("alice")
    given: dict[str, Any] = {"data": b"x", "tags": ["goal"], **arguments}
    with pytest.raises(error, match=words):
        alice.handlers.insert(**given)
    assert alice.search("goal").total == 0


def test_m25_what_names_no_object_is_refused(env: Environment) -> None:
    alice = env.person("alice")
    for thing in ("no key", "photo@", "photo@zz", "@00"):
        with pytest.raises(KeyFormatError):
            alice.handlers.delete(thing)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        alice.handlers.retrieve(7)  # type: ignore[arg-type]


def test_m25_a_node_goes_on_after_bad_input(env: Environment) -> None:
    alice, bob = env.person("alice"), env.person("bob")
    news = bob.subscribe("goal")
    for tags in ([], ["a b"], ["and"]):
        with pytest.raises(TagError):
            alice.handlers.insert(b"x", tags)
    alice.insert("goal", oid="photo")
    env.elapse(2)
    env.hears(news, ["photo"])
