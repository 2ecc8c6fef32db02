"""Tables of names and numbers in the documents agree with the code."""

from __future__ import annotations

import re
from pathlib import Path

from thyme.model import errors
from thyme.query import dnf, formula

DOCS = Path(__file__).parents[2] / "docs"


def test_every_error_is_listed_with_its_code() -> None:
    page = (DOCS / "concepts.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(\w+Error)` \| `(\w+)` \|", page, flags=re.M))

    classes = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    assert listed == {
        (kind.__name__, kind.code)
        for kind in classes
        if issubclass(kind, errors.ThymeError) and kind is not errors.ThymeError
    }


def test_the_bounds_of_queries_are_the_ones_decided() -> None:
    page = (DOCS / "decisions" / "0006-query-bounds.md").read_text("utf-8")
    bounds = re.findall(r"^\| .+ \| ([\d,]+).* \| `(\w+)` \|$", page, flags=re.M)

    assert len(bounds) == 7
    for number, name in bounds:
        [value] = {vars(room)[name] for room in (formula, dnf) if name in vars(room)}
        assert int(number.replace(",", "")) == value, name
