"""The page on security names a test for each line, and the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text("utf-8")


def rows(section: str) -> list[str]:
    """The rows of the table in a section."""
    [_, rest] = PAGE.split(f"## {section}\n")
    lines = rest.split("\n## ")[0].splitlines()
    return [line for line in lines if line.startswith("| ")][2:]


def named_tests(text: str) -> list[str]:
    return re.findall(r"`(tests/[^`]+\.py)`", text)


@pytest.mark.parametrize("row", rows("What they must not do"))
def test_b5_what_nobody_must_do_has_a_test(row: str) -> None:
    assert named_tests(row), row


@pytest.mark.parametrize("row", rows("What they can do"))
def test_b5_what_is_accepted_has_a_reason(row: str) -> None:
    _, who, what, why, *_ = (part.strip() for part in row.split("|"))
    assert who
    assert what
    assert len(why) > 5, row


def test_b5_every_test_that_the_page_names_exists() -> None:
    named = named_tests(PAGE)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == []
