"""Checks the claims of Thyme (journal article) about the analytical model and the trace.

Each `check_c…` function returns a `Finding`; `scorecard` lists the claims.

Clauses: C16, C17, C21, S18.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log, sqrt
from statistics import mean

from thyme.report.claims.finding import (
    NOT_MEASURED,
    Finding,
    ProfileTables,
    format_count,
    format_ranges,
    format_ratio,
)
from thyme.report.tables import OPERATIONS, SUBSTRATES, EvaluationTables

# The analytical model


def work_per_node(tables: EvaluationTables, profile: str) -> list[tuple[int, float]]:
    """Notification messages originated per node, by cell size, scaled to a mean of 100 per
    populated cell (Thyme, journal article, Fig. 8)."""
    wanted = {
        row["run_id"]
        for row in tables.table_rows("runs")
        if row["profile"] == profile and row["series"] == "static"
    }
    rows = [row for row in tables.table_rows("cell_work") if row["run_id"] in wanted]
    started, cells = sum(row["sent"] for row in rows), sum(row["cells"] for row in rows)
    if not started:
        return []
    found = []
    for size in sorted({row["cell_nodes"] for row in rows}):
        some = [row for row in rows if row["cell_nodes"] == size]
        nodes = size * sum(row["cells"] for row in some)
        found.append((size, 100 * sum(row["sent"] for row in some) / nodes / (started / cells)))
    return found


def check_c16_cell_work(view: ProfileTables) -> Finding:
    found = work_per_node(view.tables, view.profile)
    if len(found) < 2:
        return NOT_MEASURED
    steepness = regression_slope([(log(size), log(work)) for size, work in found if work > 0])
    text = ", ".join(f"{work:.0f} with {size}" for size, work in found)
    return Finding(f"messages per node, by nodes in the cell: {text}", steepness < -0.3)


def regression_slope(pairs: Sequence[tuple[float, float]]) -> float:
    """The slope of the regression line through the points."""
    x_mean, y_mean = mean(x for x, _ in pairs), mean(y for _, y in pairs)
    spread = sum((x - x_mean) ** 2 for x, _ in pairs)
    return sum((x - x_mean) * (y - y_mean) for x, y in pairs) / spread if spread else 0.0


def model_ratios(tables: EvaluationTables, profile: str) -> dict[str, list[tuple[float, float]]]:
    """Ratio of simulated messages to those of the formulas, by substrate and size."""
    found: dict[str, list[tuple[float, float]]] = {}
    parts = (*OPERATIONS, "notification")
    for name in SUBSTRATES:
        for x in tables.x_values("static", profile):
            totals = []
            for side in ("simulated", "formula"):
                points = [
                    tables.point_at("static", profile, name, f"{side}.{part}", x) for part in parts
                ]
                totals.append(sum(point.mean for point in points if point))
            done = tables.point_at("static", profile, name, "simulated.acknowledgement", x)
            if totals[1]:
                simulated = totals[0] + (done.mean if done else 0.0)
                found.setdefault(name, []).append((x, simulated / totals[1]))
    return found


def check_c17_message_counts(view: ProfileTables) -> Finding:
    found = model_ratios(view.tables, view.profile)
    if len(found) < 3 or len(found["es"]) < 2:
        return NOT_MEASURED
    steady = all(
        max(ratio for _, ratio in line) <= 2 * min(ratio for _, ratio in line)
        for line in found.values()
    )
    lines = {name: [ratio for _, ratio in line] for name, line in found.items()}
    return Finding(f"simulated/formula {format_ranges(lines, format_ratio)}", steady)


# Traces

ARTICLE_TRACE = {"insert": 4545, "subscribe": 526, "delete": 29, "unsubscribe": 15}


def check_c21_trace_counts(view: ProfileTables) -> Finding:
    rows = [row for row in view.tables.table_rows("trace_counts") if row["users"] == 100]
    if not rows:
        return NOT_MEASURED
    ours = {
        kind: mean(row["operations"] for row in rows if row["kind"] == kind)
        for kind in ARTICLE_TRACE
    }
    # Counts are random: accept three standard deviations of a Poisson count, or 10 %.
    near: bool | None = all(
        abs(ours[kind] - number) <= max(3 * sqrt(number), 0.1 * number)
        for kind, number in ARTICLE_TRACE.items()
    )
    if view.tables.notes.get("imported"):
        near = None  # another event has other numbers
    seeds = len({row["seed"] for row in rows})
    text = ", ".join(f"{format_count(number)} {kind}s" for kind, number in ours.items())
    return Finding(f"{text} (mean of {seeds} traces)" if seeds > 1 else text, near)
