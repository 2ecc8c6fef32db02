"""Writes the report of an evaluation of Thyme-Infrastructure: verdicts, figures, tables, a page.

Entry point: `make_infra_report`.
Clause: P7.
"""

from __future__ import annotations

from pathlib import Path

from thyme.report.infra.claims import judge_claims
from thyme.report.infra.figures import InfraFigure, draw_figures
from thyme.report.infra.points import InfraPoints, read_points
from thyme.report.page import STYLE, make_tiles, page_environment, read_resource
from thyme.report.report import Report, write_report
from thyme.report.scorecard import ScorecardLine

REPORT_FOLDER, TEMPLATE = "report-infra", "infra.html.j2"


def make_infra_report(warehouse: Path) -> Report:
    """Draws and writes the report of a warehouse; replaces an earlier one."""
    points = read_points(warehouse)
    lines, figures = judge_claims(points), draw_figures(points)
    return write_report(
        warehouse / REPORT_FOLDER,
        page=_render(points, lines, figures),
        figures={figure.name: figure.svg for figure in figures},
        tables=points.tables,
        lines=lines,
    )


def _render(points: InfraPoints, lines: list[ScorecardLine], figures: list[InfraFigure]) -> str:
    notes, runs = points.notes, points.tables["runs"].num_rows
    return (
        page_environment()
        .get_template(TEMPLATE)
        .render(
            css=read_resource(STYLE),
            preset=notes["preset"],
            runs=runs,
            runs_min=points.runs_min,
            nodes=points.nodes,
            tiles=list(make_tiles(runs, len(notes["failures"]), lines)),
            lines=lines,
            figures=figures,
            failures=notes["failures"],
            versions=", ".join(f"{name} {value}" for name, value in notes["versions"].items()),
        )
    )
