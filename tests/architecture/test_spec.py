"""The specification: every clause cited in code, tests or documents is in `docs/spec`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = ROOT / "docs" / "spec"
CITED_IN = ["src", "tests", "benchmarks", "examples", "docs"]
CLAUSE = re.compile(r"\b([MELRDIUSPCB])([1-9][0-9]?)(?:–([MELRDIUSPCB]?)([1-9][0-9]?))?\b")
NOT_CLAUSES = {
    "tests/architecture/test_spec.py",  # this file has examples of invalid citations
}


def clauses_defined() -> set[str]:
    """The clauses of the specification; claims are in a table, the others in lists."""
    text = "\n".join(path.read_text() for path in sorted(SPEC.glob("0*.md")))
    named = re.findall(r"^- \*\*([A-Z]\d+)\b", text, re.MULTILINE)
    claims = re.findall(r"^\| (C\d+) \|", text, re.MULTILINE)
    assert len(named) == len(set(named)), "a clause is defined twice"
    return {*named, *claims}


def clauses_cited(text: str) -> Iterator[str]:
    """The clauses that a text cites; a range cites all of its members."""
    for letter, first, last_letter, last in CLAUSE.findall(text):
        if last and last_letter in ("", letter):
            yield from (f"{letter}{n}" for n in range(int(first), int(last) + 1))
        else:
            yield f"{letter}{first}"


def citing_files() -> list[Path]:
    files = [path for top in CITED_IN for path in (ROOT / top).rglob("*.py")]
    files += [path for path in (ROOT / "docs").rglob("*.md") if SPEC not in path.parents]
    return [path for path in files if path.relative_to(ROOT).as_posix() not in NOT_CLAUSES]


def test_every_cited_clause_is_defined() -> None:
    defined = clauses_defined()
    unknown = [
        f"{path.relative_to(ROOT)}: {clause}"
        for path in sorted(citing_files())
        for clause in clauses_cited(_prose(path))
        if clause not in defined
    ]
    assert not unknown, "\n".join(["clauses that docs/spec does not define:", *unknown])


def test_every_letter_has_clauses() -> None:
    assert {clause[0] for clause in clauses_defined()} == set("MELRDIUSPCB")


@pytest.mark.parametrize(
    ("text", "cited"),
    [
        ("Clauses: M10, D5–D7.", ["M10", "D5", "D6", "D7"]),
        ("(D16)", ["D16"]),
        ("M99", ["M99"]),
        ("B5 and P10", ["B5", "P10"]),
        ("MP3, H264, D0", []),
    ],
)
def test_citations_are_read(text: str, cited: list[str]) -> None:
    assert list(clauses_cited(text)) == cited


def _prose(path: Path) -> str:
    """The prose of a file: in Python, comments and docstrings (names like `P50` are not
    clauses)."""
    text = path.read_text()
    if path.suffix == ".md":
        return re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    comments = re.findall(r"#.*$", text, re.MULTILINE)
    return "\n".join([*re.findall(r'"""(.*?)"""', text, re.DOTALL), *comments])
