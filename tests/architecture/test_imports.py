"""The import map: which package may import which. Imports go in one direction."""

from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.architecture.imports import FRONT_DOOR, SOURCE, imports_of, room_behind, rooms_of

UNDER_THE_DRIVERS = {"substrates", "routing", "storage", "wire", "protocol", "query", "model"}

MAY_IMPORT: dict[str, set[str]] = {
    "model": set(),
    "query": {"model"},
    "protocol": {"query", "model"},
    "wire": {"protocol", "query", "model"},
    "storage": {"wire", "protocol", "query", "model"},
    "routing": {"protocol", "query", "model"},
    "substrates": {"routing", "storage", "protocol", "query", "model"},
    "traces": {"query", "model"},
    "sim": UNDER_THE_DRIVERS | {"traces"},
    "transport": {"wire", "protocol", "query", "model"},
    "live": UNDER_THE_DRIVERS | {"transport"},
    "lab": {"transport", "model"},
    "api": {"sim", "live", "substrates", "storage", "wire", "protocol", "query", "model"},
    "daemon": {"api", "live", "transport", *UNDER_THE_DRIVERS, FRONT_DOOR},
    "testing": UNDER_THE_DRIVERS | {"sim"},
    "pipeline": {"sim", "traces", "query", "model"},
    "report": set(),
    "tools": set(),
}
MAY_IMPORT["cli"] = {*MAY_IMPORT, FRONT_DOOR}


def trespasses(package: Path, room: str) -> list[str]:
    """The imports of a package that the map does not allow, one line each."""
    allowed = MAY_IMPORT[room] | {room}
    return [
        f"{found}; {room} may import: {', '.join(sorted(MAY_IMPORT[room])) or 'no other room'}"
        for found in imports_of(package, room)
        if (target := room_behind(found, package)) is not None and target not in allowed
    ]


@pytest.mark.parametrize("room", rooms_of(SOURCE))
def test_a_room_imports_only_the_rooms_below_it(room: str) -> None:
    assert room in MAY_IMPORT, (
        f"src/thyme/{room} is not on the import map: say in MAY_IMPORT "
        "(tests/architecture/test_imports.py) which packages it may import"
    )
    found = trespasses(SOURCE, room)
    assert not found, "\n".join(["imports against the map:", *found])


def test_the_map_has_no_circles() -> None:
    TopologicalSorter({room: below - {FRONT_DOOR} for room, below in MAY_IMPORT.items()}).prepare()


@pytest.mark.parametrize(
    "line",
    [
        "import thyme.sim",
        "import os, thyme.sim.radio.radio as radio",
        "from thyme.sim.radio.radio import Radio",
        "from thyme import sim",
        "from ..sim import World",
        "from .. import sim",
        "def f():\n    from thyme.sim import World",
        "if TYPE_CHECKING:\n    from thyme.sim import World",
        "import importlib\nimportlib.import_module('thyme.sim')",
        "from thyme import Query",
        "import thyme",
    ],
)
def test_an_import_against_the_map_is_caught(tmp_path: Path, line: str) -> None:
    package = a_package(tmp_path, {"query/parser.py": line, "sim/__init__.py": ""})

    [message] = trespasses(package, "query")

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
def test_an_import_along_the_map_passes(tmp_path: Path, line: str) -> None:
    package = a_package(tmp_path, {"query/parser.py": line, "model/__init__.py": ""})

    assert trespasses(package, "query") == []


def test_relative_imports_are_followed_from_nested_packages(tmp_path: Path) -> None:
    files = {"query/deep/__init__.py": "from ...sim import World\nfrom ..parser import parse"}
    package = a_package(tmp_path, files)

    assert len(trespasses(package, "query")) == 1


def test_single_modules_are_rooms_and_the_front_door_is_not(tmp_path: Path) -> None:
    files = {
        "__init__.py": "",
        "__main__.py": "",
        "clock.py": "",
        "query/a.py": "",
        "data/x.txt": "",
    }
    package = a_package(tmp_path, files)

    assert rooms_of(package) == ["clock", "query"]


def a_package(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "thyme"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package
