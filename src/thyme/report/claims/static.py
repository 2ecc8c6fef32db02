"""Checks the claims of Thyme (journal article) about static networks.

Each `check_c…` function returns a `Finding`; `scorecard` lists the claims.

Clauses: C1–C8.
"""

from __future__ import annotations

from thyme.report.claims.finding import (
    FLAT_TOLERANCE,
    LARGEST_NODES,
    NOT_MEASURED,
    Finding,
    ProfileTables,
    format_by_substrate,
    format_count,
    format_mean_ratio,
    format_ms,
    format_percent,
    format_range,
    format_ranges,
    format_ratio,
    largest_prefix,
    ratio,
    require_large_network,
    require_size,
)
from thyme.report.tables import OPERATIONS


def check_c1_phy_bytes(view: ProfileTables) -> Finding:
    found = view.last_means("phy_bytes")
    if len(found) < 3:
        return NOT_MEASURED
    es, ls = ratio(found["es"], found["dcs"]), ratio(found["ls"], found["dcs"])
    agrees = es > 2 and ls > 2 and 0.75 <= ratio(found["es"], found["ls"]) <= 1.33
    pairs = (("es", "dcs"), ("ls", "dcs"), ("es", "ls"))
    text = ", ".join(format_mean_ratio(view, *pair, "phy_bytes") for pair in pairs)
    return Finding(largest_prefix(view) + text, require_size(view, LARGEST_NODES, agrees))


def check_c2_mac_retransmissions(view: ProfileTables) -> Finding:
    parts, fine = [], []
    for measure, title in (
        ("mac_retransmissions", "retransmissions"),
        ("mac_exceeded", "exceeded"),
    ):
        lines = view.means("static", measure)
        if len(lines) < 3:
            return NOT_MEASURED
        parts.append(f"{title} {format_ranges(lines, format_count)}")
        fine += [lines[name][-1] >= 1.5 * lines["dcs"][-1] for name in ("es", "ls")]
        fine += [lines[name][-1] > lines[name][0] for name in ("es", "ls")]
    sizes = view.tables.x_values("static", view.profile)
    head = f"{sizes[0]:.0f} → {sizes[-1]:.0f} nodes: "
    return Finding(
        head + "; ".join(parts), require_large_network(view, len(sizes) > 1 and all(fine))
    )


def check_c3_forwarded_bytes(view: ProfileTables) -> Finding:
    found = view.last_means("forwarded_bytes")
    if len(found) < 3:
        return NOT_MEASURED
    agrees = found["dcs"] > max(found["es"], found["ls"])
    mb = {name: value / 1e6 for name, value in found.items()}
    return Finding(
        largest_prefix(view) + format_by_substrate(mb, lambda value: f"{value:.2f} MB"), agrees
    )


def check_c4_routing_control(view: ProfileTables) -> Finding:
    found, shares = view.last_means("control_bytes"), view.last_means("control_share")
    if len(found) < 3:
        return NOT_MEASURED
    ratios = [ratio(found[name], found["dcs"]) for name in ("es", "ls")]
    near = all(0.15 <= shares[name] <= 0.35 for name in ("es", "ls"))
    text = (
        f"ES {format_ratio(ratios[0])} and LS {format_ratio(ratios[1])} of DCS; "
        f"share of all bytes "
        f"{format_by_substrate({k: shares[k] for k in ('es', 'ls')}, format_percent)}"
    )
    agrees = min(ratios) >= 3 and near
    return Finding(largest_prefix(view) + text, require_size(view, LARGEST_NODES, agrees))


def lowest_success(view: ProfileTables, series: str, substrate: str) -> dict[str, float]:
    """The lowest mean success of each operation in a series."""
    found = {}
    for kind in (*OPERATIONS, "notification"):
        points = view.points(series, substrate, f"success.{kind}")
        if points:
            found[kind] = min(point.mean for point in points)
    return found


def format_lowest(found: dict[str, float]) -> str:
    return "lowest means: " + ", ".join(
        f"{kind} {format_percent(value)}" for kind, value in found.items()
    )


def size_prefix(view: ProfileTables) -> str:
    return f"up to {view.largest} nodes; "


def check_c5_dcs_success(view: ProfileTables) -> Finding:
    found = lowest_success(view, "static", "dcs")
    if "notification" not in found:
        return NOT_MEASURED
    notified = found["notification"]
    others = [value for kind, value in found.items() if kind != "notification"]
    return Finding(
        size_prefix(view) + format_lowest(found), min(others) > 0.99 and notified >= 0.95
    )


def check_c6_ls_success(view: ProfileTables) -> Finding:
    found = lowest_success(view, "static", "ls")
    if len(found) < 6:
        return NOT_MEASURED
    local = min(found["insert"], found["delete"]) == 1
    flooded = min(found["subscribe"], found["unsubscribe"]) > 0.99
    near = (
        abs(found["retrieve"] - 0.96) <= FLAT_TOLERANCE
        and abs(found["notification"] - 0.95) <= FLAT_TOLERANCE
    )
    agrees = local and flooded and near
    return Finding(
        size_prefix(view) + format_lowest(found), require_size(view, LARGEST_NODES, agrees)
    )


def check_c7_es_success(view: ProfileTables) -> Finding:
    line = view.means("static", "success.operation").get("es", [])
    notified = view.means("static", "success.notification").get("es", [])
    if not line:
        return NOT_MEASURED
    text = (
        f"operations {format_range(line, format_percent)}, "
        f"notifications {format_range(notified, format_percent)}"
    )
    lowest = min(line[-1], notified[-1])
    agrees = line[-1] < line[0] and abs(lowest - 0.78) <= 0.08
    return Finding(f"{size_prefix(view)}{text}", require_size(view, LARGEST_NODES, agrees))


def check_c8_latencies(view: ProfileTables) -> Finding:
    every, notified, got = (
        view.means("static", f"latency_ms_mean.{kind}")
        for kind in ("operation", "notification", "retrieve")
    )
    if not (len(every) == len(notified) == len(got) == 3 and len(every["es"]) > 1):
        return NOT_MEASURED
    checks = {
        "latencies grow": all(line[-1] > line[0] for line in (*every.values(), *notified.values())),
        "ES highest with few": every["es"][0] >= max(every["ls"][0], every["dcs"][0]),
        "notifications faster in LS": notified["ls"][-1] < notified["dcs"][-1],
        "retrieves faster in DCS": got["dcs"][-1] < got["ls"][-1],
        "ES slowest": every["es"][-1] >= max(every["ls"][-1], every["dcs"][-1]),
    }
    sizes = view.tables.x_values("static", view.profile)
    parts = [
        f"operations {format_ranges(every, format_ms)}",
        f"notifications {format_ranges(notified, format_ms)}",
        f"retrieves {format_ranges(got, format_ms)}",
        format_checks(checks),
    ]
    head = f"{sizes[0]:.0f} → {sizes[-1]:.0f} nodes: "
    return Finding(head + "; ".join(parts), require_large_network(view, all(checks.values())))


def format_checks(checks: dict[str, bool]) -> str:
    wrong = [name for name, fine in checks.items() if not fine]
    return "not confirmed: " + ", ".join(wrong) if wrong else "all confirmed"
