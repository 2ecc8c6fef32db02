"""The commands in the documents about live nodes exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from thyme.cli import _parser

ROOT = Path(__file__).parents[2]
COMMAND = re.compile(
    r"^    (?:\./run )?(thyme (?:node|server|worlds|publish|subscribe|retrieve).*)$"
)


def commands(page: str) -> list[str]:
    """The commands of a document, one a line."""
    lines = (ROOT / page).read_text("utf-8").splitlines()
    return [found[1] for line in lines if (found := COMMAND.match(line))]


@pytest.mark.parametrize(
    ("page", "command"),
    [(page, command) for page in ("README.md", "docs/live.md") for command in commands(page)],
)
def test_a_command_that_is_shown_can_be_given(page: str, command: str) -> None:
    words = shlex.split(command.removesuffix(" &"), comments=True)

    assert _parser().parse_args(words[1:]).run is not None


def test_the_two_terminals_of_the_readme_are_among_them() -> None:
    assert len(commands("README.md")) == 5
