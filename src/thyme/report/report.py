"""Writes the report of an evaluation into its warehouse: page, figures, tables.

Entry points: `make_report`, and `write_report` for reports of other evaluations.

Clause: P7.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from thyme.report.figures import draw_figures
from thyme.report.page import render_page
from thyme.report.scorecard import ScorecardLine, make_scorecard
from thyme.report.tables import read_tables

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
    return write_report(
        warehouse / REPORT_FOLDER,
        page=render_page(tables, cards, drawn),
        figures={
            drawing.name if len(drawn) == 1 else f"{drawing.name}-{profile}": drawing.svg
            for profile, some in drawn.items()
            for drawing in some
        },
        tables=tables.tables,
        lines=[line for card in cards for line in card],
    )


def write_report(
    folder: Path,
    *,
    page: str,
    figures: Mapping[str, str],
    tables: Mapping[str, pa.Table],
    lines: list[ScorecardLine],
) -> Report:
    """Writes page, figures (SVG by name) and tables into a folder; replaces an earlier report."""
    draft = folder.with_name(f".{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    try:
        (draft / "figures").mkdir()
        for name, svg in figures.items():
            (draft / "figures" / f"{name}.svg").write_text(svg, encoding="utf-8")
        counts = _write_tables(draft, tables, lines)
        (draft / PAGE_FILE).write_text(page, encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return Report(
        folder=folder,
        page=folder / PAGE_FILE,
        figures=[f"{name}.svg" for name in figures],
        tables=counts,
        lines=lines,
    )


def _write_tables(
    draft: Path, tables: Mapping[str, pa.Table], lines: list[ScorecardLine]
) -> dict[str, int]:
    """Writes the tables behind the figures and the scorecard, as CSV and Parquet."""
    (draft / "tables").mkdir()
    columns = [field.name for field in fields(ScorecardLine)]
    card = pa.table({name: [str(getattr(line, name)) for line in lines] for name in columns})
    counts = {}
    for name, table in {"scorecard": card, **tables}.items():
        order = [(column, "ascending") for column in table.column_names]
        ordered = table if name == "scorecard" else table.sort_by(order)
        pq.write_table(ordered, draft / "tables" / f"{name}.parquet", compression="zstd")
        pa_csv.write_csv(ordered, draft / "tables" / f"{name}.csv")
        counts[name] = ordered.num_rows
    return counts
