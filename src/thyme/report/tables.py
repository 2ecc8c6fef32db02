"""Tables: reads the tables of an evaluation from a warehouse.

Entry point: `read_tables`.

Clauses: P7, P10.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

STAGES: dict[str, tuple[str, ...]] = {
    "metrics": ("runs", "measures", "points", "cell_work"),
    "match": ("trace_counts", "timeline"),
}
OPTIONAL_TABLES = {"match": ("histogram",)}
"""Tables that only an evaluation of imported posts has."""
SUBSTRATES = ("es", "ls", "dcs")
OPERATIONS = ("insert", "delete", "subscribe", "unsubscribe", "retrieve")


class NoTablesError(Exception):
    """A folder without the tables of a finished evaluation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurePoint:
    """A measure at one point: statistics over its runs."""

    x: float
    mean: float
    sd: float | None
    runs: int
    least: float
    most: float


class EvaluationTables:
    """The tables of one evaluation."""

    def __init__(self, tables: dict[str, pa.Table], notes: dict[str, Any]) -> None:
        self.tables = tables
        self.notes = notes
        self._points: dict[tuple[str, ...], list[MeasurePoint]] = {}
        self._nodes: dict[str, set[int]] = {}
        for row in tables["points"].to_pylist():
            key = row["series"], row["profile"], row["substrate"], row["measure"]
            self._nodes.setdefault(row["series"], set()).add(row["nodes"])
            self._points.setdefault(key, []).append(
                MeasurePoint(
                    x=row["parameter"],
                    mean=row["mean"],
                    sd=row["sd"],
                    runs=row["runs"],
                    least=row["least"],
                    most=row["most"],
                )
            )
        for points in self._points.values():
            points.sort(key=lambda point: point.x)

    @property
    def profiles(self) -> list[str]:
        """The profiles of the runs."""
        return sorted(set(self.tables["runs"].column("profile").to_pylist()))

    def largest_nodes(self, series: str) -> int | None:
        """Size of the largest network of a series; None if the series was not run."""
        return max(self._nodes[series]) if series in self._nodes else None

    def points(self, series: str, profile: str, substrate: str, measure: str) -> list[MeasurePoint]:
        """The points of a measure in a series, sorted by x; empty if there are none."""
        return self._points.get((series, profile, substrate, measure), [])

    def point_at(
        self, series: str, profile: str, substrate: str, measure: str, x: float
    ) -> MeasurePoint | None:
        """The point of a measure at `x`; None if there is none."""
        for point in self.points(series, profile, substrate, measure):
            if point.x == x:
                return point
        return None

    def run_values(
        self, series: str, profile: str, substrate: str, measure: str, x: float
    ) -> list[float]:
        """The values of a measure in the runs of one point."""
        wanted = series, profile, substrate, x
        runs = {
            row["run_id"]
            for row in self.table_rows("runs")
            if (row["series"], row["profile"], row["substrate"], row["parameter"]) == wanted
        }
        return [
            row["value"]
            for row in self.table_rows("measures")
            if row["measure"] == measure and row["run_id"] in runs
        ]

    def x_values(self, series: str, profile: str) -> list[float]:
        """The x values of a series."""
        return sorted(
            {
                point.x
                for (kind, its_profile, *_), points in self._points.items()
                if (kind, its_profile) == (series, profile)
                for point in points
            }
        )

    def table_rows(self, name: str) -> list[dict[str, Any]]:
        """All rows of a table."""
        found: list[dict[str, Any]] = self.tables[name].to_pylist()
        return found


def read_tables(warehouse: Path) -> EvaluationTables:
    """Reads the tables of the evaluation in a warehouse."""
    return EvaluationTables(*read_stages(warehouse, STAGES))


def read_stages(
    warehouse: Path, stages: Mapping[str, Sequence[str]], command: str = "thyme evaluate"
) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    """Reads tables of a warehouse by stage, and the notes of the stages. `command` makes them."""
    tables: dict[str, pa.Table] = {}
    notes: dict[str, Any] = {}
    for stage, names in stages.items():
        manifests = sorted((warehouse / stage / "manifests").glob("[0-9]*.json"))
        if not manifests:
            raise NoTablesError(
                f"{warehouse} has no finished evaluation: run {command} --out {warehouse}"
            )
        manifest = json.loads(manifests[-1].read_bytes())
        present = (name for name in OPTIONAL_TABLES.get(stage, ()) if name in manifest["tables"])
        for name in (*names, *present):
            files = (each["path"] for each in manifest["tables"][name]["files"])
            tables[name] = _read(warehouse / stage / file for file in files)
        notes |= manifest["notes"] | {"versions": manifest["versions"]}
    return tables, notes


def _read(files: Iterable[Path]) -> pa.Table:
    return pa.concat_tables(pq.read_table(file) for file in files)
