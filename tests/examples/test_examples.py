"""The examples run as programs of their own and print what their docstrings say."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
OF_THE_NETWORK = {"es", "ls", "dcs"}
LINES_MAX = 40


def expected_output(program: Path) -> str:
    """The indented lines after "Prints:" in the docstring."""
    docstring = ast.get_docstring(ast.parse(program.read_text("utf-8"))) or ""
    _, _, output = docstring.partition("\nPrints:\n\n")
    assert output, f"{program.name} does not say what it prints"
    return dedent(output) + "\n"


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_prints_what_it_says(program: Path) -> None:
    if program.stem in OF_THE_NETWORK and importlib.util.find_spec("nacl") is None:
        pytest.skip("needs the extra `live`")

    done = subprocess.run(
        [sys.executable, "-X", "utf8", "-W", "error", program],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.stderr) == (expected_output(program), "")


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(program: Path) -> None:
    assert len(program.read_text("utf-8").splitlines()) <= LINES_MAX


def test_the_list_of_examples_is_complete() -> None:
    page = (EXAMPLES / "README.md").read_text("utf-8")
    for program in EXAMPLES.glob("*.py"):
        assert f"({program.name})" in page, f"{program.name} is not in examples/README.md"
