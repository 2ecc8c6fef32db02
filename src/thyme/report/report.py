"""Writes the report of an evaluation into its warehouse: page, figures, tables.

Entry point: `make_report`.

Clause: P7.
"""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from thyme.report.figures import Drawing, draw_figures
from thyme.report.page import render_page
from thyme.report.scorecard import ScorecardLine, make_scorecard
from thyme.report.tables import EvaluationTables, read_tables

REPORT_FOLDER, PAGE_FILE = "report", "index.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A written report."""

    folder: Path
    page: Path
    figures: list[str]
    tables: dict[str, int]
    """Number of rows by table."""
    lines: list[ScorecardLine]

    def as_json(self) -> dict[str, Any]:
        """Converts the report to JSON values."""
        return {
            "page": str(self.page),
            "figures": self.figures,
            "tables": self.tables,
            "scorecard": [asdict(line) for line in self.lines],
        }


def make_report(warehouse: Path) -> Report:
    """Draws and writes the report of a warehouse; replaces an earlier one."""
    tables = read_tables(warehouse)
    cards = [make_scorecard(tables, profile) for profile in tables.profiles]
    drawn = {profile: list(draw_figures(tables, profile)) for profile in tables.profiles}
    draft = warehouse / f".{REPORT_FOLDER}.draft"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        names = _write_figures(draft, drawn)
        lines = [line for card in cards for line in card]
        counts = _write_tables(draft, tables, lines)
        (draft / PAGE_FILE).write_text(render_page(tables, cards, drawn), encoding="utf-8")
        folder = warehouse / REPORT_FOLDER
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Report(folder=folder, page=folder / PAGE_FILE, figures=names, tables=counts, lines=lines)


def _write_figures(draft: Path, drawn: dict[str, list[Drawing]]) -> list[str]:
    (draft / "figures").mkdir()
    names = []
    for profile, some in drawn.items():
        for drawing in some:
            name = f"{drawing.name}.svg" if len(drawn) == 1 else f"{drawing.name}-{profile}.svg"
            (draft / "figures" / name).write_text(drawing.svg, encoding="utf-8")
            names.append(name)
    return names


def _write_tables(
    draft: Path, tables: EvaluationTables, lines: list[ScorecardLine]
) -> dict[str, int]:
    """Writes the tables behind the figures and the scorecard, as CSV and Parquet."""
    (draft / "tables").mkdir()
    columns = [field.name for field in fields(ScorecardLine)]
    card = pa.table({name: [str(getattr(line, name)) for line in lines] for name in columns})
    counts = {}
    for name, table in {"scorecard": card, **tables.tables}.items():
        order = [(column, "ascending") for column in table.column_names]
        ordered = table if name == "scorecard" else table.sort_by(order)
        pq.write_table(ordered, draft / "tables" / f"{name}.parquet", compression="zstd")
        pa_csv.write_csv(ordered, draft / "tables" / f"{name}.csv")
        counts[name] = ordered.num_rows
    return counts
