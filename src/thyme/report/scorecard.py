"""The scorecard: what the documents report, what was measured, and whether the two agree.

Every verdict is worked out from the tables; how far apart two values may be is written beside the
claim it is for. A claim about a size that was not simulated is not judged.
Clauses: C1–C17, C21, S18.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import log, sqrt
from statistics import mean

from thyme.report.tables import OPERATIONS, SUBSTRATES, Point, Tables

LARGEST = 196
"""The documents' largest network, for which they give most numbers."""
MANY = 100
"""Where the documents say “many nodes”, or that something grows with the network."""
CHURN_NODES = 100
"""The documents' networks with churn and mobility."""
FLAT = 0.03
"""How far a ratio may move and still count as flat."""
NAMES = {"es": "ES", "ls": "LS", "dcs": "DCS"}


class Verdict(StrEnum):
    """How a claim fares."""

    AGREES = "agrees"
    DIFFERS = "differs"
    NOT_MEASURED = "not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of the scorecard."""

    claim: str
    source: str
    title: str
    documents: str
    ours: str
    verdict: Verdict
    profile: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What the documents report, and how it is looked for."""

    id: str
    source: str
    title: str
    documents: str
    judge: Callable[[View], Finding]


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found: numbers in words, and whether they agree; None if it cannot be said."""

    ours: str
    agrees: bool | None


NOTHING = Finding("nothing of it is in this sweep", None)


class View:
    """The tables of one profile."""

    def __init__(self, tables: Tables, profile: str) -> None:
        self.tables = tables
        self.profile = profile

    def points(self, series: str, substrate: str, measure: str) -> list[Point]:
        return self.tables.points(series, self.profile, substrate, measure)

    def means(self, series: str, measure: str) -> dict[str, list[float]]:
        """The line of each substrate that has one."""
        lines = {
            name: [point.mean for point in self.points(series, name, measure)]
            for name in SUBSTRATES
        }
        return {name: line for name, line in lines.items() if line}

    def last(self, measure: str, series: str = "static") -> dict[str, float]:
        """The value of each substrate at the largest size, share or speed."""
        return {name: line[-1] for name, line in self.means(series, measure).items()}

    @property
    def largest(self) -> int | None:
        """The largest static network."""
        sizes = self.tables.xs("static", self.profile)
        return round(sizes[-1]) if sizes else None

    def whole(self, series: str, measure: str, needed: Iterable[str] = SUBSTRATES) -> bool:
        """Whether these substrates have at least two points."""
        lines = self.means(series, measure)
        return all(len(lines.get(name, [])) > 1 for name in needed)

    def scale(self, series: str) -> str:
        """Says if a series was run in another network than the documents'."""
        nodes = self.tables.nodes_of(series)
        return "" if nodes in (None, CHURN_NODES) else f" (with {nodes} nodes instead of 100)"


def scorecard(tables: Tables, profile: str) -> list[Line]:
    """Every claim, judged."""
    view = View(tables, profile)
    lines = []
    for claim in CLAIMS:
        found = claim.judge(view)
        verdict = {True: Verdict.AGREES, False: Verdict.DIFFERS, None: Verdict.NOT_MEASURED}
        lines.append(
            Line(
                claim=claim.id,
                source=claim.source,
                title=claim.title,
                documents=claim.documents,
                ours=found.ours,
                verdict=verdict[found.agrees],
                profile=profile,
            )
        )
    return lines


# Words


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def _named(values: dict[str, float], form: Callable[[float], str]) -> str:
    return ", ".join(f"{NAMES[name]} {form(value)}" for name, value in values.items())


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _times(value: float) -> str:
    return f"{value:.2f}×"


def _ms(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1_000:,.0f} s"
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _course(line: Sequence[float], form: Callable[[float], str]) -> str:
    """From the first point to the last."""
    return f"{form(line[0])} → {form(line[-1])}" if len(line) > 1 else form(line[0])


def _courses(lines: dict[str, list[float]], form: Callable[[float], str]) -> str:
    return ", ".join(f"{NAMES[name]} {_course(line, form)}" for name, line in lines.items())


def _ratio(upper: float, lower: float) -> float:
    return upper / lower if lower else float("inf")


def _at_largest(view: View) -> str:
    return f"at {view.largest} nodes: "


def _only_at(view: View, nodes: int, agrees: bool) -> bool | None:
    """A verdict that only this size can give."""
    return agrees if view.largest == nodes else None


def _of_many(view: View, agrees: bool) -> bool | None:
    """A verdict that only a large network can give."""
    return agrees if (view.largest or 0) >= MANY else None


# The static series


def _c1(view: View) -> Finding:
    found = view.last("phy_bytes")
    if len(found) < 3:
        return NOTHING
    es, ls = _ratio(found["es"], found["dcs"]), _ratio(found["ls"], found["dcs"])
    agrees = es > 2 and ls > 2 and 0.75 <= _ratio(found["es"], found["ls"]) <= 1.33
    words = f"ES/DCS {_times(es)}, LS/DCS {_times(ls)}, ES/LS {_times(_ratio(*_pair(found)))}"
    return Finding(_at_largest(view) + words, _only_at(view, LARGEST, agrees))


def _pair(found: dict[str, float]) -> tuple[float, float]:
    return found["es"], found["ls"]


def _c2(view: View) -> Finding:
    words, fine = [], []
    for measure, title in (
        ("mac_retransmissions", "retransmissions"),
        ("mac_exceeded", "exceeded"),
    ):
        lines = view.means("static", measure)
        if len(lines) < 3:
            return NOTHING
        words.append(f"{title} {_courses(lines, _count)}")
        fine += [lines[name][-1] >= 1.5 * lines["dcs"][-1] for name in ("es", "ls")]
        fine += [lines[name][-1] > lines[name][0] for name in ("es", "ls")]
    sizes = view.tables.xs("static", view.profile)
    head = f"{sizes[0]:.0f} → {sizes[-1]:.0f} nodes: "
    return Finding(head + "; ".join(words), _of_many(view, len(sizes) > 1 and all(fine)))


def _c3(view: View) -> Finding:
    found = view.last("forwarded_bytes")
    if len(found) < 3:
        return NOTHING
    agrees = found["dcs"] > max(found["es"], found["ls"])
    mb = {name: value / 1e6 for name, value in found.items()}
    return Finding(_at_largest(view) + _named(mb, lambda value: f"{value:.2f} MB"), agrees)


def _c4(view: View) -> Finding:
    found, shares = view.last("control_bytes"), view.last("control_share")
    if len(found) < 3:
        return NOTHING
    ratios = [_ratio(found[name], found["dcs"]) for name in ("es", "ls")]
    near = all(0.15 <= shares[name] <= 0.35 for name in ("es", "ls"))
    words = (
        f"ES {_times(ratios[0])} and LS {_times(ratios[1])} of DCS; "
        f"share of all bytes {_named({k: shares[k] for k in ('es', 'ls')}, _percent)}"
    )
    agrees = min(ratios) >= 3 and near
    return Finding(_at_largest(view) + words, _only_at(view, LARGEST, agrees))


def _lowest(view: View, series: str, substrate: str) -> dict[str, float]:
    """The lowest success of each operation over a series."""
    found = {}
    for kind in (*OPERATIONS, "notification"):
        points = view.points(series, substrate, f"success.{kind}")
        if points:
            found[kind] = min(point.mean for point in points)
    return found


def _lowest_words(found: dict[str, float]) -> str:
    return "lowest means: " + ", ".join(
        f"{kind} {_percent(value)}" for kind, value in found.items()
    )


def _up_to(view: View) -> str:
    return f"up to {view.largest} nodes; "


def _c5(view: View) -> Finding:
    found = _lowest(view, "static", "dcs")
    if "notification" not in found:
        return NOTHING
    told = found["notification"]
    others = [value for kind, value in found.items() if kind != "notification"]
    return Finding(_up_to(view) + _lowest_words(found), min(others) > 0.99 and told >= 0.95)


def _c6(view: View) -> Finding:
    found = _lowest(view, "static", "ls")
    if len(found) < 6:
        return NOTHING
    local = min(found["insert"], found["delete"]) == 1
    flooded = min(found["subscribe"], found["unsubscribe"]) > 0.99
    near = abs(found["retrieve"] - 0.96) <= FLAT and abs(found["notification"] - 0.95) <= FLAT
    agrees = local and flooded and near
    return Finding(_up_to(view) + _lowest_words(found), _only_at(view, LARGEST, agrees))


def _c7(view: View) -> Finding:
    line = view.means("static", "success.operation").get("es", [])
    told = view.means("static", "success.notification").get("es", [])
    if not line:
        return NOTHING
    words = f"operations {_course(line, _percent)}, notifications {_course(told, _percent)}"
    lowest = min(line[-1], told[-1])
    agrees = line[-1] < line[0] and abs(lowest - 0.78) <= 0.08
    return Finding(f"{_up_to(view)}{words}", _only_at(view, LARGEST, agrees))


def _c8(view: View) -> Finding:
    every, told, got = (
        view.means("static", f"latency_ms_mean.{kind}")
        for kind in ("operation", "notification", "retrieve")
    )
    if not (len(every) == len(told) == len(got) == 3 and len(every["es"]) > 1):
        return NOTHING
    checks = {
        "latencies grow": all(line[-1] > line[0] for line in (*every.values(), *told.values())),
        "ES highest with few": every["es"][0] >= max(every["ls"][0], every["dcs"][0]),
        "notifications faster in LS": told["ls"][-1] < told["dcs"][-1],
        "retrieves faster in DCS": got["dcs"][-1] < got["ls"][-1],
        "ES slowest": every["es"][-1] >= max(every["ls"][-1], every["dcs"][-1]),
    }
    sizes = view.tables.xs("static", view.profile)
    words = [
        f"operations {_courses(every, _ms)}",
        f"notifications {_courses(told, _ms)}",
        f"retrieves {_courses(got, _ms)}",
        _outcome(checks),
    ]
    head = f"{sizes[0]:.0f} → {sizes[-1]:.0f} nodes: "
    return Finding(head + "; ".join(words), _of_many(view, all(checks.values())))


def _outcome(checks: dict[str, bool]) -> str:
    wrong = [name for name, fine in checks.items() if not fine]
    return "not so: " + ", ".join(wrong) if wrong else "all as said"


# Churn


def _of_hundred(view: View, series: str, agrees: bool) -> bool | None:
    """A verdict on numbers that the documents give for 100 nodes."""
    return agrees if view.tables.nodes_of(series) == CHURN_NODES else None


def _c9(view: View) -> Finding:
    if not view.whole("crash", "success.notification"):
        return NOTHING
    lines = view.means("crash", "success.notification")
    falls = lines["ls"][0] - lines["ls"][-1] > FLAT
    flat = all(max(lines[name]) - min(lines[name]) <= FLAT for name in ("es", "dcs"))
    return Finding(_courses(lines, _percent) + view.scale("crash"), falls and flat)


def _c10(view: View) -> Finding:
    if not view.whole("transient", "success.retrieve", ["ls"]):
        return NOTHING
    line = view.means("transient", "success.retrieve")["ls"]
    return Finding(
        f"LS {_course(line, _percent)}{view.scale('transient')}", line[0] - line[-1] > FLAT
    )


def _c11(view: View) -> Finding:
    if not view.whole("transient", "latency_ms_max.notification"):
        return NOTHING
    lines = view.means("transient", "latency_ms_max.notification")
    first, last = lines["ls"][0], lines["ls"][-1]
    near = 12_500 <= first <= 50_000 and 50_000 <= last <= 200_000
    stable = all(max(lines[name]) <= 2 * min(lines[name]) for name in ("es", "dcs"))
    agrees = near and last > first and stable
    words = _courses(lines, _ms) + view.scale("transient")
    return Finding(words, _of_hundred(view, "transient", agrees))


def _c12(view: View) -> Finding:
    if not view.whole("transient", "success.operation", ["es", "dcs"]):
        return NOTHING
    parts, fine = [], []
    for name, least, latencies in (("dcs", 0.9, (150, 300)), ("es", 0.8, (400, 600))):
        success = view.means("transient", "success.operation")[name]
        latency = view.means("transient", "latency_ms_mean.operation")[name]
        parts.append(
            f"{NAMES[name]} {_course(success, _percent)}, {_course(latency, _ms)} on average"
        )
        fine.append(min(success) > least)
        fine.append(latencies[0] <= min(latency) and max(latency) <= latencies[1])
    words = "; ".join(parts) + view.scale("transient")
    return Finding(words, _of_hundred(view, "transient", all(fine)))


def _c13(view: View) -> Finding:
    if not view.whole("transient", "forwarded_bytes", ["ls", "dcs"]):
        return NOTHING
    lines = view.means("transient", "forwarded_bytes")
    nodes = float(view.tables.nodes_of("transient") or 0)
    still = {
        name: point.mean
        for name in ("ls", "dcs")
        if (point := view.tables.at("static", view.profile, name, "forwarded_bytes", nodes))
    }
    churned = _ratio(lines["ls"][-1], lines["dcs"][-1])
    words = f"LS/DCS {_times(churned)} at the largest share"
    if len(still) < 2:
        return Finding(words + "; without churn not in this sweep", None)
    calm = _ratio(still["ls"], still["dcs"])
    words += f", {_times(calm)} without churn{view.scale('transient')}"
    return Finding(words, churned > 1.2 and calm < 1)


# Mobility


def _c14(view: View) -> Finding:
    if not view.whole("mobile", "success.notification", ["dcs"]):
        return NOTHING
    line = view.means("mobile", "success.notification")["dcs"]
    return Finding(f"DCS {_course(line, _percent)}{view.scale('mobile')}", line[-1] < line[0])


def _c15(view: View) -> Finding:
    if not view.whole("mobile", "latency_ms_mean.retrieve"):
        return NOTHING
    lines = view.means("mobile", "latency_ms_mean.retrieve")
    others = zip(lines["es"], lines["ls"], strict=True)
    lower = all(dcs < min(two) for dcs, two in zip(lines["dcs"], others, strict=True))
    return Finding(_courses(lines, _ms) + view.scale("mobile"), lower)


# The analytical model


def work_per_node(tables: Tables, profile: str) -> list[tuple[int, float]]:
    """Notification messages started per node, by the nodes of its cell, where the cells of the
    average run together start 100 per cell that has nodes (F, Fig. 8)."""
    wanted = {
        row["run_id"]
        for row in tables.rows("runs")
        if row["profile"] == profile and row["series"] == "static"
    }
    rows = [row for row in tables.rows("cell_work") if row["run_id"] in wanted]
    started, cells = sum(row["sent"] for row in rows), sum(row["cells"] for row in rows)
    if not started:
        return []
    found = []
    for size in sorted({row["cell_nodes"] for row in rows}):
        some = [row for row in rows if row["cell_nodes"] == size]
        nodes = size * sum(row["cells"] for row in some)
        found.append((size, 100 * sum(row["sent"] for row in some) / nodes / (started / cells)))
    return found


def _c16(view: View) -> Finding:
    found = work_per_node(view.tables, view.profile)
    if len(found) < 2:
        return NOTHING
    slope = _slope([(log(size), log(work)) for size, work in found if work > 0])
    words = ", ".join(f"{work:.0f} with {size}" for size, work in found)
    return Finding(f"messages per node in a cell of so many: {words}", slope < -0.3)


def _slope(pairs: Sequence[tuple[float, float]]) -> float:
    """Of the straight line through them."""
    x_mean, y_mean = mean(x for x, _ in pairs), mean(y for _, y in pairs)
    spread = sum((x - x_mean) ** 2 for x, _ in pairs)
    return sum((x - x_mean) * (y - y_mean) for x, y in pairs) / spread if spread else 0.0


def model_ratios(tables: Tables, profile: str) -> dict[str, list[tuple[float, float]]]:
    """Simulated messages over those of the formulas, by substrate and size."""
    found: dict[str, list[tuple[float, float]]] = {}
    parts = (*OPERATIONS, "notification")
    for name in SUBSTRATES:
        for x in tables.xs("static", profile):
            totals = []
            for side in ("simulated", "formula"):
                points = [tables.at("static", profile, name, f"{side}.{part}", x) for part in parts]
                totals.append(sum(point.mean for point in points if point))
            done = tables.at("static", profile, name, "simulated.acknowledgement", x)
            if totals[1]:
                simulated = totals[0] + (done.mean if done else 0.0)
                found.setdefault(name, []).append((x, simulated / totals[1]))
    return found


def _c17(view: View) -> Finding:
    found = model_ratios(view.tables, view.profile)
    if len(found) < 3 or len(found["es"]) < 2:
        return NOTHING
    steady = all(
        max(ratio for _, ratio in line) <= 2 * min(ratio for _, ratio in line)
        for line in found.values()
    )
    lines = {name: [ratio for _, ratio in line] for name, line in found.items()}
    return Finding(f"simulated/formula {_courses(lines, _times)}", steady)


# Traces

DOCUMENTS_TRACE = {"insert": 4545, "subscribe": 526, "delete": 29, "unsubscribe": 15}


def _c21(view: View) -> Finding:
    rows = [row for row in view.tables.rows("trace_counts") if row["users"] == 100]
    if not rows:
        return NOTHING
    ours = {
        kind: mean(row["operations"] for row in rows if row["kind"] == kind)
        for kind in DOCUMENTS_TRACE
    }
    # Drawn at random: within three standard deviations of a Poisson count, or 10 %.
    near = all(
        abs(ours[kind] - count) <= max(3 * sqrt(count), 0.1 * count)
        for kind, count in DOCUMENTS_TRACE.items()
    )
    seeds = len({row["seed"] for row in rows})
    words = ", ".join(f"{_count(count)} {kind}s" for kind, count in ours.items())
    return Finding(f"{words} (mean of {seeds} traces)" if seeds > 1 else words, near)


CLAIMS = (
    Claim(
        id="C1",
        source="F Fig. 10a",
        title="PHY bytes",
        documents="at 196 nodes ES and LS each transmit more than 2× the bytes of DCS; ES ≈ LS",
        judge=_c1,
    ),
    Claim(
        id="C2",
        source="F Fig. 10b, c",
        title="MAC retransmissions",
        documents="ES and LS have many more retransmissions and frames over the retry limit than "
        "DCS, growing with size",
        judge=_c2,
    ),
    Claim(
        id="C3",
        source="F Fig. 10d",
        title="forwarded bytes",
        documents="DCS forwards more than ES and LS when nothing fails",
        judge=_c3,
    ),
    Claim(
        id="C4",
        source="F Fig. 10e",
        title="routing control",
        documents="ES and LS far above DCS; about a quarter of their bytes at 196 nodes",
        judge=_c4,
    ),
    Claim(
        id="C5",
        source="F Fig. 11c",
        title="success in DCS",
        documents="every operation above 99 %; notifications never below 95 %",
        judge=_c5,
    ),
    Claim(
        id="C6",
        source="F Fig. 11b",
        title="success in LS",
        documents="insert and delete 100 %, (un)subscribe above 99 %; at 196 nodes retrieve 96 %, "
        "notifications 95 %",
        judge=_c6,
    ),
    Claim(
        id="C7",
        source="F Fig. 11a",
        title="success in ES",
        documents="falls with size, down to 78 % at 196 nodes",
        judge=_c7,
    ),
    Claim(
        id="C8",
        source="F Fig. 11d–f",
        title="latencies",
        documents="grow with size; few nodes: similar, ES slightly higher; many: notifications "
        "faster in LS than DCS, retrieves slightly faster in DCS than LS, ES slowest",
        judge=_c8,
    ),
    Claim(
        id="C9",
        source="F Fig. 12",
        title="crashes: notifications",
        documents="LS falls with the share of publishers that fail; DCS and ES stay flat",
        judge=_c9,
    ),
    Claim(
        id="C10",
        source="F Fig. 13a",
        title="transient churn: retrieves in LS",
        documents="success falls as the share that fails grows from 5 to 40 %",
        judge=_c10,
    ),
    Claim(
        id="C11",
        source="F Fig. 14a",
        title="transient churn: slowest notification",
        documents="LS from ≈ 25 s (5 %) to ≈ 100 s (40 %); DCS and ES stable",
        judge=_c11,
    ),
    Claim(
        id="C12",
        source="F 9.3.2",
        title="transient churn: operations",
        documents="DCS well above 90 %, 150–300 ms; ES above 80 %, 400–600 ms",
        judge=_c12,
    ),
    Claim(
        id="C13",
        source="F Fig. 14b",
        title="transient churn: forwarded bytes",
        documents="LS forwards much more than DCS; without churn it is the other way round",
        judge=_c13,
    ),
    Claim(
        id="C14",
        source="F Fig. 15a",
        title="mobility: notifications in DCS",
        documents="success falls as speed grows (0.6, 1.4, 2.5 m/s)",
        judge=_c14,
    ),
    Claim(
        id="C15",
        source="F Fig. 15b",
        title="mobility: retrieves",
        documents="latency lower in DCS than in ES and LS",
        judge=_c15,
    ),
    Claim(
        id="C16",
        source="F Fig. 8",
        title="notification work per node",
        documents="falls with the number of nodes in the cell",
        judge=_c16,
    ),
    Claim(
        id="C17",
        source="F Table 6",
        title="message counts",
        documents="simulated counts follow the formulas (judged: their ratio stays within a "
        "factor of 2 over all sizes)",
        judge=_c17,
    ),
    Claim(
        id="C21",
        source="F 9.2",
        title="the trace of 100 users",
        documents="4,545 inserts, 526 subscribes, 29 deletes, 15 unsubscribes",
        judge=_c21,
    ),
)
