"""The page about traces says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from thyme.traces.row_codec import COLUMNS
from thyme.traces.synthetic.football_match import FootballMatchConfig

PAGE = (Path(__file__).parents[2] / "docs" / "traces.md").read_text("utf-8")


def test_the_example_works_and_prints_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [program] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    [output] = re.findall(r"^```text\n(.*?)^```$", PAGE, re.M | re.S)
    monkeypatch.chdir(tmp_path)

    exec(program, {})

    assert capsys.readouterr().out == output


def test_the_columns_are_listed_in_their_order() -> None:
    listed = re.findall(r"^\| `(\w+)` \| (integer|text|list of text) \|", PAGE, re.M)
    kinds = {int: "integer", str: "text", list: "list of text"}
    assert listed == [(name, kinds[kind]) for name, kind in COLUMNS.items()]


def test_the_numbers_of_the_match_are_the_ones_listed() -> None:
    match = FootballMatchConfig()
    assert f"| {match.users:,}; the nth posts in proportion to (n + 10)^−0.8 |" in PAGE
    assert (match.user_shift, match.user_exponent) == (10, 0.8)
    assert f"| {match.posts:,} in three hours |" in PAGE
    assert f"| {match.tags} by Zipf's law" in PAGE
    assert f"| {match.course.silences} silences of 20 to 150 s" in PAGE
    assert match.course.silence_s == (20, 150)
