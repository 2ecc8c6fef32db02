"""Claims of the thesis about Thyme-Infrastructure, C23 to C37: one function for each.

Entry point: `judge_claims`. Means are given with the half width of their 95 % confidence interval;
a comparison counts only if the intervals do not overlap, or if the interval of the change does not
contain 0, where runs with the same seed have the same trace. Nothing is hard-coded except the
thesis's own values and the tolerance of each claim.
Clauses: P7, C23–C37.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from thyme.report.claims.finding import NOT_MEASURED, Finding
from thyme.report.infra.points import InfraPoints
from thyme.report.mean_point import MeanPoint
from thyme.report.scorecard import ScorecardLine, Verdict, verdict_for

GAIN_POINTS_MIN = 5.0
"""A gain of hit ratio from this on is the thesis's, which has 10 points."""
SHARE_TOLERANCE = 0.05
"""Shares of caches within this of the thesis's agree."""
WORLD_SHARES = {1.0: 0.34, 2.0: 0.72, 5.0: 0.97}
"""The part of the first world, by how much more often its users publish (thesis, figure 5.7)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InfraClaim:
    """A claim of the thesis, the function that checks it, and why a number may differ."""

    id: str
    source: str
    documents: str
    check: Callable[[InfraPoints], Finding]
    reason: str = ""


def judge_claims(points: InfraPoints) -> list[ScorecardLine]:
    """The verdicts of all claims, in order."""
    lines = []
    for claim in CLAIMS:
        found = claim.check(points)
        verdict = verdict_for(found)
        lines.append(
            ScorecardLine(
                claim=claim.id,
                source=claim.source,
                documents=claim.documents,
                title=claim.documents,
                ours=found.ours,
                verdict=verdict,
                profile="paper",
                reason=claim.reason if verdict is Verdict.DIFFERS else "",
            )
        )
    return lines


# Formatting


def _count(point: MeanPoint) -> str:
    return f"{point.mean:,.0f} ± {point.ci95:,.0f}"


def _share(point: MeanPoint) -> str:
    return f"{100 * point.mean:.1f} ± {100 * point.ci95:.1f} %"


def _percent(change: MeanPoint) -> str:
    return f"{100 * change.mean:+.0f} ± {100 * change.ci95:.0f} %"


def _ms(point: MeanPoint) -> str:
    if point.mean >= 1_000:
        return f"{point.mean / 1_000:.2f} ± {point.ci95 / 1_000:.2f} s"
    return f"{point.mean:.2f} ± {point.ci95:.2f} ms"


def _change(new: MeanPoint, old: MeanPoint) -> float:
    return new.mean / old.mean - 1 if old.mean else float("inf")


def _is_below(one: MeanPoint, other: MeanPoint) -> bool:
    return one.high < other.low


# The station alone


def _c23(points: InfraPoints) -> Finding:
    line = points.line("addresses", "infra", "station.routed")
    if len(line) < 3 or line[-1].x != 1.0:
        return NOT_MEASURED
    half = min(line, key=lambda point: abs(point.x - 0.5))
    falls = all(one.mean >= next_one.mean for one, next_one in pairwise(line))
    words = ", ".join(f"{point.x:.0%}: {_count(point)}" for point in line)
    # Steep to half of the population: at least half of the fall.
    steep = half.mean <= line[0].mean / 2
    return Finding(words, line[-1].mean == 0 and falls and steep and line[0].mean > 0)


def _c24(points: InfraPoints) -> Finding:
    ranked = points.timeline("ranking", "ranking", "requested_at.")
    unranked = points.timeline("ranking", "no-ranking", "requested_at.")
    if len(ranked) < 6 or len(unranked) < 6:
        return NOT_MEASURED
    most, last = max(point.mean for point in ranked), ranked[-1]
    middle, end = unranked[len(unranked) // 2], unranked[-1]
    ours = (
        f"with ranking at most {most:.0f}, in the last cycle {_count(last)}; without "
        f"{_count(middle)} in the middle, {_count(end)} in the last"
    )
    return Finding(ours, most <= 70 and _is_below(last, end) and end.mean > middle.mean)


def _c25(points: InfraPoints) -> Finding:
    measure = "hit_ratio.local_popularity"
    ranked = points.one("ranking", "ranking", measure)
    unranked = points.one("ranking", "no-ranking", measure)
    if ranked is None or unranked is None:
        return NOT_MEASURED
    gain = 100 * (ranked.mean - unranked.mean)
    ours = f"{_share(ranked)} with ranking, {_share(unranked)} without: {gain:+.1f} points"
    change = points.change("ranking", measure, ("ranking", 0.0), ("no-ranking", 0.0))
    return Finding(ours, change is not None and change.low > 0 and gain >= GAIN_POINTS_MIN)


def _c26(points: InfraPoints) -> Finding:
    line = points.line("worlds", "publishes", "part.1")
    everything = points.line("worlds", "all-operations", "part.1")
    if len(line) < len(WORLD_SHARES):
        return NOT_MEASURED
    words = ", ".join(f"{point.x:g}/1/1: {_share(point)}" for point in line)
    if everything:
        other = ", ".join(f"{point.x:g}/1/1: {_share(point)}" for point in everything)
        words += f" (with rates for publishes and subscriptions: {other})"
    near = [abs(point.mean - WORLD_SHARES[point.x]) <= SHARE_TOLERANCE for point in line]
    return Finding(words, all(near))


def _c27(points: InfraPoints) -> Finding:
    noticed = points.timeline("consumption", "notices", "answer_items_at.")
    unnoticed = points.timeline("consumption", "no-notices", "answer_items_at.")
    later = list(zip(noticed, unnoticed, strict=False))[1:]
    if not later:
        return NOT_MEASURED
    sums = [sum(point.mean for point in line) for line in zip(*later, strict=True)]
    saved = 1 - sums[0] / sums[1] if sums[1] else 0.0
    always = all(with_notices.mean <= without.mean for with_notices, without in later)
    fewer = sum(with_notices.mean < without.mean for with_notices, without in later)
    ours = (
        f"{100 * saved:.0f} % fewer items after the first answer; fewer in {fewer} of "
        f"{len(later)} answers"
    )
    return Finding(ours, always and saved >= 0.2)


def _c28(points: InfraPoints) -> Finding:
    line = {point.x: point for point in points.line("batches", "infra", "station.items_served")}
    if not {1.0, 2.0, 6.0} <= line.keys():
        return NOT_MEASURED
    measure = "station.items_served"
    two, six = (
        points.change("batches", measure, ("infra", batches), ("infra", 1.0))
        for batches in (2.0, 6.0)
    )
    if two is None or six is None:
        return NOT_MEASURED
    ours = (
        f"{_count(line[1.0])} with one, {_count(line[2.0])} with two ({_percent(two)}), "
        f"{_count(line[6.0])} with six ({_percent(six)})"
    )
    return Finding(ours, two.low > 0 and six.low > 0 and six.mean >= two.mean)


def _c29(points: InfraPoints) -> Finding:
    line = points.line("batches", "infra", "division_cpu_ms")
    if len(line) < 2:
        return NOT_MEASURED
    words = ", ".join(f"{point.x:g}: {point.mean:.1f} ± {point.ci95:.1f} ms" for point in line)
    return Finding(f"CPU time by batches {words}", line[-1].mean > line[0].mean)


def _c30(points: InfraPoints) -> Finding:
    found = points.all_of("unpublished_share")
    deletes = sum(point.mean * point.runs for _, _, point in points.all_of("deletes"))
    if not found:
        return NOT_MEASURED
    least = min(point.mean for _, _, point in found)
    ours = f"{deletes:,.0f} deletes in {len(found)} experiments; at least {100 * least:.1f} %"
    return Finding(ours, least == 1.0)


def _c31(points: InfraPoints) -> Finding:
    share = points.one("failover", "infra", "cell_data_share")
    failed = points.one("failover", "infra", "stable_node_failures")
    cycles = points.one("failover", "infra", "cell_data_cycles")
    if share is None or failed is None or cycles is None:
        return NOT_MEASURED
    ours = (
        f"{_share(share)} of {_count(cycles)} cycles of cell data arrived, while "
        f"{_count(failed)} stable nodes failed"
    )
    return Finding(ours, share.mean == 1.0 and failed.mean > 0)


# Compared with geographic cells


def _c32(points: InfraPoints) -> Finding:
    names = ("mobile.messages_to_mobiles", "mobile.messages", "mobile.bytes")
    found = [points.one("traffic", of, name) for of in ("infra", "dcs") for name in names]
    changes = [points.change("traffic", name, ("infra", 0.0), ("dcs", 0.0)) for name in names]
    if any(point is None for point in (*found, *changes)):
        return NOT_MEASURED
    messages, with_stations, sent, geo_messages, _, geo_sent = filter(None, found)
    fewer, more, less = filter(None, changes)
    # The thesis counts messages between mobile nodes; those to the station are counted apart.
    ours = (
        f"{_count(messages)} messages between mobile nodes instead of {_count(geo_messages)} "
        f"({_percent(fewer)}), {_count(with_stations)} with those to the station "
        f"({_percent(more)}); {sent.mean / 1e6:,.1f} ± {sent.ci95 / 1e6:.1f} MB instead of "
        f"{geo_sent.mean / 1e6:,.1f} ± {geo_sent.ci95 / 1e6:.1f} ({_percent(less)})"
    )
    return Finding(ours, fewer.high < 0 and less.high < 0)


def _c33(points: InfraPoints) -> Finding:
    received = points.line("move", "dcs", "move.received")
    sent = {point.x: point for point in points.line("move", "dcs", "move.sent")}
    logical = points.line("move", "infra", "move.sent")
    if len(received) < 2 or not logical:
        return NOT_MEASURED
    words = ", ".join(
        f"{point.x:g} nodes per cell: {_count(sent[point.x])} sent, {_count(point)} received"
        for point in received
    )
    logically = max(point.mean for point in logical)
    grows = received[0].mean < received[-1].mean
    return Finding(f"{words}; logical cells: {logically:.0f}", grows and logically == 0)


def _c34(points: InfraPoints) -> Finding:
    kinds = ("insert", "delete", "subscribe", "unsubscribe", "retrieve")
    lines = [points.line("operations", "dcs", f"latency_ms_mean.{kind}") for kind in kinds]
    small = [
        _at_least_x(points.line("downloads", variant, "download_ms"))
        for variant in ("station", "replica")
    ]
    if not all(len(line) == 2 for line in lines) or small[0] is None or small[1] is None:
        return NOT_MEASURED
    more = sum(_change(two, one) for one, two in lines) / len(lines)
    less = -_change(small[0], small[1])
    ours = (
        f"two hops {100 * more:.0f} % more latency than one; {small[0].x / 1e3:g} kB from the "
        f"station {_ms(small[0])}, from a peer {_ms(small[1])} ({100 * less:.0f} % less)"
    )
    return Finding(ours, 1.2 <= more <= 2.2 and less >= 0.2)


def _at_least_x(line: list[MeanPoint]) -> MeanPoint | None:
    return line[0] if line else None


def _c35(points: InfraPoints) -> Finding:
    found = [
        {point.x: point for point in points.line("downloads", variant, measure)}.get(5e6)
        for variant, measure in (
            ("dcs-2", "latency_ms_mean.retrieve"),
            ("dcs-1", "latency_ms_mean.retrieve"),
            ("station", "download_ms"),
        )
    ]
    two, one, station = found
    if two is None or one is None or station is None:
        return NOT_MEASURED
    ours = f"{_ms(two)} over two hops, {_ms(one)} direct, {_ms(station)} from the station"
    return Finding(ours, _is_below(one, two) and station.mean <= 0.8 * one.mean)


def _c36(points: InfraPoints) -> Finding:
    over_time = points.timeline("goal", "infra", "past_from_cells_at.")
    found = [
        points.one("goal", variant, measure)
        for measure in ("hot.bytes", "hot.energy_j")
        for variant in ("infra", "dcs")
    ]
    sent, geo_sent, energy, geo_energy = found
    if len(over_time) < 3 or not (sent and geo_sent and energy and geo_energy):
        return NOT_MEASURED
    first, last = over_time[0], over_time[-1]
    fewer, less = (
        points.change("goal", measure, ("infra", 0.0), ("dcs", 0.0))
        for measure in ("hot.bytes", "hot.energy_j")
    )
    if fewer is None or less is None:
        return NOT_MEASURED
    ours = (
        f"from {first.mean:.0f} to {last.mean:.0f} items by mobile nodes per subscription; a hot "
        f"node sends {sent.mean / 1e6:.1f} ± {sent.ci95 / 1e6:.1f} MB instead of "
        f"{geo_sent.mean / 1e6:.1f} ± {geo_sent.ci95 / 1e6:.1f} ({_percent(fewer)}); "
        f"its radio takes {_count(energy)} J more than an idle one instead of "
        f"{_count(geo_energy)} J ({_percent(less)})"
    )
    falls = last.mean <= first.mean / 2
    return Finding(ours, falls and fewer.high < 0 and less.high < 0)


def _c37(points: InfraPoints) -> Finding:
    ways = ("replica", "station", "far-station", "far-replica")
    lines = {way: points.line("downloads", way, "download_ms") for way in (*ways, "cloud")}
    large = {way: [point for point in line if 1e6 <= point.x <= 1e7] for way, line in lines.items()}
    if not all(large.values()):
        return NOT_MEASURED
    cloud = {point.x: point for point in large["cloud"]}
    beats = [
        point.x in cloud and _is_below(point, cloud[point.x])
        for way in ways
        for point in large[way]
    ]
    words = "; ".join(
        f"{way.replace('-', ' ')} {_ms(line[0])} to {_ms(line[-1])}" for way, line in large.items()
    )
    sizes = f"{large['cloud'][0].x / 1e6:g} to {large['cloud'][-1].x / 1e6:g} MB"
    return Finding(f"{sizes}: {words}", all(beats))


CLAIMS = (
    InfraClaim(
        id="C23", source="V Fig. 5.3", check=_c23,
        documents="InfraRouting messages: about 2,300 without address store, falling steeply to "
        "half the population, none at full size",
    ),
    InfraClaim(
        id="C24", source="V Fig. 5.5", check=_c24,
        documents="requests per decision cycle level off (at most 70) with ranking, grow without",
    ),
    InfraClaim(
        id="C25", source="V Fig. 5.6", check=_c25,
        documents="ranking: 10 points more hit ratio, to about 42 %",
        reason="the admission filter of the cache refuses what is seldom used, also if all items "
        "are offered; the thesis does not give the size of its cache",
    ),
    InfraClaim(
        id="C26", source="V Fig. 5.7", check=_c26,
        documents="part of world 1: 34 % at 1/1/1, 72 % at 2/1/1, 96 to 98 % at 5/1/1",
        reason="formula 4.1 converges to the share of puts, which follow downloads: a world with "
        "twice the publishes has half of all downloads, so half of the cache. 72 and 97 % need 5 "
        "and 65 times the downloads of each other world, which publishing alone does not cause",
    ),
    InfraClaim(
        id="C27", source="V Fig. 5.8", check=_c27,
        documents="consumption notices: about 40 % fewer items between stations per cycle",
    ),
    InfraClaim(
        id="C28", source="V Fig. 5.10", check=_c28,
        documents="two batch inserts serve about 25 % more files than one, six about 14,000 "
        "instead of 9,000",
    ),
    InfraClaim(
        id="C29", source="V Fig. 5.11", check=_c29,
        documents="CPU time of dividing the cache grows with batches: 496, 515 (2), 729 ms (6)",
    ),
    InfraClaim(id="C30", source="V 5.3.6", check=_c30, documents="global unpublish: 100 %"),
    InfraClaim(
        id="C31", source="V 5.3.7", check=_c31,
        documents="no cell data lost while one node of the cell lives",
    ),
    InfraClaim(
        id="C32", source="V Fig. 5.12, 5.13", check=_c32,
        documents="about 10 % fewer messages of mobile nodes than with geographic cells, 31 % "
        "fewer bytes",
        reason="nine cells of 40 m are nearly within one hop, so little is forwarded that logical "
        "cells could spare, and nodes probe their station every three seconds",
    ),
    InfraClaim(
        id="C33", source="V Fig. 5.14", check=_c33,
        documents="one move costs 96 messages with 5 nodes per cell, 2,801 with 100; 0 with "
        "logical cells",
    ),
    InfraClaim(
        id="C34", source="V Fig. 5.15", check=_c34,
        documents="two hops cost about 170 % more latency than one; from the station 33 % less "
        "than from a peer",
    ),
    InfraClaim(
        id="C35", source="V Fig. 5.16", check=_c35,
        documents="5 MB: 2 s over two hops, 0.7 s direct, 0.34 s from the station",
        reason="likely: stations of the thesis are laptops that provide the Wi-Fi; from phone to "
        "phone an object crosses the air twice, from the station once, by a faster radio; here "
        "neighbours hear each other, and all radios are 802.11g at 54 Mb/s",
    ),
    InfraClaim(
        id="C36", source="V Fig. 5.20, 5.21", check=_c36,
        documents="items returned by mobile nodes fall as the station caches 5 per 10 s; 44 % less "
        "energy of hot nodes",
        reason="the thesis measured whole phones, which process summaries of 100 kB; here they "
        "are of 1 kB, which the radio can carry, and a radio in a venue also receives what others "
        "send",
    ),
    InfraClaim(
        id="C37", source="V Fig. 5.23, 5.24", check=_c37,
        documents="all ways of downloading 1 to 10 MB beat the cloud",
    ),
)  # fmt: skip
