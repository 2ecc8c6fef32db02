"""Points of an evaluation of encounters, as figures and claims read them.

Entry point: `read_points`.
Clause: P7.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from thyme.report.mean_point import MeanPoint
from thyme.report.tables import read_stages

STAGES: dict[str, tuple[str, ...]] = {"encounter_metrics": ("runs", "measures", "points")}
PROTOCOLS = ("mobuser", "mfps", "rapid")
NAMES = {"mobuser": "MobUser", "mfps": "MFPS", "rapid": "RAPID"}


class EncounterPoints:
    """All points of an evaluation."""

    def __init__(self, tables: dict[str, pa.Table], notes: dict[str, Any]) -> None:
        self.tables = tables
        self.notes = notes
        self._rows: list[dict[str, Any]] = tables["points"].to_pylist()

    @property
    def runs_min(self) -> int:
        """The smallest number of runs of a point."""
        return min((int(row["runs"]) for row in self._rows), default=0)

    def line(self, series: str, protocol: str, measure: str) -> list[MeanPoint]:
        """The points of one line, by parameter."""
        return sorted(
            (
                MeanPoint(row["parameter"], row["mean"], row["ci95"] or 0.0, row["runs"])
                for row in self._rows
                if (row["series"], row["substrate"], row["measure"]) == (series, protocol, measure)
            ),
            key=lambda point: point.x,
        )

    def timeline(self, series: str, protocol: str, parameter: float) -> list[MeanPoint]:
        """Reliability over time at one point of a series; the parameter is the time in seconds."""
        prefix = "reliability_at."
        return sorted(
            (
                MeanPoint(float(row["measure"][len(prefix) :]), row["mean"], row["ci95"] or 0.0, 0)
                for row in self._rows
                if row["measure"].startswith(prefix)
                and (row["series"], row["substrate"], row["parameter"])
                == (series, protocol, parameter)
            ),
            key=lambda point: point.x,
        )

    def parameters(self, series: str) -> list[float]:
        """The values that vary in a series."""
        return sorted({row["parameter"] for row in self._rows if row["series"] == series})

    def has(self, series: str) -> bool:
        """Whether a series was run with all protocols."""
        found = {row["substrate"] for row in self._rows if row["series"] == series}
        return found.issuperset(PROTOCOLS)


def read_points(warehouse: Path) -> EncounterPoints:
    """Reads the points that the evaluation wrote."""
    tables, notes = read_stages(warehouse, STAGES)
    return EncounterPoints(tables, notes)
