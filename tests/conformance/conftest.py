"""Sets up each environment for each conformance test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.environment import Environment
from tests.conformance.environments import (
    CROWDS,
    ENVIRONMENTS,
    IN_VIRTUAL_TIME,
    NOT_BY_ENCOUNTERS,
)
from thyme.model.errors import UnsupportedError

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects most conformance tests on sockets: those with node processes, and those that need
    one node only. `-m slow` or `-k live` runs them all. The hook sees the items of all folders."""
    if config.option.markexpr or "live" in config.option.keyword:
        return
    apart = [item for item in items if _takes_long(item)]
    config.hook.pytest_deselected(items=apart)
    items[:] = [item for item in items if item not in apart]


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Skips stories that encounters cannot tell: those listed, and those that need an operation
    which a world of encounters refuses by name (U10)."""
    by_encounters = "MobUser" in pyfuncitem.name
    reason = NOT_BY_ENCOUNTERS.get(pyfuncitem.originalname) if by_encounters else None
    if reason is not None:
        pytest.skip(reason)
    try:
        return (yield)
    except UnsupportedError as error:
        if not by_encounters:
            raise
        pytest.skip(f"refused by encounters: {error}")


def _takes_long(item: pytest.Item) -> bool:
    if HERE not in item.path.parents or not isinstance(item, pytest.Function):
        return False
    env = item.callspec.id if hasattr(item, "callspec") else ""
    several_nodes = {"crowd", "crowd_without_radio"} & set(item.fixturenames)
    return "live" in env and ("processes" in env or not several_nodes)


def marked(environments: Iterable[str]) -> list[Any]:
    """The names of the environments; those on sockets are slow, since they run in real time."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=slow) if "live" in name else name for name in environments]


@pytest.fixture(params=marked(ENVIRONMENTS))
def env(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment]:
    """An environment of any kind."""
    made = ENVIRONMENTS[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture(params=IN_VIRTUAL_TIME)
def in_virtual_time(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment]:
    """An environment in virtual time, for long tests."""
    made = ENVIRONMENTS[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture(params=marked(name for name in CROWDS if "radio" not in name))
def crowd_without_radio(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment]:
    """An environment with several nodes and a fast network."""
    made = CROWDS[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture(params=marked(CROWDS))
def crowd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Environment]:
    """An environment with several nodes."""
    made = CROWDS[request.param](tmp_path)
    yield made
    made.close()
