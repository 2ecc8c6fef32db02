"""Purity: the protocol gets time, randomness, files, sockets and threads from a driver."""

from pathlib import Path

import pytest

from tests.architecture.imports import SOURCE, Import, imports_of

PURE_ROOMS = ["model", "query", "protocol", "routing", "substrates", "wire"]

CLOCK = "take `now_us` as an argument"
CHANCE = "take a `Random` as an argument"
DRIVER = "ask for it with an action; a driver in `sim` or `live` carries it out"
STORE = "leave files to `storage` and the drivers"

OUTSIDE_WORLD = {
    "asyncio": DRIVER,
    "concurrent": DRIVER,
    "datetime": CLOCK,
    "multiprocessing": DRIVER,
    "os": STORE,
    "pathlib": STORE,
    "random": f"{CHANCE} (`from random import Random` is fine)",
    "secrets": CHANCE,
    "select": DRIVER,
    "selectors": DRIVER,
    "socket": DRIVER,
    "sqlite3": STORE,
    "subprocess": DRIVER,
    "threading": DRIVER,
    "time": CLOCK,
    "uuid": CHANCE,
}
# Conversions between instants and datetimes are in the model; it does not read the clock.
EXCUSED = {("model", "datetime")}


def impurities(package: Path, room: str) -> list[str]:
    """The impure imports of a pure package, one line each, with the replacement."""
    return [
        f"{found}: {OUTSIDE_WORLD[module]}"
        for found in imports_of(package, room)
        if (module := found.module.split(".")[0]) in OUTSIDE_WORLD
        and (room, module) not in EXCUSED
        and not _names_the_type_of_a_generator(found)
    ]


def _names_the_type_of_a_generator(found: Import) -> bool:
    return (found.module, found.name) == ("random", "Random")


@pytest.mark.parametrize("room", [room for room in PURE_ROOMS if (SOURCE / room).is_dir()])
def test_a_pure_room_leaves_the_world_outside(room: str) -> None:
    found = impurities(SOURCE, room)
    assert not found, "\n".join([f"{room} is a pure room, but:", *found])


@pytest.mark.parametrize("module", OUTSIDE_WORLD)
@pytest.mark.parametrize(
    "form", ["import {}", "from {} import x", "def f():\n    import {}.x as y"]
)
def test_an_import_of_the_world_is_caught(tmp_path: Path, module: str, form: str) -> None:
    a_module(tmp_path, "query", form.format(module))

    [message] = impurities(tmp_path / "thyme", "query")

    assert message.endswith(OUTSIDE_WORLD[module])


def test_of_random_only_the_type_may_be_imported(tmp_path: Path) -> None:
    a_module(tmp_path, "query", "from random import Random, choice")

    [message] = impurities(tmp_path / "thyme", "query")

    assert message.startswith("thyme/query/module.py:1 imports random.choice: ")


def test_only_the_model_may_know_datetimes(tmp_path: Path) -> None:
    a_module(tmp_path, "model", "from datetime import datetime\nimport time")

    [message] = impurities(tmp_path / "thyme", "model")

    assert message.startswith("thyme/model/module.py:2 imports time: ")


def test_its_own_modules_may_be_called_like_the_worlds(tmp_path: Path) -> None:
    a_module(tmp_path, "query", "from .time import Frame\nfrom thyme.model.time import Instant")

    assert impurities(tmp_path / "thyme", "query") == []


def a_module(folder: Path, room: str, text: str) -> None:
    path = folder / "thyme" / room / "module.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
