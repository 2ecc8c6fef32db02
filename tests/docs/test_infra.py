"""The page about stations agrees with the code: its example and its table of settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from thyme.substrates.infra.caches.config import PAPER_CACHES, ROBUST_CACHES

PAGE = (Path(__file__).parents[2] / "docs" / "infra.md").read_text("utf-8")


def test_the_example_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]) -> None:
    [(code, shown)] = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, flags=re.S)
    exec(code, {})
    assert capsys.readouterr().out == shown


def test_the_settings_of_the_caches_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)?) \| (.+?) \| (.+?) \| .+ \|$", PAGE, flags=re.M)
    for config, column in ((PAPER_CACHES, 1), (ROBUST_CACHES, 2)):
        listed: dict[str, str] = {}
        for row in rows:
            names = re.findall(r"\w+", row[0])
            listed |= dict(zip(names, row[column].split(", "), strict=True))
        actual = {
            name: str(getattr(value, "value", value))
            for name in config.__struct_fields__
            for value in [getattr(config, name)]
        }
        clean = {name: text.strip("`").replace(",", "") for name, text in listed.items()}
        assert clean == actual
