"""Runs commands in tests: exit status, standard output and standard error."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

from thyme.cli import main


class Result(NamedTuple):
    """How a command ended."""

    status: int
    out: str
    err: str


Thyme = Callable[..., Result]


@pytest.fixture
def thyme(capsys: pytest.CaptureFixture[str]) -> Thyme:
    """Runs the command in this process: `thyme("query", "explain", "goal")`."""

    def run(*argv: str) -> Result:
        status = main(argv)
        out, err = capsys.readouterr()
        return Result(status, out, err)

    return run
