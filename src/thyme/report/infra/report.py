"""Writes the report of an evaluation of Thyme-Infrastructure: verdicts, figures, tables, a page.

Entry point: `make_infra_report`.
Clause: P7.
"""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections import Counter
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from jinja2 import Environment, FunctionLoader, StrictUndefined

from thyme.report.infra.claims import InfraVerdict, judge_claims
from thyme.report.infra.figures import InfraFigure, draw_figures
from thyme.report.infra.points import InfraPoints, read_points

REPORT_FOLDER, PAGE_FILE = "report-infra", "index.html"
_TEMPLATE = "infra.html.j2"


@dataclass(frozen=True, slots=True)
class InfraReport:
    """A written report."""

    page: Path
    figures: list[str]
    verdicts: list[InfraVerdict]

    def as_json(self) -> dict[str, Any]:
        """Converts the report to JSON values."""
        return {
            "page": str(self.page),
            "figures": self.figures,
            "scorecard": [asdict(verdict) for verdict in self.verdicts],
        }


def make_infra_report(warehouse: Path) -> InfraReport:
    """Draws and writes the report of a warehouse; replaces an earlier one."""
    points = read_points(warehouse)
    verdicts, figures = judge_claims(points), draw_figures(points)
    draft, folder = warehouse / f".{REPORT_FOLDER}.draft", warehouse / REPORT_FOLDER
    shutil.rmtree(draft, ignore_errors=True)
    try:
        _write(draft, points, verdicts, figures)
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return InfraReport(folder / PAGE_FILE, [figure.name for figure in figures], verdicts)


def _write(
    folder: Path, points: InfraPoints, verdicts: list[InfraVerdict], figures: list[InfraFigure]
) -> None:
    (folder / "figures").mkdir(parents=True)
    (folder / "tables").mkdir()
    for figure in figures:
        (folder / "figures" / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
    for name, table in points.tables.items():
        ordered = table.sort_by([(column, "ascending") for column in table.column_names])
        pq.write_table(ordered, folder / "tables" / f"{name}.parquet", compression="zstd")
        pa_csv.write_csv(ordered, folder / "tables" / f"{name}.csv")
    scorecard = [asdict(verdict) for verdict in verdicts]
    (folder / "scorecard.json").write_text(json.dumps(scorecard, indent=1), encoding="utf-8")
    page = _render(points, verdicts, figures)
    (folder / PAGE_FILE).write_text(page, encoding="utf-8")


def _render(points: InfraPoints, verdicts: list[InfraVerdict], figures: list[InfraFigure]) -> str:
    environment = Environment(
        loader=FunctionLoader(_read),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    counts = Counter(verdict.verdict.value for verdict in verdicts)
    return environment.get_template(f"infra/{_TEMPLATE}").render(
        css=_read("page.css"),
        preset=points.notes["preset"],
        runs=points.tables["runs"].num_rows,
        runs_min=points.runs_min,
        nodes=points.nodes,
        counts=dict(counts),
        verdicts=verdicts,
        figures=[(figure, _data_uri(figure.svg)) for figure in figures],
        failures=points.notes["failures"],
        versions=", ".join(f"{name} {value}" for name, value in points.notes["versions"].items()),
    )


def _read(name: str) -> str:
    return files("thyme.report").joinpath(name).read_text(encoding="utf-8")


def _data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()
