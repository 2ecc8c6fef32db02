"""The examples in the documents run as printed, and print what the documents say."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from thyme.cli import main

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
QUICKSTART = ROOT / "docs" / "quickstart.md"


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)


def printed_by(program: str) -> list[str]:
    """The lines that a program prints when it runs as a file of its own."""
    result = subprocess.run(
        [sys.executable, "-X", "utf8", "-c", program],
        capture_output=True,
        encoding="utf-8",
        timeout=30,
    )
    assert (result.returncode, result.stderr) == (0, "")
    return [line.rstrip() for line in result.stdout.splitlines()]


def test_the_ten_lines_of_the_readme_work() -> None:
    [program] = blocks(README, "python")

    assert printed_by(program) == [r"79' Éder! b'\xff\xd8 a photo'"]
    assert len([line for line in program.splitlines() if line.strip()]) == 10


def test_the_commands_of_the_readme_answer_as_shown(capsys: pytest.CaptureFixture[str]) -> None:
    [session] = blocks(README, "console")
    _, *turns = re.split(r"^\$ ./run thyme ", session, flags=re.M)

    for turn in turns:
        command, _, answer = turn.partition("\n")
        main(shlex.split(command))
        assert capsys.readouterr().out == answer


def test_the_quickstart_is_a_program_that_prints_what_it_says() -> None:
    program = "\n".join(blocks(QUICKSTART, "python"))
    [output] = blocks(QUICKSTART, "text")

    assert printed_by(program) == [line.rstrip() for line in output.splitlines()]


@pytest.mark.parametrize("page", sorted([README, *ROOT.glob("docs/**/*.md")]), ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []
