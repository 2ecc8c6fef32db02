"""Self-test: compares the simulated radio with ns-3, within stated tolerances.

Entry point: `run_selftest`. Runs the sends of `reference` through the radio and compares means over
several seeds with the reference's means over several runs. `ns3_trials` and `raw_replay` do the
runs.
Clause: S3.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean

import msgspec

from thyme.sim.radio.phy import Phy
from thyme.sim.radio.radio import RadioConfig
from thyme.sim.validation import ns3_trials, reference
from thyme.sim.validation.raw_replay import ReplayResult, replay_sends
from thyme.sim.validation.reference import ChainFigures, LinkFigures, LoadFigures, ReplyFigures

RECEIVERS_TOLERANCE = 0.03
DELIVERY_TOLERANCE = 0.02
DELAY_MEAN_TOLERANCE = 0.10
DELAY_TAIL_TOLERANCE = 0.20
RETRANSMISSIONS_TOLERANCE = 0.30
RETRANSMISSIONS_MIN = 50
"""With fewer retransmissions in the reference, random variation exceeds the tolerance."""
GOODPUT_TOLERANCE = 0.10
CURVE_TOLERANCE = 0.05
REPLIES_TOLERANCE = 0.05
"""Tolerance for receptions of replies. The reference is one run of 50 broadcasts."""
RECEPTIONS_MIN = 500
"""With fewer receptions in the reference, random variation exceeds the tolerance."""

SEEDS = (1, 2, 3, 4, 5)
SEEDS_CHAIN = tuple(range(1, 11))
"""More seeds for chains beyond saturation, whose single runs differ by a tenth."""
SEEDS_REPLIES = tuple(range(1, 13))
"""More seeds for simultaneous replies, for which the reference is a single run."""
SEEDS_QUICK = 3
"""The number of seeds for chains and replies in the quick self-test."""
LINK_SENDS = 1_000
BROADCAST_SENDS = 4_000
CHAINS_QUICK = ((300, 400), (300, 450), (300, 1000), (1000, 100), (1000, 200), (1000, 1000))
"""Payload bytes and sends per second: just below saturation, just above, and far beyond."""

CONFIG_BY_PROFILE = {
    "anchor": RadioConfig(),
    "cca_at_decode": RadioConfig(phy=Phy(carrier_sense_dbm=-82.0)),
}
SETS = ("a_bcast", "b_ucast", "c_chain", "link", "e_replies")


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One comparison with the reference; `ok` is None if the value is only reported."""

    set: str
    case: str
    quantity: str
    reference: float
    ours: float
    deviation: float
    """The deviation relative to the reference, or the difference if `relative` is false."""
    tolerance: float
    relative: bool
    ok: bool | None


def compare(
    where: tuple[str, str],
    quantity: str,
    expected: float,
    ours: float,
    tolerance: float,
    *,
    relative: bool = True,
    judged: bool = True,
) -> Comparison:
    """Compares a value of the simulated radio with the reference."""
    difference = ours - expected
    deviation = difference / expected if relative and expected else difference
    return Comparison(
        set=where[0],
        case=where[1],
        quantity=quantity,
        reference=expected,
        ours=ours,
        deviation=deviation,
        tolerance=tolerance,
        relative=relative,
        ok=abs(deviation) <= tolerance if judged else None,
    )


class SelfTestCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case of the self-test: its part of the reference, and the seeds to run it with."""

    set: str
    seeds: tuple[int, ...]
    expected: LoadFigures | ChainFigures | ReplyFigures | tuple[LinkFigures, ...]


def make_cases(*, quick: bool = False, sets: Sequence[str] = SETS) -> list[SelfTestCase]:
    """The cases of the self-test; the quick one has fewer seeds and chains."""
    figures = reference.figures()
    seeds = SEEDS[:1] if quick else SEEDS
    seeds_chain = SEEDS_CHAIN[:SEEDS_QUICK] if quick else SEEDS_CHAIN
    seeds_replies = SEEDS_REPLIES[:SEEDS_QUICK] if quick else SEEDS_REPLIES
    all_cases = [
        *(SelfTestCase(set=load.set, seeds=seeds, expected=load) for load in figures.loads),
        *(
            # Below saturation the result does not depend on the seed, so one is enough.
            SelfTestCase(
                set="c_chain", seeds=seeds_chain if chain.retransmissions else (1,), expected=chain
            )
            for chain in figures.chains
            if not quick or (chain.payload_bytes, chain.per_second) in CHAINS_QUICK
        ),
        SelfTestCase(set="link", seeds=seeds, expected=figures.links),
        *(
            SelfTestCase(set="e_replies", seeds=seeds_replies, expected=replies)
            for replies in figures.replies
        ),
    ]
    return [case for case in all_cases if case.set in sets]


def run_selftest(
    *,
    quick: bool = False,
    sets: Sequence[str] = SETS,
    jobs: int | None = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[Comparison]:
    """Runs all cases in `jobs` processes (None: one per core); returns all comparisons."""
    reference.require_sends()
    todo = make_cases(quick=quick, sets=sets)
    rows: list[Comparison] = []
    for done, found in enumerate(_run_cases(todo, jobs or os.cpu_count() or 1), start=1):
        rows += found
        if on_progress is not None:
            on_progress(done, len(todo))
    return rows


def all_passed(rows: Sequence[Comparison]) -> bool:
    """Whether all judged comparisons are within their tolerances."""
    return all(row.ok is not False for row in rows)


def _run_cases(todo: list[SelfTestCase], jobs: int) -> Iterator[list[Comparison]]:
    if jobs == 1:
        yield from map(run_case, todo)
        return
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(run_case, todo)


def run_case(case: SelfTestCase) -> list[Comparison]:
    """Runs one case with all its seeds and compares the means with the reference."""
    match case.expected:
        case LoadFigures():
            return _compare_load(case.expected, case.seeds)
        case ChainFigures():
            return _compare_chain(case.expected, case.seeds)
        case ReplyFigures():
            return _compare_replies(case.expected, case.seeds)
        case links:
            return _compare_links(links, case.seeds)


def _compare_load(load: LoadFigures, seeds: Sequence[int]) -> list[Comparison]:
    sends, positions = reference.sends(load), reference.positions()
    results = [replay_sends(positions, sends, seed=seed) for seed in seeds]
    where = (load.set, f"{load.per_second}/s")
    receivers = _mean(results, lambda result: result.receptions / len(sends))
    if load.set == "a_bcast":
        first = compare(where, "receivers per send", load.receivers, receivers, RECEIVERS_TOLERANCE)
    else:
        first = compare(
            where, "delivered", load.receivers, receivers, DELIVERY_TOLERANCE, relative=False
        )
    delays = [result.delays_us() for result in results]
    tails = {share: fmean(upper_quantile(each, share) for each in delays) for share in (0.95, 0.99)}
    rows = [
        first,
        compare(
            where,
            "delay mean µs",
            load.delay_mean_us,
            fmean(map(fmean, delays)),
            DELAY_MEAN_TOLERANCE,
        ),
        compare(where, "delay p95 µs", load.delay_p95_us, tails[0.95], DELAY_TAIL_TOLERANCE),
        compare(where, "delay p99 µs", load.delay_p99_us, tails[0.99], DELAY_TAIL_TOLERANCE),
    ]
    retransmissions = _mean(results, lambda result: result.retransmissions)
    return rows + _compare_retransmissions(where, load.retransmissions, retransmissions)


def _compare_chain(chain: ChainFigures, seeds: Sequence[int]) -> list[Comparison]:
    outcomes = [
        ns3_trials.run_chain(
            chain.payload_bytes,
            chain.per_second,
            seed=seed,
            config=CONFIG_BY_PROFILE[chain.profile],
        )
        for seed in seeds
    ]
    where = ("c_chain", f"{chain.profile} {chain.payload_bytes} B {chain.per_second}/s")
    goodput = fmean(outcome.goodput_per_second for outcome in outcomes)
    delay_us = fmean(fmean(outcome.delays_us) for outcome in outcomes)
    return [
        compare(where, "goodput per s", chain.goodput_per_second, goodput, GOODPUT_TOLERANCE),
        compare(where, "delay mean µs", chain.delay_mean_us, delay_us, DELAY_MEAN_TOLERANCE),
        *_compare_retransmissions(
            where,
            chain.retransmissions,
            fmean(outcome.retransmissions for outcome in outcomes),
        ),
    ]


def _compare_replies(expected: ReplyFigures, seeds: Sequence[int]) -> list[Comparison]:
    outcomes = [
        ns3_trials.run_replies(
            reference.positions(),
            reference.figures().questioners,
            reference.PAYLOAD_BYTES,
            unicast=expected.reply == "unicast",
            jitter_us=expected.jitter_us,
            seed=seed,
        )
        for seed in seeds
    ]
    where = ("e_replies", f"{expected.reply} {expected.jitter_us / 1000:g} ms")
    per_reply = fmean(outcome.receptions / outcome.replies for outcome in outcomes)
    delay_us = fmean(outcome.delay_mean_us for outcome in outcomes)
    judged = expected.receptions >= RECEPTIONS_MIN
    return [
        compare(
            where,
            "receivers per reply",
            expected.receptions / expected.replies,
            per_reply,
            REPLIES_TOLERANCE,
            judged=judged,
        ),
        compare(
            where,
            "delay mean µs",
            expected.delay_mean_us,
            delay_us,
            DELAY_MEAN_TOLERANCE,
            judged=judged,
        ),
        *_compare_retransmissions(
            where,
            expected.retransmissions,
            fmean(outcome.retransmissions for outcome in outcomes),
        ),
    ]


def _compare_links(links: Sequence[LinkFigures], seeds: Sequence[int]) -> list[Comparison]:
    """One comparison for each delivery curve: the one with the largest deviation."""
    distances_m = [link.distance_m for link in links]
    rows = []
    for payload_bytes in (50, 300, 1000, 1472):
        name = f"bcast{payload_bytes}"
        curves = [
            ns3_trials.broadcast_delivery_curve(
                distances_m, payload_bytes, count=BROADCAST_SENDS, seed=seed
            )
            for seed in seeds
        ]
        ours = [fmean(shares) for shares in zip(*curves, strict=True)]
        rows.append(
            _worst_comparison(name, distances_m, [getattr(link, name) for link in links], ours)
        )
    pairs = [
        ns3_trials.unicast_delivery_curve(distances_m, 300, count=LINK_SENDS, seed=seed)
        for seed in seeds
    ]
    shares = [fmean(share for share, _ in each) for each in zip(*pairs, strict=True)]
    rows.append(
        _worst_comparison("unicast300", distances_m, [link.unicast300 for link in links], shares)
    )
    return rows


def _worst_comparison(
    name: str, distances_m: Sequence[int], expected: Sequence[float], ours: Sequence[float]
) -> Comparison:
    rows = [
        compare(
            ("link", f"{name} at {at_m} m"), "delivered", ns3, own, CURVE_TOLERANCE, relative=False
        )
        for at_m, ns3, own in zip(distances_m, expected, ours, strict=True)
    ]
    return max(rows, key=lambda row: abs(row.deviation))


def _compare_retransmissions(
    where: tuple[str, str], expected: float, ours: float
) -> list[Comparison]:
    if expected < RETRANSMISSIONS_MIN:
        return []
    return [compare(where, "retransmissions", expected, ours, RETRANSMISSIONS_TOLERANCE)]


def _mean(results: list[ReplayResult], figure: Callable[[ReplayResult], float]) -> float:
    return fmean(figure(result) for result in results)


def upper_quantile(ordered: Sequence[int], share: float) -> int:
    """The smallest value that more than a share of the values does not exceed.

    The quantiles of a run's summary need the share only, so they may be one value lower.
    """
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
