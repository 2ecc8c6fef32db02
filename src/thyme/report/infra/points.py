"""Points of an evaluation of Thyme-Infrastructure, as figures and claims read them.

Entry point: `read_points`.
Clause: P7.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import pyarrow as pa
from scipy import stats

from thyme.report.mean_point import MeanPoint
from thyme.report.statistics import CONFIDENCE
from thyme.report.tables import read_stages

METRICS_STAGE = "infra-metrics"
TABLES = ("runs", "measures", "points")


class InfraPoints:
    """All points of an evaluation."""

    def __init__(self, tables: dict[str, pa.Table], notes: dict[str, Any]) -> None:
        self.tables = tables
        self.notes = notes
        self._values: dict[tuple[str, str], float] | None = None
        """The measures of all runs, once they are needed."""
        self._lines: dict[tuple[str, str, str], list[MeanPoint]] = {}
        for row in tables["points"].to_pylist():
            key = row["series"], row["substrate"], row["measure"]
            point = MeanPoint(row["parameter"], row["mean"], row["ci95"] or 0.0, row["runs"])
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

    def line(self, series: str, variant: str, measure: str) -> list[MeanPoint]:
        """The points of one line, by the value that varies; empty if there are none."""
        return self._lines.get((series, variant, measure), [])

    def one(self, series: str, variant: str, measure: str) -> MeanPoint | None:
        """The only point of a line, or its first one; None if there is none."""
        line = self.line(series, variant, measure)
        return line[0] if line else None

    def timeline(self, series: str, variant: str, prefix: str) -> list[MeanPoint]:
        """The points of measures such as `requested_at.3`, by the number after the dot."""
        found = [
            MeanPoint(float(measure[len(prefix) :]), line[0].mean, line[0].ci95, line[0].runs)
            for (its_series, its_variant, measure), line in self._lines.items()
            if (its_series, its_variant) == (series, variant) and measure.startswith(prefix)
        ]
        return sorted(found, key=lambda point: point.x)

    def change(
        self,
        series: str,
        measure: str,
        new: tuple[str, float],
        old: tuple[str, float],
    ) -> MeanPoint | None:
        """By which share a measure changes from one point to another; a point is a variant and the
        value that varies. Runs with the same seed have the same trace, so they are compared in
        pairs. None if there are fewer than two pairs."""
        new_values, old_values = (self._by_seed(series, measure, *each) for each in (new, old))
        changes = [
            new_values[seed] / old_values[seed] - 1
            for seed in sorted(new_values.keys() & old_values.keys())
            if old_values[seed]
        ]
        if len(changes) < 2:
            return None
        mean, sd = fmean(changes), stdev(changes)
        quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(changes) - 1))
        return MeanPoint(new[1], mean, quantile * sd / sqrt(len(changes)), len(changes))

    def _by_seed(self, series: str, measure: str, variant: str, x: float) -> dict[int, float]:
        if self._values is None:
            self._values = {
                (row["run_id"], row["measure"]): row["value"]
                for row in self.tables["measures"].to_pylist()
            }
        return {
            row["repetition"]: self._values[row["run_id"], measure]
            for row in self.tables["runs"].to_pylist()
            if (row["series"], row["substrate"], row["parameter"]) == (series, variant, x)
            and (row["run_id"], measure) in self._values
        }

    def all_of(self, measure: str) -> list[tuple[str, str, MeanPoint]]:
        """Every point of a measure, with its series and variant."""
        return [
            (series, variant, point)
            for (series, variant, its_measure), line in sorted(self._lines.items())
            if its_measure == measure
            for point in line
        ]


def read_points(warehouse: Path) -> InfraPoints:
    """Reads the points that the evaluation wrote."""
    command = "thyme evaluate --preset infra-quick"
    return InfraPoints(*read_stages(warehouse, {METRICS_STAGE: TABLES}, command))
