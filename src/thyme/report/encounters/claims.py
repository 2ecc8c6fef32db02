"""Claims of the MobUser paper: one function for each, from C38 to C44.

Entry point: `judge_claims`. A claim that compares two means is judged by their 95 % confidence
intervals: intervals that overlap decide nothing. Nothing is hard-coded except the paper's own
values. A claim of several statements agrees in part if only some of them do.
Clauses: P7, C38–C44.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from thyme.report.encounters.points import NAMES, PROTOCOLS, EncounterPoints
from thyme.report.mean_point import MeanPoint
from thyme.report.scorecard import ScorecardLine, Verdict

SIMILAR = 0.05
"""Two reliabilities that differ by less are similar."""
FIRST_HOUR_S = 3_600.0
BYTES_RATIO_MIN = 4.0
"""How many times more bytes count as about six times more."""


@dataclass(frozen=True, slots=True)
class ClaimFinding:
    """Our numbers as text, and whether each statement of the claim agrees."""

    ours: str
    statements: tuple[bool, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict over all statements."""
        if not self.statements:
            return Verdict.NOT_MEASURED
        if all(self.statements):
            return Verdict.AGREES
        return Verdict.PARTLY if any(self.statements) else Verdict.DIFFERS


NOT_MEASURED = ClaimFinding("not measured in this sweep")


@dataclass(frozen=True, slots=True)
class EncounterClaim:
    """A claim of the paper and the function that checks it."""

    id: str
    source: str
    title: str
    documents: str
    check: Callable[[EncounterPoints], ClaimFinding]


def judge_claims(points: EncounterPoints) -> list[ScorecardLine]:
    """The verdicts of all claims, in order."""
    return [_judge(claim, claim.check(points)) for claim in CLAIMS]


def _judge(claim: EncounterClaim, found: ClaimFinding) -> ScorecardLine:
    return ScorecardLine(
        claim=claim.id,
        source=f"U {claim.source}",
        title=claim.title,
        documents=claim.documents,
        ours=found.ours,
        verdict=found.verdict,
        profile="paper",
    )


def _format(point: MeanPoint) -> str:
    return f"{point.mean:.1%} ± {point.ci95:.1%}"


def _by_protocol(found: dict[str, MeanPoint]) -> str:
    return ", ".join(f"{NAMES[name]} {_format(point)}" for name, point in found.items())


def _at(
    points: EncounterPoints, series: str, parameter: float, measure: str = "reliability"
) -> dict[str, MeanPoint]:
    """The point of each protocol at one value of a series."""
    return {
        name: point
        for name in PROTOCOLS
        for point in points.line(series, name, measure)
        if point.x == parameter
    }


def check_c38_lists(points: EncounterPoints) -> ClaimFinding:
    """Fig 1: rises up to 70 %, falls above. A plateau that includes 70 % is as good as the best."""
    line = points.line("lists", "mobuser", "reliability")
    if not line:
        return NOT_MEASURED
    best = max(line, key=lambda point: point.mean)
    at_70 = min(line, key=lambda point: abs(point.x - 0.7))
    as_good = [point for point in line if point.high >= best.low]
    rises = at_70.low > line[0].high
    falls = line[-1].high < at_70.low
    span = f"{as_good[0].x:.0%} to {as_good[-1].x:.0%}"
    return ClaimFinding(
        f"best at {best.x:.0%}: {_format(best)}; at 70 %: {_format(at_70)}; at "
        f"{line[0].x:.0%}: {_format(line[0])}; at {line[-1].x:.0%}: "
        f"{_format(line[-1])}; the intervals of {span} overlap with the best",
        (at_70 in as_good and rises, falls),
    )


def check_c39_time(points: EncounterPoints) -> ClaimFinding:
    """Fig 2: MobUser well above MFPS ≈ RAPID, most of it in the first hour."""
    if not points.has("time"):
        return NOT_MEASURED
    hours = points.parameters("time")[-1]
    found = _at(points, "time", hours)
    rivals = max(found["mfps"].high, found["rapid"].high)
    above = found["mobuser"].low > 1.5 * rivals
    similar = abs(found["mfps"].mean - found["rapid"].mean) < SIMILAR
    line = points.timeline("time", "mobuser", hours)
    early = [point.mean for point in line if point.x <= FIRST_HOUR_S]
    share = early[-1] / found["mobuser"].mean if early and found["mobuser"].mean else 0.0
    replaced = [
        f"{NAMES[name]} {_format(line[-1])}"
        for name in ("mfps", "rapid")
        if (line := points.line("time", f"{name}-replace", "reliability"))
    ]
    more = f" (with memories that replace the oldest event: {', '.join(replaced)})"
    return ClaimFinding(
        f"{_by_protocol(found)} after {hours:g} h; MobUser had {share:.0%} of it after 1 h"
        + (more if replaced else ""),
        (above, similar, share > 0.5),
    )


def check_c40_density(points: EncounterPoints) -> ClaimFinding:
    """Fig 3 and 4: MobUser most reliable at every density, and faster."""
    if not points.has("density"):
        return NOT_MEASURED
    sides = points.parameters("density")
    above, below, faster, notes = 0, 0, 0, []
    for side_m in sides:
        found = _at(points, "density", side_m)
        rivals = found["mfps"], found["rapid"]
        above += found["mobuser"].low > max(rival.high for rival in rivals)
        below += found["mobuser"].high < max(rival.low for rival in rivals)
        means = {
            name: _mean_over_time(points.timeline("density", name, side_m)) for name in PROTOCOLS
        }
        faster += means["mobuser"] >= max(means["mfps"], means["rapid"])
        if side_m in (sides[0], sides[-1]):
            notes.append(f"{side_m:g} m: {_by_protocol(found)}")
    undecided = len(sides) - above - below
    return ClaimFinding(
        f"MobUser highest at {above} of {len(sides)} densities, intervals overlap at {undecided}; "
        f"its mean over time is highest at {faster}; " + "; ".join(notes),
        (above > 0 and below == 0, faster == len(sides)),
    )


def _mean_over_time(line: list[MeanPoint]) -> float:
    """The mean reliability over the run: higher if events arrive earlier."""
    return sum(point.mean for point in line) / len(line) if line else 0.0


def check_c41_rare(points: EncounterPoints) -> ClaimFinding:
    """Fig 5: at 30 % MobUser more reliable than RAPID with about 6 × fewer bytes."""
    if not points.has("rare"):
        return NOT_MEASURED
    at = min(points.parameters("rare"), key=lambda value: abs(value - 0.3))
    found, sent = _at(points, "rare", at), _at(points, "rare", at, "bytes")
    ratio = sent["rapid"].mean / sent["mobuser"].mean if sent["mobuser"].mean else 0.0
    return ClaimFinding(
        f"at {at:.0%}: {_by_protocol(found)}; RAPID sends {ratio:.1f}× the bytes of MobUser",
        (found["mobuser"].low > found["rapid"].high, ratio >= BYTES_RATIO_MIN),
    )


def check_c42_rare_delays(points: EncounterPoints) -> ClaimFinding:
    """Fig 6: RAPID earlier at a low subscription probability, MobUser faster at higher ones."""
    if not points.has("rare"):
        return NOT_MEASURED
    low, high = points.parameters("rare")[0], points.parameters("rare")[-1]
    late = _at(points, "rare", low, "delay_s_p95")
    if not late.keys() >= {"mobuser", "rapid"}:
        return NOT_MEASURED
    at_high = {
        name: _mean_over_time(points.timeline("rare", name, high)) for name in ("mobuser", "rapid")
    }
    return ClaimFinding(
        f"at {low:.0%}, 95 % of the deliveries made after {late['rapid'].mean:.0f} s (RAPID) and "
        f"{late['mobuser'].mean:.0f} s (MobUser); at {high:.0%}, mean reliability over time "
        f"{at_high['rapid']:.1%} (RAPID) and {at_high['mobuser']:.1%} (MobUser)",
        (late["rapid"].high < late["mobuser"].low, at_high["mobuser"] > at_high["rapid"]),
    )


def check_c43_areas(points: EncounterPoints) -> ClaimFinding:
    """Section VIII: MobUser and RAPID above MFPS; and complete."""
    if not points.has("areas"):
        return NOT_MEASURED
    found = _at(points, "areas", points.parameters("areas")[-1])
    above = [found[name].low > found["mfps"].high for name in ("mobuser", "rapid")]
    complete = [found[name].mean > 0.98 for name in ("mobuser", "rapid")]
    return ClaimFinding(
        f"{_by_protocol(found)} (the paper gives neither the size of the areas nor the time spent "
        "in them)",
        (*above, *complete),
    )


def check_c44_exchange(points: EncounterPoints) -> ClaimFinding:
    """Section IX: an exchange takes 0.5 to 2 s."""
    lines = [
        points.line("time", "mobuser", f"exchange_s_{name}") for name in ("min", "mean", "max")
    ]
    if not all(lines):
        return NOT_MEASURED
    low, mean, high = (line[-1].mean for line in lines)
    return ClaimFinding(
        f"simulated {low:.2f} to {high:.2f} s, mean {mean:.2f} s (the time of a message is a "
        "setting; docs/mobuser.md has the times of live nodes)",
        (low >= 0.5, high <= 2.0),
    )


CLAIMS = (
    EncounterClaim(
        "C38", "Fig 1", "sizes of the lists",
        "reliability is best with the recent list at 70 %, and falls above", check_c38_lists,
    ),
    EncounterClaim(
        "C39", "Fig 2", "over time",
        "over 24 h MobUser well above MFPS ≈ RAPID; most of the spreading in the first hour",
        check_c39_time,
    ),
    EncounterClaim(
        "C40", "Fig 3, 4", "density", "MobUser most reliable at every density, and faster",
        check_c40_density,
    ),
    EncounterClaim(
        "C41", "Fig 5", "rare topics",
        "at 30 % MobUser more reliable than RAPID with ≈6× fewer bytes", check_c41_rare,
    ),
    EncounterClaim(
        "C42", "Fig 6", "rare topics over time",
        "RAPID delivers earlier (≈2000 s vs ≈9000 s) at low subscription probability; at higher "
        "ones MobUser is faster",
        check_c42_rare_delays,
    ),
    EncounterClaim(
        "C43", "VIII", "areas of interest", "MobUser and RAPID 100 %, MFPS 85 %", check_c43_areas,
    ),
    EncounterClaim(
        "C44", "IX", "one exchange", "one encounter's exchange takes 0.5–2 s", check_c44_exchange,
    ),
)  # fmt: skip
