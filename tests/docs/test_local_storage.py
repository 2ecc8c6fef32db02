"""The settings of Thyme-LS in the documents agree with the code."""

from __future__ import annotations

import re
from operator import attrgetter
from pathlib import Path

from thyme.substrates.ls.config import PAPER, ROBUST

PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "0009-local-storage.md"


def test_the_profiles_are_the_ones_decided() -> None:
    rows = re.findall(r"^\| `([\w.]+)` \| (\w+) \| (\w+) \|", PAGE.read_text("utf-8"), flags=re.M)
    assert len(rows) == 6
    for name, paper, robust in rows:
        assert (str(attrgetter(name)(PAPER)), str(attrgetter(name)(ROBUST))) == (paper, robust)
