"""Sets each stage up for each story."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.stage import Stage
from tests.conformance.stages import CROWDS, IN_VIRTUAL_TIME, STAGES


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """On sockets only the stories of crowds are told, and none with processes, unless all are
    asked for: -m slow, or -k live."""
    if config.option.markexpr or "live" in config.option.keyword:
        return
    apart = [item for item in items if _takes_long(item)]
    config.hook.pytest_deselected(items=apart)
    items[:] = [item for item in items if item not in apart]


def _takes_long(item: pytest.Item) -> bool:
    fixtures = item.fixturenames if isinstance(item, pytest.Function) else []
    return "live" in item.name and ("processes" in item.name or "crowd" not in fixtures)


def marked(stages: Iterable[str]) -> list[Any]:
    """The names of stages; on sockets, time passes as it does for people."""
    slow = pytest.mark.slow
    return [pytest.param(name, marks=slow) if "live" in name else name for name in stages]


@pytest.fixture(params=marked(STAGES))
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """Any world."""
    made = STAGES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture(params=IN_VIRTUAL_TIME)
def in_virtual_time(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A world for long stories."""
    made = STAGES[request.param](tmp_path)
    yield made
    made.close()


@pytest.fixture(params=marked(CROWDS))
def crowd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A world with several nodes."""
    made = CROWDS[request.param](tmp_path)
    yield made
    made.close()
