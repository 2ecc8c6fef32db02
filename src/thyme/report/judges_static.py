"""Checks the claims of Thyme (journal article) about static networks.

Each `check_c…` function returns a `Finding`; `scorecard` lists the claims.

Clauses: C1–C8.
"""

from __future__ import annotations

from thyme.report.findings import (
    FLAT,
    LARGEST,
    NOTHING,
    Finding,
    View,
    at_largest,
    count,
    course,
    courses,
    ms,
    named,
    of_many,
    only_at,
    percent,
    ratio,
    times,
)
from thyme.report.tables import OPERATIONS


def c1(view: View) -> Finding:
    found = view.last("phy_bytes")
    if len(found) < 3:
        return NOTHING
    es, ls = ratio(found["es"], found["dcs"]), ratio(found["ls"], found["dcs"])
    agrees = es > 2 and ls > 2 and 0.75 <= ratio(found["es"], found["ls"]) <= 1.33
    text = f"ES/DCS {times(es)}, LS/DCS {times(ls)}, ES/LS {times(ratio(*pair(found)))}"
    return Finding(at_largest(view) + text, only_at(view, LARGEST, agrees))


def pair(found: dict[str, float]) -> tuple[float, float]:
    return found["es"], found["ls"]


def c2(view: View) -> Finding:
    parts, fine = [], []
    for measure, title in (
        ("mac_retransmissions", "retransmissions"),
        ("mac_exceeded", "exceeded"),
    ):
        lines = view.means("static", measure)
        if len(lines) < 3:
            return NOTHING
        parts.append(f"{title} {courses(lines, count)}")
        fine += [lines[name][-1] >= 1.5 * lines["dcs"][-1] for name in ("es", "ls")]
        fine += [lines[name][-1] > lines[name][0] for name in ("es", "ls")]
    sizes = view.tables.xs("static", view.profile)
    head = f"{sizes[0]:.0f} → {sizes[-1]:.0f} nodes: "
    return Finding(head + "; ".join(parts), of_many(view, len(sizes) > 1 and all(fine)))


def c3(view: View) -> Finding:
    found = view.last("forwarded_bytes")
    if len(found) < 3:
        return NOTHING
    agrees = found["dcs"] > max(found["es"], found["ls"])
    mb = {name: value / 1e6 for name, value in found.items()}
    return Finding(at_largest(view) + named(mb, lambda value: f"{value:.2f} MB"), agrees)


def c4(view: View) -> Finding:
    found, shares = view.last("control_bytes"), view.last("control_share")
    if len(found) < 3:
        return NOTHING
    ratios = [ratio(found[name], found["dcs"]) for name in ("es", "ls")]
    near = all(0.15 <= shares[name] <= 0.35 for name in ("es", "ls"))
    text = (
        f"ES {times(ratios[0])} and LS {times(ratios[1])} of DCS; "
        f"share of all bytes {named({k: shares[k] for k in ('es', 'ls')}, percent)}"
    )
    agrees = min(ratios) >= 3 and near
    return Finding(at_largest(view) + text, only_at(view, LARGEST, agrees))


def lowest(view: View, series: str, substrate: str) -> dict[str, float]:
    """The lowest mean success of each operation in a series."""
    found = {}
    for kind in (*OPERATIONS, "notification"):
        points = view.points(series, substrate, f"success.{kind}")
        if points:
            found[kind] = min(point.mean for point in points)
    return found


def lowest_words(found: dict[str, float]) -> str:
    return "lowest means: " + ", ".join(f"{kind} {percent(value)}" for kind, value in found.items())


def up_to(view: View) -> str:
    return f"up to {view.largest} nodes; "


def c5(view: View) -> Finding:
    found = lowest(view, "static", "dcs")
    if "notification" not in found:
        return NOTHING
    notified = found["notification"]
    others = [value for kind, value in found.items() if kind != "notification"]
    return Finding(up_to(view) + lowest_words(found), min(others) > 0.99 and notified >= 0.95)


def c6(view: View) -> Finding:
    found = lowest(view, "static", "ls")
    if len(found) < 6:
        return NOTHING
    local = min(found["insert"], found["delete"]) == 1
    flooded = min(found["subscribe"], found["unsubscribe"]) > 0.99
    near = abs(found["retrieve"] - 0.96) <= FLAT and abs(found["notification"] - 0.95) <= FLAT
    agrees = local and flooded and near
    return Finding(up_to(view) + lowest_words(found), only_at(view, LARGEST, agrees))


def c7(view: View) -> Finding:
    line = view.means("static", "success.operation").get("es", [])
    notified = view.means("static", "success.notification").get("es", [])
    if not line:
        return NOTHING
    text = f"operations {course(line, percent)}, notifications {course(notified, percent)}"
    lowest = min(line[-1], notified[-1])
    agrees = line[-1] < line[0] and abs(lowest - 0.78) <= 0.08
    return Finding(f"{up_to(view)}{text}", only_at(view, LARGEST, agrees))


def c8(view: View) -> Finding:
    every, notified, got = (
        view.means("static", f"latency_ms_mean.{kind}")
        for kind in ("operation", "notification", "retrieve")
    )
    if not (len(every) == len(notified) == len(got) == 3 and len(every["es"]) > 1):
        return NOTHING
    checks = {
        "latencies grow": all(line[-1] > line[0] for line in (*every.values(), *notified.values())),
        "ES highest with few": every["es"][0] >= max(every["ls"][0], every["dcs"][0]),
        "notifications faster in LS": notified["ls"][-1] < notified["dcs"][-1],
        "retrieves faster in DCS": got["dcs"][-1] < got["ls"][-1],
        "ES slowest": every["es"][-1] >= max(every["ls"][-1], every["dcs"][-1]),
    }
    sizes = view.tables.xs("static", view.profile)
    parts = [
        f"operations {courses(every, ms)}",
        f"notifications {courses(notified, ms)}",
        f"retrieves {courses(got, ms)}",
        outcome(checks),
    ]
    head = f"{sizes[0]:.0f} → {sizes[-1]:.0f} nodes: "
    return Finding(head + "; ".join(parts), of_many(view, all(checks.values())))


def outcome(checks: dict[str, bool]) -> str:
    wrong = [name for name, fine in checks.items() if not fine]
    return "not confirmed: " + ", ".join(wrong) if wrong else "all confirmed"
