"""The page on security names tests that exist, and each protection has one (B5)."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()


def test_every_protection_names_a_test_that_exists() -> None:
    section = PAGE.partition("## What they must not do")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    named = [re.findall(r"`(tests/[^`]+)`", row) for row in rows]

    assert len(rows) > 10
    assert [row for row, tests in zip(rows, named, strict=True) if not tests] == []
    assert [test for tests in named for test in tests if not (ROOT / test).is_file()] == []
