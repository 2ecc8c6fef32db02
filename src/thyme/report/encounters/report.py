"""Writes the report of an evaluation of encounters: verdicts, figures and a page.

Entry point: `make_encounter_report`.
Clause: P7.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape
from pathlib import Path
from typing import Any

from thyme.report.encounters.claims import ClaimVerdict, judge_claims
from thyme.report.encounters.figures import EncounterFigure, draw_figures
from thyme.report.encounters.points import EncounterPoints, read_points

REPORT_FOLDER, PAGE_FILE = "report-encounters", "index.html"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #22303c; max-width: 70rem; margin: 2rem auto;
  padding: 0 1rem }
table { border-collapse: collapse; width: 100% } td, th { border-bottom: 1px solid #dfe5ea;
  padding: .4rem .6rem; text-align: left; vertical-align: top }
figure { display: inline-block; margin: 1rem 1rem 0 0 } figcaption { font-size: .9rem }
svg { max-width: 100%; height: auto }
"""


@dataclass(frozen=True, slots=True)
class EncounterReport:
    """A written report."""

    page: Path
    figures: list[str]
    verdicts: list[ClaimVerdict]

    def as_json(self) -> dict[str, Any]:
        """Converts the report to JSON values."""
        return {
            "page": str(self.page),
            "figures": self.figures,
            "scorecard": [asdict(verdict) for verdict in self.verdicts],
        }


def make_encounter_report(warehouse: Path) -> EncounterReport:
    """Draws and writes the report of a warehouse; replaces an earlier one."""
    points = read_points(warehouse)
    verdicts, figures = judge_claims(points), draw_figures(points)
    folder = warehouse / REPORT_FOLDER
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    for figure in figures:
        (folder / "figures" / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")
    scorecard = [asdict(verdict) for verdict in verdicts]
    (folder / "scorecard.json").write_text(json.dumps(scorecard, indent=1), encoding="utf-8")
    page = folder / PAGE_FILE
    page.write_text(_render(points, verdicts, figures), encoding="utf-8")
    return EncounterReport(page, [figure.name for figure in figures], verdicts)


def _render(
    points: EncounterPoints, verdicts: list[ClaimVerdict], figures: list[EncounterFigure]
) -> str:
    rows = "".join(
        "<tr>"
        + "".join(
            f"<td>{escape(text)}</td>"
            for text in (
                verdict.claim,
                verdict.source,
                verdict.paper,
                verdict.ours + (f" ({verdict.reason})" if verdict.reason else ""),
                verdict.verdict,
            )
        )
        + "</tr>"
        for verdict in verdicts
    )
    drawings = "".join(
        f"<figure>{figure.svg[figure.svg.index('<svg') :]}"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
        for figure in figures
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Encounters</title>"
        f"<style>{_STYLE}</style><h1>MobUser, MFPS and RAPID</h1>"
        f"<p>Preset {escape(points.preset)}; at least {points.runs_min} runs per point; values are "
        "means with the half width of their 95 % confidence interval.</p>"
        "<table><tr><th>claim<th>source<th>paper<th>ours<th>verdict</tr>"
        f"{rows}</table>{drawings}</html>\n"
    )
