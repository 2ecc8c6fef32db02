"""Checks the claims of Thyme (journal article) about churn and mobility.

Each `check_c…` function returns a `Finding`; `scorecard` lists the claims.

Clauses: C9–C15.
"""

from __future__ import annotations

from thyme.report.findings import (
    CHURN_NODES,
    FLAT,
    NAMES,
    NOTHING,
    Finding,
    View,
    course,
    courses,
    ms,
    percent,
    ratio,
    times,
)

# Churn


def of_hundred(view: View, series: str, agrees: bool) -> bool | None:
    """The verdict if the series has networks of the paper's size, else None: among 16 nodes, all
    are in range of each other, so nothing is forwarded."""
    return agrees if view.tables.nodes_of(series) == CHURN_NODES else None


def c9(view: View) -> Finding:
    if not view.whole("crash", "success.notification"):
        return NOTHING
    lines = view.means("crash", "success.notification")
    falls = lines["ls"][0] - lines["ls"][-1] > FLAT
    flat = all(max(lines[name]) - min(lines[name]) <= FLAT for name in ("es", "dcs"))
    text = courses(lines, percent) + view.scale("crash")
    return Finding(text, of_hundred(view, "crash", falls and flat))


def c10(view: View) -> Finding:
    if not view.whole("transient", "success.retrieve", ["ls"]):
        return NOTHING
    line = view.means("transient", "success.retrieve")["ls"]
    text = f"LS {course(line, percent)}{view.scale('transient')}"
    return Finding(text, of_hundred(view, "transient", line[0] - line[-1] > FLAT))


def c11(view: View) -> Finding:
    if not view.whole("transient", "latency_ms_max.notification"):
        return NOTHING
    lines = view.means("transient", "latency_ms_max.notification")
    first, last = lines["ls"][0], lines["ls"][-1]
    near = 12_500 <= first <= 50_000 and 50_000 <= last <= 200_000
    stable = all(max(lines[name]) <= 2 * min(lines[name]) for name in ("es", "dcs"))
    agrees = near and last > first and stable
    text = courses(lines, ms) + view.scale("transient")
    return Finding(text, of_hundred(view, "transient", agrees))


def c12(view: View) -> Finding:
    if not view.whole("transient", "success.operation", ["es", "dcs"]):
        return NOTHING
    parts, fine = [], []
    for name, least, latencies in (("dcs", 0.9, (150, 300)), ("es", 0.8, (400, 600))):
        success = view.means("transient", "success.operation")[name]
        latency = view.means("transient", "latency_ms_mean.operation")[name]
        parts.append(f"{NAMES[name]} {course(success, percent)}, {course(latency, ms)} on average")
        fine.append(min(success) > least)
        fine.append(latencies[0] <= min(latency) and max(latency) <= latencies[1])
    text = "; ".join(parts) + view.scale("transient")
    return Finding(text, of_hundred(view, "transient", all(fine)))


def c13(view: View) -> Finding:
    if not view.whole("transient", "forwarded_bytes", ["ls", "dcs"]):
        return NOTHING
    lines = view.means("transient", "forwarded_bytes")
    nodes = float(view.tables.nodes_of("transient") or 0)
    still = {
        name: point.mean
        for name in ("ls", "dcs")
        if (point := view.tables.at("static", view.profile, name, "forwarded_bytes", nodes))
    }
    churned = ratio(lines["ls"][-1], lines["dcs"][-1])
    text = f"LS/DCS {times(churned)} at the largest share"
    if len(still) < 2:
        return Finding(text + "; runs without churn are not in this sweep", None, measured=False)
    without = ratio(still["ls"], still["dcs"])
    text += f", {times(without)} without churn{view.scale('transient')}"
    return Finding(text, of_hundred(view, "transient", churned > 1.2 and without < 1))


# Mobility


def c14(view: View) -> Finding:
    if not view.whole("mobile", "success.notification", ["dcs"]):
        return NOTHING
    line = view.means("mobile", "success.notification")["dcs"]
    text = f"DCS {course(line, percent)}{view.scale('mobile')}"
    return Finding(text, of_hundred(view, "mobile", line[-1] < line[0]))


def c15(view: View) -> Finding:
    if not view.whole("mobile", "latency_ms_mean.retrieve"):
        return NOTHING
    lines = view.means("mobile", "latency_ms_mean.retrieve")
    others = zip(lines["es"], lines["ls"], strict=True)
    lower = all(dcs < min(two) for dcs, two in zip(lines["dcs"], others, strict=True))
    text = courses(lines, ms) + view.scale("mobile")
    return Finding(text, of_hundred(view, "mobile", lower))
