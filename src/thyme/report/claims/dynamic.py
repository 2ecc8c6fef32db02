"""Checks the claims of Thyme (journal article) about churn and mobility.

Each `check_c…` function returns a `Finding`; `scorecard` lists the claims.

Clauses: C9–C15.
"""

from __future__ import annotations

from thyme.report.claims.finding import (
    CHURN_NODES,
    FLAT_TOLERANCE,
    NOT_MEASURED,
    SUBSTRATE_NAMES,
    Finding,
    ProfileTables,
    format_ms,
    format_percent,
    format_range,
    format_ranges,
    format_ratio,
    ratio,
)

# Churn


def require_paper_size(view: ProfileTables, series: str, agrees: bool) -> bool | None:
    """The verdict if the series has networks of the paper's size, else None: among 16 nodes, all
    are in range of each other, so nothing is forwarded."""
    return agrees if view.tables.largest_nodes(series) == CHURN_NODES else None


def check_c9_crash_notifications(view: ProfileTables) -> Finding:
    if not view.has_points("crash", "success.notification"):
        return NOT_MEASURED
    lines = view.means("crash", "success.notification")
    falls = lines["ls"][0] - lines["ls"][-1] > FLAT_TOLERANCE
    flat = all(max(lines[name]) - min(lines[name]) <= FLAT_TOLERANCE for name in ("es", "dcs"))
    text = format_ranges(lines, format_percent) + view.size_note("crash")
    return Finding(text, require_paper_size(view, "crash", falls and flat))


def check_c10_churn_ls_retrieves(view: ProfileTables) -> Finding:
    if not view.has_points("transient", "success.retrieve", ["ls"]):
        return NOT_MEASURED
    line = view.means("transient", "success.retrieve")["ls"]
    text = f"LS {format_range(line, format_percent)}{view.size_note('transient')}"
    return Finding(text, require_paper_size(view, "transient", line[0] - line[-1] > FLAT_TOLERANCE))


def check_c11_churn_slowest_notification(view: ProfileTables) -> Finding:
    if not view.has_points("transient", "latency_ms_max.notification"):
        return NOT_MEASURED
    lines = view.means("transient", "latency_ms_max.notification")
    first, last = lines["ls"][0], lines["ls"][-1]
    near = 12_500 <= first <= 50_000 and 50_000 <= last <= 200_000
    stable = all(max(lines[name]) <= 2 * min(lines[name]) for name in ("es", "dcs"))
    agrees = near and last > first and stable
    text = format_ranges(lines, format_ms) + view.size_note("transient")
    return Finding(text, require_paper_size(view, "transient", agrees))


def check_c12_churn_operations(view: ProfileTables) -> Finding:
    if not view.has_points("transient", "success.operation", ["es", "dcs"]):
        return NOT_MEASURED
    parts, fine = [], []
    for name, least, latencies in (("dcs", 0.9, (150, 300)), ("es", 0.8, (400, 600))):
        success = view.means("transient", "success.operation")[name]
        latency = view.means("transient", "latency_ms_mean.operation")[name]
        parts.append(
            f"{SUBSTRATE_NAMES[name]} {format_range(success, format_percent)}, "
            f"{format_range(latency, format_ms)} on average"
        )
        fine.append(min(success) > least)
        fine.append(latencies[0] <= min(latency) and max(latency) <= latencies[1])
    text = "; ".join(parts) + view.size_note("transient")
    return Finding(text, require_paper_size(view, "transient", all(fine)))


def check_c13_churn_forwarded_bytes(view: ProfileTables) -> Finding:
    if not view.has_points("transient", "forwarded_bytes", ["ls", "dcs"]):
        return NOT_MEASURED
    lines = view.means("transient", "forwarded_bytes")
    nodes = float(view.tables.largest_nodes("transient") or 0)
    still = {
        name: point.mean
        for name in ("ls", "dcs")
        if (point := view.tables.point_at("static", view.profile, name, "forwarded_bytes", nodes))
    }
    churned = ratio(lines["ls"][-1], lines["dcs"][-1])
    text = f"LS/DCS {format_ratio(churned)} at the largest share"
    if len(still) < 2:
        return Finding(text + "; runs without churn are not in this sweep", None, measured=False)
    without = ratio(still["ls"], still["dcs"])
    text += f", {format_ratio(without)} without churn{view.size_note('transient')}"
    return Finding(text, require_paper_size(view, "transient", churned > 1.2 and without < 1))


# Mobility


def check_c14_mobile_dcs_notifications(view: ProfileTables) -> Finding:
    if not view.has_points("mobile", "success.notification", ["dcs"]):
        return NOT_MEASURED
    line = view.means("mobile", "success.notification")["dcs"]
    text = f"DCS {format_range(line, format_percent)}{view.size_note('mobile')}"
    return Finding(text, require_paper_size(view, "mobile", line[-1] < line[0]))


def check_c15_mobile_retrieve_latency(view: ProfileTables) -> Finding:
    if not view.has_points("mobile", "latency_ms_mean.retrieve"):
        return NOT_MEASURED
    lines = view.means("mobile", "latency_ms_mean.retrieve")
    others = zip(lines["es"], lines["ls"], strict=True)
    lower = all(dcs < min(two) for dcs, two in zip(lines["dcs"], others, strict=True))
    text = format_ranges(lines, format_ms) + view.size_note("mobile")
    return Finding(text, require_paper_size(view, "mobile", lower))
