"""Kept runs: finished runs of a benchmark in a file, so that an interrupted one goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

Figures = TypeVar("Figures", bound=tuple[Any, ...])


class KeptRuns(Generic[Figures]):
    """The finished runs by name, one line of JSON for each; `make` makes the figures of a line."""

    def __init__(self, path: Path, make: Callable[..., Figures]) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.done: dict[str, Figures] = {
            name: make(*values) for name, values in map(json.loads, lines)
        }

    def add(self, name: str, figures: Figures) -> None:
        """Adds a finished run."""
        self.done[name] = figures
        with self._path.open("a") as file:
            file.write(json.dumps([name, figures]) + "\n")
