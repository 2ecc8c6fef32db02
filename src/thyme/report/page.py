"""The page: renders the report as one HTML file, for screens, phones and print.

The file loads nothing: figures are embedded, fonts are those of the browser. The text and the
structure are in the template `page.html.j2`, which escapes every value; this module prepares the
values. Entry point: `render_page`.
Clause: P7.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from thyme.report.claims.finding import CHURN_NODES, SUBSTRATE_NAMES
from thyme.report.figures import Drawing
from thyme.report.scorecard import ScorecardLine, Verdict
from thyme.report.tables import SUBSTRATES, EvaluationTables, MeasurePoint

TEMPLATE, STYLE = "page.html.j2", "page.css"
TILES = {
    Verdict.AGREES: "claims agree",
    Verdict.PARTLY: "claims agree in part",
    Verdict.DIFFERS: "claims differ",
    Verdict.OTHER_SIZE: "claims about other sizes: not judged",
    Verdict.NOT_MEASURED: "claims not measured",
}
GROUPS = (
    ("8", "The analytical model", "Messages by the formulas of section 8, and as simulated."),
    ("9", "The trace", "Operations of users: from the synthetic match, or from imported posts."),
    ("10", "Lower layers, without failures", "Traffic and interference by network size."),
    ("11", "Operations, without failures", "Success and latency by network size; notifications "
     "are compared with a perfect execution."),
    ("12", "Crashes", "A share of the publishers crashes permanently in the middle of the run."),
    ("13", "Transient churn in LS", "Some nodes alternate between 120 s up and 60 s down."),
    ("14", "Transient churn", "The point at 0 % is the static run of the same size."),
    ("15", "Mobility", "60 % of the nodes walk, with pauses of 120 s."),
)  # fmt: skip
FORMULAS = {
    "insert": ("2Dᵢ√n", "–", "2Dᵢ√n + 2Dᵢc"),
    "retrieve": ("2Dᵣ√n", "2Dᵣ√n", "3Dᵣ√n + Dᵣc"),
    "subscribe": ("2S√n", "Sn", "2S√n + Sc"),
    "notification": ("Dₛ√n", "Dₛ√n", "Dₛ√n"),
    "hot_spot": ("Dᵢ + Dᵣ + S + Dₛ", "Dᵣ + S + Dₛ", "Dᵢ + Dᵣ + S + Dₛ"),
}


def render_page(
    tables: EvaluationTables, cards: Sequence[list[ScorecardLine]], drawn: dict[str, list[Drawing]]
) -> str:
    """Renders the whole page; `cards` and `drawn` have one part per profile."""
    notes = tables.notes
    runs = [point["runs"] for point in tables.table_rows("points")]
    return (
        page_environment()
        .get_template(TEMPLATE)
        .render(
            css=read_resource(STYLE),
            preset=notes["preset"],
            sizes=sorted({row["nodes"] for row in tables.table_rows("runs")}),
            operations_s=notes["operations_s"],
            window=_window_words(notes),
            left_out=notes.get("left_out", []),
            small_nodes=_small_nodes(tables),
            churn_nodes=CHURN_NODES,
            tiles=list(_tiles(tables, cards)),
            cards=[
                {"suffix": _profile_suffix(card[0].profile, cards), "lines": card} for card in cards
            ],
            groups=[
                group
                for profile, drawings in drawn.items()
                for group in _groups(tables, profile, drawings, _profile_suffix(profile, cards))
            ],
            failures=notes["failures"],
            runs_least=min(runs),
            runs_most=max(runs),
            versions=", ".join(f"{name} {value}" for name, value in notes["versions"].items()),
        )
    )


def page_environment() -> Environment:
    """Templates of this package, with autoescape."""
    made = Environment(
        loader=FunctionLoader(read_resource),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["join_and"] = join_and
    made.filters["data_uri"] = _data_uri
    return made


def read_resource(name: str) -> str:
    """A text file of this package."""
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _profile_suffix(profile: str, cards: Sequence[list[ScorecardLine]]) -> str:
    return f", profile {profile}" if len(cards) > 1 or profile != "paper" else ""


def _window_words(notes: dict[str, Any]) -> dict[str, str] | None:
    """The window of imported posts in words; None for the synthetic match."""
    window = notes.get("window")
    if window is None:
        return None
    timetable = window["timetable"]
    start_s, length_s = timetable["starts_us"] // 1_000_000, timetable["length_s"]
    return {
        "start": f"{datetime.fromtimestamp(start_s, UTC):%Y-%m-%d %H:%M}",
        "end": f"{datetime.fromtimestamp(start_s + length_s, UTC):%Y-%m-%d %H:%M} UTC",
        "hours": f"{length_s / 3_600:.4g}",
        "speed": f"{length_s / notes['operations_s']:.3g}",
        "tagged": f"{window['window_tagged']:,}",
        "users": f"{window['window_users']:,}",
        "one_in": f"{notes['one_in']:,}" if notes.get("one_in", 1) > 1 else "",
    }


def _small_nodes(tables: EvaluationTables) -> list[int]:
    """Sizes of the series with failures that are too small to check the claims of the papers."""
    found = (tables.largest_nodes(series) for series in ("crash", "transient", "mobile"))
    return sorted({each for each in found if each is not None and each != CHURN_NODES})


def _tiles(
    tables: EvaluationTables, cards: Sequence[list[ScorecardLine]]
) -> Iterator[dict[str, str]]:
    lines = [line for card in cards for line in card]
    return make_tiles(tables.tables["runs"].num_rows, len(tables.notes["failures"]), lines)


def make_tiles(runs: int, failed: int, lines: Sequence[ScorecardLine]) -> Iterator[dict[str, str]]:
    """The numbers at the top of a page: runs, and claims by verdict."""
    yield {"value": f"{runs:,}", "words": "runs", "kind": ""}
    if failed:
        yield {"value": f"{failed:,}", "words": "runs failed", "kind": "differs"}
    verdicts = [line.verdict for line in lines]
    for verdict, words in TILES.items():
        if verdict in verdicts or verdict in (Verdict.AGREES, Verdict.DIFFERS):
            kind = verdict.value.split()[0]
            yield {"value": str(verdicts.count(verdict)), "words": words, "kind": kind}


def _groups(
    tables: EvaluationTables, profile: str, drawings: Sequence[Drawing], suffix: str
) -> Iterator[dict[str, Any]]:
    """The figures of a profile, in groups with a title."""
    by_group = {
        group: list(some)
        for group, some in groupby(drawings, lambda one: one.number.rstrip("abcdef"))
    }
    for group, title, about in GROUPS:
        if group in by_group:
            yield {
                "title": title + suffix,
                "about": about,
                "wide": group == "9",
                "drawings": by_group[group],
                "formulas": _table_6(tables, profile) if group == "8" else None,
            }


def _data_uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()


def _table_6(tables: EvaluationTables, profile: str) -> dict[str, Any] | None:
    """Thyme (journal article), Table 6: formulas, their values at the largest static size, and the
    simulated messages."""
    sizes = tables.x_values("static", profile)
    if not sizes:
        return None
    rows = []
    for part, formulas in FORMULAS.items():
        cells = []
        for name, formula in zip(SUBSTRATES, formulas, strict=True):
            value, simulated = (
                _format_mean(tables.point_at("static", profile, name, f"{side}.{part}", sizes[-1]))
                for side in ("formula", "simulated")
            )
            cells.append({"formula": formula, "value": value, "simulated": simulated})
        rows.append({"part": part.replace("_", " "), "cells": cells})
    names = [SUBSTRATE_NAMES[name] for name in SUBSTRATES]
    return {"nodes": f"{sizes[-1]:.0f}", "substrates": names, "rows": rows}


def _format_mean(point: MeasurePoint | None) -> str:
    return "–" if point is None else f"{point.mean:,.0f}"


def join_and(values: Sequence[object]) -> str:
    """Joins words: `a, b and c`."""
    words = [str(value) for value in values]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
