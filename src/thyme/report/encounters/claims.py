"""Claims of the MobUser paper: one function for each, from C38 to C44.

Entry point: `judge_claims`. A claim that compares two means is judged by their 95 % confidence
intervals: intervals that overlap decide nothing. Nothing is hard-coded except the paper's own
values.
Clauses: P7, C38–C44.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from thyme.report.encounters.points import NAMES, PROTOCOLS, EncounterPoints, Point

REPRODUCED, PARTLY, DIFFERS, OPEN = "reproduced", "partly", "not reproduced", "not measured"
SIMILAR = 0.05
"""Two reliabilities that differ by less are similar."""
FIRST_HOUR_S = 3_600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimVerdict:
    """A claim, the paper's value, ours, and the verdict."""

    claim: str
    source: str
    paper: str
    ours: str
    verdict: str
    reason: str = ""


def judge_claims(points: EncounterPoints) -> list[ClaimVerdict]:
    """The verdicts of all claims, in order."""
    return [judge(points) for judge in _JUDGES]


def _format(point: Point) -> str:
    return f"{point.mean:.1%} ± {point.ci95:.1%}"


def _by_protocol(found: dict[str, Point]) -> str:
    return ", ".join(f"{NAMES[name]} {_format(point)}" for name, point in found.items())


def _verdict(*parts: bool) -> str:
    return REPRODUCED if all(parts) else PARTLY if any(parts) else DIFFERS


def _last(points: EncounterPoints, series: str, measure: str = "reliability") -> dict[str, Point]:
    return {name: points.line(series, name, measure)[-1] for name in PROTOCOLS}


def _c38(points: EncounterPoints) -> ClaimVerdict:
    line = points.line("lists", "mobuser", "reliability")
    paper = "reliability is best with the recent list at 70 %"
    if not line:
        return ClaimVerdict(claim="C38", source="Fig 1", paper=paper, ours="-", verdict=OPEN)
    best = max(line, key=lambda point: point.mean)
    at_70 = min(line, key=lambda point: abs(point.parameter - 0.7))
    is_best = at_70.parameter == best.parameter
    rises = at_70.low > line[0].high
    tie = at_70.high >= best.low
    return ClaimVerdict(
        claim="C38",
        source="Fig 1",
        paper=paper,
        ours=f"best at {best.parameter:.0%}: {_format(best)}; at 70 %: {_format(at_70)}; "
        f"at {line[0].parameter:.0%}: {_format(line[0])}",
        verdict=REPRODUCED if is_best else PARTLY if tie or rises else DIFFERS,
        reason="" if is_best else "the intervals of 70 % and of the best overlap" if tie else "",
    )


def _c39(points: EncounterPoints) -> ClaimVerdict:
    paper = "over 24 h MobUser well above MFPS ≈ RAPID; most of the spreading in the first hour"
    if not points.has("time"):
        return ClaimVerdict(claim="C39", source="Fig 2", paper=paper, ours="-", verdict=OPEN)
    found = _last(points, "time")
    rivals = max(found["mfps"].high, found["rapid"].high)
    above = found["mobuser"].low > 1.5 * rivals
    similar = abs(found["mfps"].mean - found["rapid"].mean) < SIMILAR
    hours = points.parameters("time")[-1]
    early = [
        point
        for point in points.timeline("time", "mobuser", hours)
        if point.parameter <= FIRST_HOUR_S
    ]
    share = early[-1].mean / found["mobuser"].mean if early and found["mobuser"].mean else 0.0
    replaced = [
        f"{NAMES[name]} {_format(line[-1])}"
        for name in ("mfps", "rapid")
        if (line := points.line("time", f"{name}-replace", "reliability"))
    ]
    return ClaimVerdict(
        claim="C39",
        source="Fig 2",
        paper=paper,
        ours=f"{_by_protocol(found)} after {hours:g} h; MobUser had {share:.0%} of it after 1 h",
        verdict=_verdict(above, similar, share > 0.5),
        reason="with memories that replace the oldest event: " + ", ".join(replaced)
        if replaced
        else "",
    )


def _c40(points: EncounterPoints) -> ClaimVerdict:
    paper = "MobUser most reliable at every density, and faster"
    if not points.has("density"):
        return ClaimVerdict(claim="C40", source="Fig 3, 4", paper=paper, ours="-", verdict=OPEN)
    sides = points.parameters("density")
    above, faster, notes = [], [], []
    for number, side_m in enumerate(sides):
        found = {name: points.line("density", name, "reliability")[number] for name in PROTOCOLS}
        above.append(found["mobuser"].mean >= max(found["mfps"].mean, found["rapid"].mean))
        halves = {
            name: _mean_over_time(points.timeline("density", name, side_m)) for name in PROTOCOLS
        }
        faster.append(halves["mobuser"] >= max(halves["mfps"], halves["rapid"]))
        if number in (0, len(sides) - 1):
            notes.append(f"{side_m:g} m: {_by_protocol(found)}")
    return ClaimVerdict(
        claim="C40",
        source="Fig 3, 4",
        paper=paper,
        ours=f"highest at {sum(above)} of {len(sides)} densities, fastest at {sum(faster)}; "
        + "; ".join(notes),
        verdict=_verdict(all(above), all(faster)),
    )


def _mean_over_time(line: list[Point]) -> float:
    """The mean reliability over the run: higher if events arrive earlier."""
    return sum(point.mean for point in line) / len(line) if line else 0.0


def _c41(points: EncounterPoints) -> ClaimVerdict:
    paper = "at 30 % MobUser more reliable than RAPID with ≈6× fewer bytes"
    at = _nearest(points.parameters("rare"), 0.3)
    if not points.has("rare") or at is None:
        return ClaimVerdict(claim="C41", source="Fig 5", paper=paper, ours="-", verdict=OPEN)
    number = points.parameters("rare").index(at)
    found = {name: points.line("rare", name, "reliability")[number] for name in PROTOCOLS}
    sent = {name: points.line("rare", name, "bytes")[number].mean for name in PROTOCOLS}
    ratio = sent["rapid"] / sent["mobuser"] if sent["mobuser"] else 0.0
    return ClaimVerdict(
        claim="C41",
        source="Fig 5",
        paper=paper,
        ours=f"at {at:.0%}: {_by_protocol(found)}; RAPID sends {ratio:.1f}× the bytes of MobUser",
        verdict=_verdict(found["mobuser"].low > found["rapid"].high, ratio >= 2),
    )


def _c42(points: EncounterPoints) -> ClaimVerdict:
    paper = (
        "RAPID delivers earlier (≈2000 s vs ≈9000 s) at low subscription probability; at higher "
        "ones MobUser is faster"
    )
    if not points.has("rare"):
        return ClaimVerdict(claim="C42", source="Fig 6", paper=paper, ours="-", verdict=OPEN)
    low, high = points.parameters("rare")[0], points.parameters("rare")[-1]
    late = {name: points.line("rare", name, "delay_s_p95")[0].mean for name in PROTOCOLS}
    at_high = {
        name: _mean_over_time(points.timeline("rare", name, high)) for name in ("mobuser", "rapid")
    }
    return ClaimVerdict(
        claim="C42",
        source="Fig 6",
        paper=paper,
        ours=f"at {low:.0%}, 95 % of the deliveries made after {late['rapid']:.0f} s (RAPID) and "
        f"{late['mobuser']:.0f} s (MobUser); at {high:.0%}, mean reliability over time "
        f"{at_high['rapid']:.1%} (RAPID) and {at_high['mobuser']:.1%} (MobUser)",
        verdict=_verdict(late["rapid"] < late["mobuser"], at_high["mobuser"] > at_high["rapid"]),
    )


def _c43(points: EncounterPoints) -> ClaimVerdict:
    paper = "areas of interest: MobUser and RAPID 100 %, MFPS 85 %"
    if not points.has("areas"):
        return ClaimVerdict(claim="C43", source="VIII", paper=paper, ours="-", verdict=OPEN)
    found = _last(points, "areas")
    below = [found[name].low > found["mfps"].high for name in ("mobuser", "rapid")]
    complete = [found[name].mean > 0.98 for name in ("mobuser", "rapid")]
    return ClaimVerdict(
        claim="C43",
        source="VIII",
        paper=paper,
        ours=_by_protocol(found),
        verdict=_verdict(*below, *complete),
        reason="the paper gives neither the size of the areas nor the time spent in them",
    )


def _c44(points: EncounterPoints) -> ClaimVerdict:
    paper = "one encounter's exchange takes 0.5–2 s"
    lines = {
        name: points.line("time", "mobuser", f"exchange_s_{name}")
        for name in ("min", "mean", "max")
    }
    if not all(lines.values()):
        return ClaimVerdict(claim="C44", source="IX", paper=paper, ours="-", verdict=OPEN)
    low, mean, high = (lines[name][-1].mean for name in ("min", "mean", "max"))
    return ClaimVerdict(
        claim="C44",
        source="IX",
        paper=paper,
        ours=f"simulated {low:.2f} to {high:.2f} s, mean {mean:.2f} s",
        verdict=_verdict(low >= 0.5, high <= 2.0),
        reason="the time of a message is a setting; docs/mobuser.md has the times of live nodes",
    )


def _nearest(values: list[float], wanted: float) -> float | None:
    return min(values, key=lambda value: abs(value - wanted), default=None)


_JUDGES: tuple[Callable[[EncounterPoints], ClaimVerdict], ...] = (
    _c38,
    _c39,
    _c40,
    _c41,
    _c42,
    _c43,
    _c44,
)
