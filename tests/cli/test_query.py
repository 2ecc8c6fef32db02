"""thyme query: exit statuses and JSON for programs, text for people (M5–M9)."""

from __future__ import annotations

import io
import json
import time

import pytest

from tests.cli.conftest import Thyme


def test_explain_gives_the_canonical_form_and_the_conjunctions_as_json(thyme: Thyme) -> None:
    result = thyme("query", "explain", "goal & (ronaldo | eder) & !replay", "--json")

    assert result.status == 0
    assert json.loads(result.out) == {
        "canonical": "eder & goal & !replay | goal & ronaldo & !replay",
        "conjunctions": [
            {"positive": ["eder", "goal"], "negative": ["replay"]},
            {"positive": ["goal", "ronaldo"], "negative": ["replay"]},
        ],
    }


def test_explain_shows_people_the_form_the_conjunctions_and_their_keys(thyme: Thyme) -> None:
    result = thyme("query", "explain", "goal & !replay | save")

    assert result.status == 0
    assert "canonical form\n  goal & !replay | save\n" in result.out
    rows = [line.split() for line in result.out.splitlines()]
    assert ["1", "goal", "&", "!replay", "goal"] in rows
    assert ["2", "save", "save"] in rows


def test_explain_prints_tags_that_look_like_markup_as_they_are(thyme: Thyme) -> None:
    assert "[bold]" in thyme("query", "explain", "[bold] & :smile:").out


def test_json_is_ascii_whatever_the_tags(thyme: Thyme) -> None:
    result = thyme("query", "explain", "ÉDER", "--json")

    assert result.out.isascii()
    assert json.loads(result.out)["canonical"] == "éder"


@pytest.mark.parametrize(
    ("query", "tags", "status", "out"),
    [
        ("goal & !replay", "goal,eder", 0, "yes\n  goal & !replay: holds\n"),
        ("goal | save", " Goal , SAVE", 0, "yes\n  goal: holds\n  save: holds\n"),
        ("goal & !replay", "goal,replay", 1, "no\n  goal & !replay: has replay\n"),
        ("a & b & !c", "c", 1, "no\n  a & b & !c: lacks a and lacks b and has c\n"),
    ],
)
def test_match_answers_by_its_exit_status_and_says_why(
    thyme: Thyme, query: str, tags: str, status: int, out: str
) -> None:
    assert thyme("query", "match", query, "--tags", tags) == (status, out, "")


def test_match_gives_each_conjunction_its_verdict_as_json(thyme: Thyme) -> None:
    result = thyme("query", "match", "a & !b | c", "--tags", "a,b", "--json")

    assert result.status == 1
    assert json.loads(result.out) == {
        "matches": False,
        "tags": ["a", "b"],
        "conjunctions": [
            {
                "positive": ["a"],
                "negative": ["b"],
                "matches": False,
                "lacking": [],
                "unwanted": ["b"],
            },
            {
                "positive": ["c"],
                "negative": [],
                "matches": False,
                "lacking": ["c"],
                "unwanted": [],
            },
        ],
    }


def test_tags_may_be_given_in_several_goes(thyme: Thyme) -> None:
    assert thyme("query", "match", "a & b", "--tags", "a", "--tags", "b").status == 0


def test_a_syntax_error_is_shown_with_a_caret(thyme: Thyme) -> None:
    result = thyme("query", "explain", "goal & )")

    assert (result.status, result.out) == (2, "")
    assert result.err == (
        "thyme: at character 7: found ')', expected a tag, '!' or '('\n  goal & )\n         ^\n"
    )


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("", "found the end"),
        ("!replay", "every conjunction needs a tag without '!'"),
        ("a & !a", "contradiction"),
        ("a | !a", "tautology"),
        ("(" * 10_000 + "a" + ")" * 10_000, "parentheses nest at most"),
        (" & ".join(f"(a{n} | b{n})" for n in range(40)), "more than 64"),
        ("go\x00al", "control character"),
    ],
)
@pytest.mark.parametrize("command", ["explain", "match"])
def test_a_bad_query_is_one_message_and_status_2(
    thyme: Thyme, command: str, query: str, words: str
) -> None:
    options = ["--tags", "a"] if command == "match" else []

    result = thyme("query", command, query, *options)

    assert (result.status, result.out) == (2, "")
    assert result.err.startswith("thyme: ")
    assert words in result.err
    assert "Traceback" not in result.err


@pytest.mark.parametrize("tags", ["", "a,,b", "a b", "and", "x" * 200])
def test_bad_tags_are_status_2_and_not_no(thyme: Thyme, tags: str) -> None:
    result = thyme("query", "match", "a", "--tags", tags)

    assert (result.status, result.out) == (2, "")
    assert "tag" in result.err


def test_a_query_may_come_from_standard_input(
    thyme: Thyme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("goal &\n  !replay\n"))

    assert thyme("query", "match", "-", "--tags", "goal").status == 0


def test_a_megabyte_of_query_is_refused_by_name_and_quickly(
    thyme: Thyme, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("a & " * 250_000 + "a"))
    began_s = time.perf_counter()

    result = thyme("query", "explain", "-")

    assert time.perf_counter() - began_s < 1
    assert result.status == 2
    assert "a query has at most 65536 characters" in result.err
    assert len(result.err) < 200
