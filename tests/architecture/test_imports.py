"""Import rules: docs/architecture.md says which package may import which; the code obeys."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture.imports import (
    PAGE,
    PUBLIC_API,
    ROOT,
    SOURCE,
    imported_package,
    imported_part,
    imports_of,
    packages_of,
    rules_of_page,
    section_of_page,
    sub_packages_of,
)

PACKAGES = rules_of_page("Packages")
SUB_PACKAGES = rules_of_page("Sub-packages")
RULES_OF_EXAMPLE = {"query": {"model"}, "model": set[str](), "sim": {"model"}}


def violations(source: Path, package: str, rules: dict[str, set[str]]) -> list[str]:
    """Imports of a package that the rules do not allow, one line each."""
    allowed = rules[package] | {package}
    return [
        f"{found}; {package} may import: {', '.join(sorted(rules[package])) or 'no other package'}"
        for found in imports_of(source, package)
        if (target := imported_package(found, source)) is not None and target not in allowed
    ]


def inner_violations(source: Path, part: str, rules: dict[str, set[str]]) -> list[str]:
    """Imports of a sub-package from other parts of its package that the rules do not allow."""
    package = part.partition(".")[0]
    allowed = rules[part] | {part} | {inner for inner in rules if inner.startswith(part + ".")}
    return [
        f"{found}; {part} may import: {', '.join(sorted(rules[part])) or 'no other part'}"
        for found in imports_of(source, part)
        if (target := imported_part(found, source, package)) is not None and target not in allowed
    ]


@pytest.mark.parametrize("package", packages_of(SOURCE))
def test_a_package_imports_only_what_the_page_allows(package: str) -> None:
    assert package in PACKAGES, f"docs/architecture.md does not list the package {package}"
    found = violations(SOURCE, package, PACKAGES)
    assert not found, "\n".join(["imports against docs/architecture.md:", *found])


@pytest.mark.parametrize("part", sub_packages_of(SOURCE))
def test_a_sub_package_imports_only_what_the_page_allows(part: str) -> None:
    assert part in SUB_PACKAGES, f"docs/architecture.md does not list the sub-package {part}"
    found = inner_violations(SOURCE, part, SUB_PACKAGES)
    assert not found, "\n".join(["imports against docs/architecture.md:", *found])


def test_the_page_lists_only_what_exists() -> None:
    assert sorted(PACKAGES) == packages_of(SOURCE)
    assert sorted(SUB_PACKAGES) == sub_packages_of(SOURCE)


@pytest.mark.parametrize("package", packages_of(SOURCE))
def test_the_page_allows_only_what_is_needed(package: str) -> None:
    used = {imported_package(found, SOURCE) for found in imports_of(SOURCE, package)}
    assert PACKAGES[package] <= used, "the page allows imports that nobody makes"


def test_packages_do_not_import_in_circles() -> None:
    TopologicalSorter({name: below - {PUBLIC_API} for name, below in PACKAGES.items()}).prepare()


def test_sub_packages_do_not_import_in_circles() -> None:
    siblings = {
        name: {other for other in below if "." in other and not name.startswith(other + ".")}
        for name, below in SUB_PACKAGES.items()
    }
    TopologicalSorter(siblings).prepare()


def test_every_file_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`((?:src|tests)/[\w./-]+)`", PAGE.read_text("utf-8")))
    assert len(named) > 30
    assert [file for file in sorted(named) if not (ROOT / file).exists()] == []


def test_every_place_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(src/[\w./]+)`: `(\w+)`", section_of_page("Where is …?"))
    assert len(named) > 15
    places = [
        (file, name)
        for file, name in named
        if not re.search(rf"^(?:class|def) {name}\b", (ROOT / file).read_text(), re.MULTILINE)
    ]
    assert places == []


@pytest.mark.parametrize(("flow", "files_max"), [("An insert", 12), ("A task of a sweep", 10)])
def test_a_flow_is_understood_from_few_files(flow: str, files_max: int) -> None:
    steps = section_of_page(flow)
    files = re.findall(r"^\| \d+ \| `(src/[\w./]+)` \|", steps, re.MULTILINE)
    assert 0 < len(files) <= files_max


@pytest.mark.parametrize(
    "line",
    [
        "import thyme.sim",
        "import os, thyme.sim.radio as radio",
        "from thyme.sim.radio import Radio",
        "from thyme import sim",
        "from ..sim import Radio",
        "from .. import sim",
        "def f():\n    from thyme.sim import Radio",
        "if TYPE_CHECKING:\n    from thyme.sim import Radio",
        "import importlib\nimportlib.import_module('thyme.sim')",
        "from thyme import Query",
        "import thyme",
    ],
)
def test_a_forbidden_import_is_found(tmp_path: Path, line: str) -> None:
    source = a_source_tree(tmp_path, {"query/parser.py": line, "sim/__init__.py": ""})

    [message] = violations(source, "query", RULES_OF_EXAMPLE)

    assert message.startswith("thyme/query/parser.py:")
    assert message.endswith("query may import: model")


@pytest.mark.parametrize(
    "line",
    [
        "from thyme.model import Tag",
        "from ..model.tags import Tag",
        "from .. import model",
        "from . import lexer",
        "from .lexer import Lexer",
        "from thyme.query.lexer import Lexer",
        "import simulation, msgspec",
        "# import thyme.sim",
    ],
)
def test_an_allowed_import_passes(tmp_path: Path, line: str) -> None:
    source = a_source_tree(tmp_path, {"query/parser.py": line, "model/__init__.py": ""})

    assert violations(source, "query", RULES_OF_EXAMPLE) == []


def test_relative_imports_are_followed_from_nested_packages(tmp_path: Path) -> None:
    files = {"query/deep/__init__.py": "from ...sim import Radio\nfrom ..parser import parse"}
    source = a_source_tree(tmp_path, files)

    assert len(violations(source, "query", RULES_OF_EXAMPLE)) == 1


def test_imports_between_parts_of_a_package_are_told_apart(tmp_path: Path) -> None:
    files = {
        "sim/radio/__init__.py": "",
        "sim/radio/mac.py": "from thyme.sim.faults import churn\nfrom thyme.sim.radio import phy",
        "sim/faults/__init__.py": "",
        "sim/faults/churn.py": "from thyme.sim.run import Run\nfrom thyme.sim.radio.mac import Mac",
    }
    source = a_source_tree(tmp_path, files)

    rules = {"sim.radio": set[str](), "sim.faults": {"sim.radio"}}
    assert sub_packages_of(source) == ["sim.faults", "sim.radio"]
    assert len(inner_violations(source, "sim.radio", rules)) == 1
    assert len(inner_violations(source, "sim.faults", rules)) == 1
    assert (
        inner_violations(source, "sim.faults", {**rules, "sim.faults": {"sim", "sim.radio"}}) == []
    )


def test_single_modules_are_packages_and_the_public_api_is_not(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "__main__.py": "",
        "clock.py": "",
        "query/a.py": "",
        "data/x.txt": "",
    }
    source = a_source_tree(tmp_path, files)

    assert packages_of(source) == ["clock", "query"]


def test_rules_are_read_from_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "## Packages\n\n| `a` | purpose | – |\n| `b` | other | `a`, `c.d` |\n\n## Next\n"
    )

    assert rules_of_page("Packages", page) == {"a": set(), "b": {"a", "c.d"}}


def a_source_tree(folder: Path, files: dict[str, str]) -> Path:
    source = folder / "thyme"
    for name, text in files.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return source
