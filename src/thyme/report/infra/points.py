"""Points of an evaluation of Thyme-Infrastructure, as figures and claims read them.

Entry point: `read_points`.
Clause: P7.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from thyme.report.tables import NoTablesError

METRICS_STAGE = "infra-metrics"
TABLES = ("runs", "measures", "points")


@dataclass(frozen=True, slots=True)
class InfraPoint:
    """A mean over seeds, with the half width of its 95 % confidence interval."""

    x: float
    mean: float
    ci95: float
    runs: int

    @property
    def low(self) -> float:
        """Lower end of the confidence interval."""
        return self.mean - self.ci95

    @property
    def high(self) -> float:
        """Upper end of the confidence interval."""
        return self.mean + self.ci95


class InfraPoints:
    """All points of an evaluation."""

    def __init__(self, tables: dict[str, pa.Table], notes: dict[str, Any]) -> None:
        self.tables = tables
        self.notes = notes
        self._lines: dict[tuple[str, str, str], list[InfraPoint]] = {}
        for row in tables["points"].to_pylist():
            key = row["series"], row["substrate"], row["measure"]
            point = InfraPoint(row["parameter"], row["mean"], row["ci95"] or 0.0, row["runs"])
            self._lines.setdefault(key, []).append(point)
        for line in self._lines.values():
            line.sort(key=lambda point: point.x)

    @property
    def runs_min(self) -> int:
        """The smallest number of runs of a point that has more than one, else 1."""
        return min((point.runs for line in self._lines.values() for point in line), default=0)

    @property
    def nodes(self) -> dict[str, int]:
        """The number of mobile nodes of each series."""
        rows = self.tables["runs"].to_pylist()
        return {row["series"]: row["nodes"] for row in rows}

    def line(self, series: str, variant: str, measure: str) -> list[InfraPoint]:
        """The points of one line, by the value that varies; empty if there are none."""
        return self._lines.get((series, variant, measure), [])

    def one(self, series: str, variant: str, measure: str) -> InfraPoint | None:
        """The only point of a line, or its first one; None if there is none."""
        line = self.line(series, variant, measure)
        return line[0] if line else None

    def timeline(self, series: str, variant: str, prefix: str) -> list[InfraPoint]:
        """The points of measures such as `requested_at.3`, by the number after the dot."""
        found = [
            InfraPoint(float(measure[len(prefix) :]), line[0].mean, line[0].ci95, line[0].runs)
            for (its_series, its_variant, measure), line in self._lines.items()
            if (its_series, its_variant) == (series, variant) and measure.startswith(prefix)
        ]
        return sorted(found, key=lambda point: point.x)

    def all_of(self, measure: str) -> list[tuple[str, str, InfraPoint]]:
        """Every point of a measure, with its series and variant."""
        return [
            (series, variant, point)
            for (series, variant, its_measure), line in sorted(self._lines.items())
            if its_measure == measure
            for point in line
        ]


def read_points(warehouse: Path) -> InfraPoints:
    """Reads the points that the evaluation wrote."""
    manifests = sorted((warehouse / METRICS_STAGE / "manifests").glob("[0-9]*.json"))
    if not manifests:
        raise NoTablesError(
            f"{warehouse} has no finished evaluation: run thyme evaluate --preset infra-quick "
            f"--out {warehouse}"
        )
    manifest = json.loads(manifests[-1].read_bytes())
    tables = {
        name: pa.concat_tables(
            pq.read_table(warehouse / METRICS_STAGE / file["path"])
            for file in manifest["tables"][name]["files"]
        )
        for name in TABLES
    }
    return InfraPoints(tables, manifest["notes"] | {"versions": manifest["versions"]})
