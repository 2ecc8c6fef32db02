"""Sets each stage up for each story."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.stage import Stage
from tests.conformance.stages import CROWDS, IN_VIRTUAL_TIME, STAGES


@pytest.fixture(params=STAGES)
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


@pytest.fixture(params=CROWDS)
def crowd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    """A world with several nodes."""
    made = CROWDS[request.param](tmp_path)
    yield made
    made.close()
