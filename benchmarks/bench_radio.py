"""The radio: does it agree with ns-3, how much faster is it, and does it scale?

Four questions: (a) the self-test's table; (b) the time per send with 100 nodes against ns-3 with
the very same sends, in turns, where the `ns3` package is installed, from 100 to 4,000 a second,
and the deviations from ns-3 and from ns-3 without the gap in its carrier sense (docs/simulator.md);
(c) the time per frame with 1,000 and 2,000 nodes at the same density; (d) with --big, 10,000 nodes
that beacon for a minute.
Times are processor time of one core. Decision: docs/decisions/0007-radio-model.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
import resource
import time
from statistics import fmean, median
from typing import Any, NamedTuple

from ns3_reference.radio import Ns3, installed

from thyme.distribution import install_hint
from thyme.model.rng import derive_rng
from thyme.sim.validation import reference
from thyme.sim.validation.raw_replay import RawSend, ReplayResult, replay_sends
from thyme.sim.validation.selftest import SETS, Comparison, all_passed, run_selftest
from thyme.tools import mypyc_build

GROWTH_MOST = 1.5
MEMORY_GB_MOST = 4.0
NODES_PER_M2 = 100 / (400 * 200)
NEIGHBOUR_M = 80.0
BEACON_BYTES = 50

Positions = list[tuple[float, float]]


def timed(positions: Positions, sends: list[RawSend], seed: int = 1) -> tuple[ReplayResult, float]:
    """A replay and its processor time; making the links' tables is part of it."""
    began = time.process_time()
    result = replay_sends(positions, sends, seed=seed)
    return result, time.process_time() - began


def met(ok: bool) -> str:
    return "met" if ok else "NOT met"


# (a) agreement


def agreement(*, quick: bool) -> dict[str, Any]:
    """The self-test, set by set."""
    print(f"\n(a) Agreement with ns-3.44, {'one seed' if quick else 'all seeds'}\n")
    rows = run_selftest(quick=quick)
    print(f"{'set':<12}{'comparisons':>12}{'differ':>8}   furthest from its tolerance")
    for name in SETS:
        judged = [row for row in rows if row.set == name and row.ok is not None]
        worst = max(judged, key=lambda row: abs(row.deviation) / row.tolerance)
        differ = sum(not row.ok for row in judged)
        print(f"{name:<12}{len(judged):>12}{differ:>8}   {_words(worst)}")
    for row in rows:
        if row.ok is False:
            print(f"  differs: {_words(row)}")
    print(f"target: every comparison within its tolerance: {met(all_passed(rows))}")
    return {"comparisons": len(rows), "differ": sum(row.ok is False for row in rows)}


def _words(row: Comparison) -> str:
    off = f"{row.deviation:+.1%}" if row.relative else f"{row.deviation:+.3f}"
    most = f"{row.tolerance:.0%}" if row.relative else f"{row.tolerance:.2f}"
    return f"{row.case}, {row.quantity}: {off} of {most}"


# (b) against ns-3


class Load(NamedTuple):
    """Sends of 300 bytes by 100 nodes at random times."""

    per_second: int
    seconds: float
    faster_least: float
    """How many times faster than ns-3 we are to be."""


LOADS = (Load(100, 20, 100), Load(1000, 8, 100), Load(2000, 5, 50), Load(4000, 4, 25))
RECEPTIONS_OFF_MOST, DELAY_OFF_MOST = 0.03, 0.1


def against_ns3(rounds: int) -> dict[str, Any]:
    """Both simulators in turns, on the same sends, from a quiet channel to an overloaded one."""
    print("\n(b) Time per send, 100 nodes, both in turns; deviations are ours from ns-3's\n")
    rival = Ns3() if installed() else None
    if rival is None:
        print(f"ns-3 is not installed here ({install_hint('ns3')}): ours alone")
    found: dict[str, Any] = {}
    print(f"{'':<13}per s   ours µs   ns-3 µs   ratio   receptions     delay   without the gap")
    positions = list(reference.positions())
    for load, unicasts in itertools.product(LOADS, (0.0, 1.0)):
        sends = random_sends(positions, load.per_second, load.seconds, unicasts)
        ours, theirs, mended = [], [], []
        for number in range(rounds):
            result, cpu_s = timed(positions, sends, seed=1 + number)
            ours.append(_figures(cpu_s, result.receptions, result.delays_us(), len(sends)))
            if rival is not None:
                for longest, rows in ((False, theirs), (True, mended)):
                    other = rival.run(positions, sends, run=1 + number, longest_report=longest)
                    received = sum(other.receivers)
                    rows.append(_figures(other.cpu_s, received, other.delays_us, len(sends)))
        name = f"{'unicasts' if unicasts else 'broadcasts'} {load.per_second}"
        found[name] = _compare(name, load, ours, theirs, mended)
    if rival is not None:
        good = all(each["good"] for each in found.values())
        print(f"target: ratios 100, 100, 50, 25; receptions ±3 %, delays ±10 %: {met(good)}")
    return found


def _figures(cpu_s: float, received: int, delays_us: list[float], sends: int) -> list[float]:
    """CPU time per send in µs, receptions per send, mean delay in µs."""
    return [1e6 * cpu_s / sends, received / sends, fmean(delays_us)]


def _deviations(ours: list[list[float]], theirs: list[list[float]]) -> tuple[float, float]:
    """Our deviations in receptions and in the mean delay."""
    received, delay = (
        fmean(each[column] for each in ours) / fmean(each[column] for each in theirs) - 1
        for column in (1, 2)
    )
    return received, delay


def _compare(
    name: str,
    load: Load,
    ours: list[list[float]],
    theirs: list[list[float]],
    mended: list[list[float]],
) -> dict[str, Any]:
    """Prints a row and returns it."""
    kind, rate = name.split()
    mine_us = median(each[0] for each in ours)
    if not theirs:
        print(f"{kind:<11}{rate:>7}{mine_us:>10.1f}")
        return {"ours_us": round(mine_us, 2)}
    their_us = median(each[0] for each in theirs)
    received, delay = _deviations(ours, theirs)
    mended_received, mended_delay = _deviations(ours, mended)
    ratio = their_us / mine_us
    good = (
        ratio >= load.faster_least
        and abs(received) <= RECEPTIONS_OFF_MOST
        and abs(delay) <= DELAY_OFF_MOST
    )
    print(
        f"{kind:<11}{rate:>7}{mine_us:>10.1f}{their_us:>10.0f}{ratio:>7.0f}×"
        f"{received:>+13.1%}{delay:>+10.1%}{mended_received:>+9.1%}{mended_delay:>+9.1%}"
        f"  {met(good)}"
    )
    return {
        "ours_us": round(mine_us, 2),
        "ns3_us": round(their_us, 1),
        "ratio": round(ratio, 1),
        "receptions_off": round(received, 4),
        "delay_off": round(delay, 4),
        "mended_receptions_off": round(mended_received, 4),
        "mended_delay_off": round(mended_delay, 4),
        "good": good,
    }


# (c) scaling


def field(nodes: int) -> Positions:
    """Random places in a field twice as long as it is wide, as dense as the reference's."""
    width_m = (nodes / NODES_PER_M2 / 2) ** 0.5
    rng = derive_rng(nodes, "bench", "places")
    return [(rng.uniform(0, 2 * width_m), rng.uniform(0, width_m)) for _ in range(nodes)]


def random_sends(
    positions: Positions, per_second: float, seconds: float, unicasts: float
) -> list[RawSend]:
    """Poisson sends of 300 bytes, this share of them unicasts to a near neighbour."""
    rng = derive_rng(len(positions), "bench", "sends")
    near = _near(positions)
    sends: list[RawSend] = []
    at_s = 1.0
    while (at_s := at_s + rng.expovariate(per_second)) < 1.0 + seconds:
        source = rng.randrange(len(positions))
        to = rng.choice(near[source]) if near[source] and rng.random() < unicasts else -1
        sends.append(RawSend(len(sends), round(1e6 * at_s), source, to, 300))
    return sends


def _near(positions: Positions) -> list[list[int]]:
    cells: dict[tuple[int, int], list[int]] = {}
    for number, (x, y) in enumerate(positions):
        cells.setdefault((int(x // NEIGHBOUR_M), int(y // NEIGHBOUR_M)), []).append(number)
    found = []
    for number, (x, y) in enumerate(positions):
        column, line = int(x // NEIGHBOUR_M), int(y // NEIGHBOUR_M)
        found.append(
            [
                other
                for dx in (-1, 0, 1)
                for dy in (-1, 0, 1)
                for other in cells.get((column + dx, line + dy), ())
                if other != number
                and (positions[other][0] - x) ** 2 + (positions[other][1] - y) ** 2
                <= NEIGHBOUR_M**2
            ]
        )
    return found


def scaling(sizes: list[int], per_node: float, seconds: float) -> dict[str, Any]:
    """Equal density, equal rate per node; every size sends for as long."""
    print(f"\n(c) Time per frame by number of nodes, {per_node:g} sends per node and s\n")
    found: dict[str, Any] = {}
    print(f"{'nodes':>8}{'frames':>10}{'µs per frame':>14}{'relative':>10}")
    base_us = 0.0
    for size in sizes:
        positions = field(size)
        result, cpu_s = timed(positions, random_sends(positions, per_node * size, seconds, 0.5))
        per_frame_us = 1e6 * cpu_s / result.frames
        base_us = base_us or per_frame_us
        found[str(size)] = round(per_frame_us, 2)
        print(f"{size:>8,}{result.frames:>10,}{per_frame_us:>14.1f}{per_frame_us / base_us:>9.2f}×")
    worst = max(found.values()) / base_us
    print(f"target: at most {GROWTH_MOST} times the time with 100: {met(worst <= GROWTH_MOST)}")
    return found


# (d) big


def big(nodes: int, seconds: int) -> dict[str, Any]:
    """Everybody beacons once a second, each at a moment of its own."""
    print(
        f"\n(d) {nodes:,} nodes, {seconds} s, one beacon of {BEACON_BYTES} bytes per node and s\n"
    )
    rng = derive_rng(nodes, "bench", "phases")
    phases_us = [rng.randrange(1_000_000) for _ in range(nodes)]
    order = sorted(range(nodes), key=phases_us.__getitem__)
    sends = [
        RawSend(
            nodes * second + place, 1_000_000 * second + phases_us[node], node, -1, BEACON_BYTES
        )
        for second in range(seconds)
        for place, node in enumerate(order)
    ]
    result, cpu_s = timed(field(nodes), sends)
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    receivers = result.receptions / len(sends)
    print(
        f"{result.frames:,} frames in {cpu_s:.0f} s ({1e6 * cpu_s / result.frames:.1f} µs each), "
        f"{receivers:.1f} receivers each, peak memory {peak_gb:.2f} GB"
    )
    print(
        f"target: completes with less than {MEMORY_GB_MOST:g} GB: {met(peak_gb < MEMORY_GB_MOST)}"
    )
    return {
        "frames": result.frames,
        "cpu_s": round(cpu_s, 1),
        "peak_gb": round(peak_gb, 2),
        "receivers": round(receivers, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the self-test with all its seeds")
    parser.add_argument("--big", action="store_true", help="10,000 nodes for a minute as well")
    parser.add_argument("--rounds", type=int, default=3, help="of the comparison with ns-3")
    parser.add_argument(
        "--rate", type=float, default=100.0, help="sends per second of 100 nodes, in (c)"
    )  # fmt: skip
    parser.add_argument("--seconds", type=float, default=60.0, help="simulated, for the scaling")
    parser.add_argument("--only", choices="abcd", help="one question")
    args = parser.parse_args()
    build = mypyc_build.build_state().value
    print(f"Python {platform.python_version()}, {platform.machine()}, hot modules {build}")
    report: dict[str, Any] = {}
    if args.only in (None, "a"):
        report["agreement"] = agreement(quick=not args.full)
    if args.only in (None, "b"):
        report["ns3"] = against_ns3(args.rounds)
    if args.only in (None, "c"):
        report["us_per_frame_by_nodes"] = scaling(
            [100, 1_000, 2_000], args.rate / 100, args.seconds
        )
    if args.only == "d" or (args.only is None and args.big):
        report["big"] = big(10_000, 60)
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "hot_modules": build,
    }
    print(json.dumps({"benchmark": "radio", **machine, **report}))


if __name__ == "__main__":
    main()
