"""Words: names and docstrings use the papers' and the field's words instead of metaphors.

A small list guards the worst. docs/glossary.md says which word to use. Strings that leave the
process (labels, table names, HTTP fields) are not names and stay as they are.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.imports import ROOT, SOURCE

INSTEAD = {
    "warden": "message authenticator",
    "notary": "record signer",
    "seam": "race window, recent answers",
    "ward": "proxied cell",
    "wards": "proxied cells",
    "grave": "tombstone",
    "graves": "tombstones",
    "graveyard": "tombstones",
    "bury": "remove with tombstone",
    "burial": "tombstone limits",
    "sheaf": "bundle",
    "shelf": "record table",
    "desk": "broker service",
    "fate": "outcome, fault injector",
    "befell": "fault event",
    "resident": "device",
    "residents": "devices",
    "parcel": "message in transit",
    "parcels": "messages in transit",
    "letter": "reliable message",
    "switchboard": "shared node",
    "room": "package, module, space",
    "rooms": "packages, modules",
    "ether": "ideal network",
    "hearsay": "route entry",
    "passport": "peer authenticator",
    "grudge": "failure penalty",
    "keeper": "proxy",
    "colleague": "cell peer",
    "colleagues": "cell peers",
    "unrest": "topology change",
    "trouble": "faults",
    "told": "event, emitted",
    "heard": "received",
    "casting": "deployment",
    "census": "samples",
    "lest": "so that … not",
}
ALLOWED = {
    "traces/synthetic/vocabulary.py": {"keeper"},  # a goalkeeper
    "pipeline/posts/hashtags.py": {"letter"},  # a character
    "cli/story.py": {"keeper", "heard"},  # a goalkeeper; fields of its JSON
    # Names of published fields and columns.
    "daemon/json_schemas.py": {"told"},
    "sim/users.py": {"told"},
    "sim/measurement/measurements.py": {"heard"},
    "sim/results/measures.py": {"heard"},
    "sim/results/summary.py": {"heard", "told"},
    "sim/venues/move_costs.py": {"heard"},
    "storage/sqlite/store.py": {"shelf"},
}
WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def words_of_names(path: Path) -> Iterator[tuple[str, str]]:
    """Every defined or used name of a module, split into words."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names = [name]
            case ast.AsyncFunctionDef(name=name) | ast.Name(id=name) | ast.arg(arg=name):
                names = [name]
            case ast.Attribute(attr=name):
                names = [name]
            case _:
                names = []
        for name in names:
            for word in WORD.findall(name):
                yield word.lower(), f"{name} (line {getattr(node, 'lineno', 0)})"


def words_of_docstrings(path: Path) -> Iterator[tuple[str, str]]:
    """The words of docstrings and comments, without quoted code."""
    text = path.read_text("utf-8")
    prose = [*re.findall(r'"""(.*?)"""', text, re.DOTALL), *re.findall(r"#.*$", text, re.MULTILINE)]
    for part in prose:
        if re.match(r"\s*(SELECT|INSERT|CREATE|ALTER|DELETE|DROP|PRAGMA)\b", part):
            continue
        for word in re.findall(r"[a-z]+", re.sub(r"`[^`]*`|\"[^\"]*\"", "", part).lower()):
            yield word, part.strip().splitlines()[0] if part.strip() else ""


@pytest.mark.parametrize("package", sorted(p.name for p in SOURCE.iterdir() if p.is_dir()))
def test_names_and_docstrings_use_the_words_of_the_glossary(package: str) -> None:
    found = []
    for path in sorted((SOURCE / package).rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        bad = INSTEAD.keys() - ALLOWED.get(name, set())
        for word in WORD.findall(path.stem):
            if word.lower() in bad:
                found.append(f"{name}: the file's name; say {INSTEAD[word.lower()]!r}")
        for word, where in [*words_of_names(path), *words_of_docstrings(path)]:
            if word in bad:
                found.append(f"{name}: {word!r} in {where[:60]!r}; say {INSTEAD[word]!r}")
    assert not found, "\n".join(sorted(set(found)))


METAPHORS = INSTEAD.keys() - {"told", "heard", "resident", "residents", "letter", "room", "trouble"}
"""Words that have no plain meaning in a test or benchmark either."""


@pytest.mark.parametrize("folder", ["benchmarks", "examples", "tests"])
def test_names_of_tests_and_benchmarks_use_no_metaphors(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}; say {INSTEAD[word]!r}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for word, name in words_of_names(path)
        if word in METAPHORS
    ]
    assert not found, "\n".join(found)


def test_class_names_have_one_meaning() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_bytes()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(path.relative_to(SOURCE).as_posix())
    twice = {name: files for name, files in places.items() if len(files) > 1}
    assert not twice


def test_a_folder_has_a_dozen_modules_or_so() -> None:
    folders = [SOURCE, *(path for path in SOURCE.rglob("*") if path.is_dir())]
    large = {
        folder.relative_to(SOURCE).as_posix(): count
        for folder in folders
        if (count := len([p for p in folder.glob("*.py") if p.name != "__init__.py"])) > 15
    }
    assert not large


@pytest.mark.parametrize(
    ("name", "words"),
    [("FaultInjector", ["fault", "injector"]), ("_hold_DCS_grave", ["hold", "dcs", "grave"])],
)
def test_names_are_split_into_words(name: str, words: list[str]) -> None:
    assert [word.lower() for word in WORD.findall(name)] == words
