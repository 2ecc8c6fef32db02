"""The radio: does it agree with ns-3, how much faster is it, and does it scale?

Four questions: (a) the self-test's table; (b) the time per frame with 100 nodes against ns-3 with
the very same sends, in turns, where the `ns3` package is installed; (c) the time per frame with
1,000 and 2,000 nodes at the same density; (d) with --big, 10,000 nodes that beacon for a minute.
Times are processor time of one core. Decision: docs/decisions/0007-radio-model.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import time
from statistics import fmean, median
from typing import Any

from ns3_reference.radio import Ns3, Ns3Result, installed

from thyme.distribution import install_hint
from thyme.model.rng import derive_rng
from thyme.sim.validation import reference
from thyme.sim.validation.raw_replay import RawSend, ReplayResult, replay_sends
from thyme.sim.validation.selftest import SETS, Comparison, all_passed, run_selftest
from thyme.tools import mypyc_build

FASTER_LEAST = 50.0
FASTER_AIM = 200.0
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


def against_ns3(rounds: int, per_second: int) -> dict[str, Any]:
    """Both simulators in turns, on the sends of the reference."""
    print(f"\n(b) Time per frame, 100 nodes, {per_second} sends per second\n")
    loads = [load for load in reference.figures().loads if load.per_second == per_second]
    positions = list(reference.positions())
    rival = Ns3() if installed() else None
    if rival is None:
        print(f"ns-3 is not installed here ({install_hint('ns3')}): ours alone")
    found: dict[str, Any] = {}
    print(f"{'':<12}{'frames':>9}{'ours µs':>10}{'ns-3 µs':>10}{'ratio':>8}   receivers, delay µs")
    for load in loads:
        sends = reference.sends(load)
        ours_us: list[float] = []
        theirs_us: list[float] = []
        theirs: Ns3Result | None = None
        for number in range(rounds):
            result, cpu_s = timed(positions, sends, seed=1 + number)
            ours_us.append(1e6 * cpu_s / result.frames)
            if rival is not None:
                theirs = rival.run(positions, sends, run=1 + number)
                theirs_us.append(1e6 * theirs.cpu_s / theirs.frames)
        found[load.set] = figures = {"frames": result.frames, "ours_us": round(median(ours_us), 2)}
        both = f"ours {result.receptions / load.sends:.3f}, {fmean(result.delays_us()):.1f}"
        their, ratio = "-", "-"
        if theirs is not None:
            figures["ns3_us"] = round(median(theirs_us), 1)
            figures["ratio"] = round(median(theirs_us) / median(ours_us), 1)
            their, ratio = f"{figures['ns3_us']:.0f}", f"{figures['ratio']:.0f}×"
            receivers = sum(theirs.receivers) / load.sends
            both += f"; ns-3 {receivers:.3f}, {fmean(theirs.delays_us):.1f}"
        print(
            f"{load.set:<12}{result.frames:>9,}{figures['ours_us']:>10.1f}{their:>10}{ratio:>8}"
            f"   {both}"
        )
    if rival is not None:
        least = min(figures["ratio"] for figures in found.values())
        print(f"target: at least {FASTER_LEAST:.0f} times faster: {met(least >= FASTER_LEAST)}")
        print(f"aim: {FASTER_AIM:.0f} times: {met(least >= FASTER_AIM)}")
    return found


# (c) scaling


def field(nodes: int) -> Positions:
    """Random places in a field twice as long as it is wide, as dense as the reference's."""
    width_m = (nodes / NODES_PER_M2 / 2) ** 0.5
    rng = derive_rng(nodes, "bench", "places")
    return [(rng.uniform(0, 2 * width_m), rng.uniform(0, width_m)) for _ in range(nodes)]


def mixed_sends(positions: Positions, per_node: float, seconds: float) -> list[RawSend]:
    """Poisson sends of 300 bytes, so many per node and second, every other one a unicast to a near
    neighbour."""
    rng = derive_rng(len(positions), "bench", "sends")
    near = _near(positions)
    rate = per_node * len(positions)
    sends: list[RawSend] = []
    at_s = 1.0
    while (at_s := at_s + rng.expovariate(rate)) < 1.0 + seconds:
        source = rng.randrange(len(positions))
        to = rng.choice(near[source]) if near[source] and len(sends) % 2 else -1
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
        result, cpu_s = timed(positions, mixed_sends(positions, per_node, seconds))
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
        "--rate", type=int, default=100, choices=(20, 100, 300, 600, 1000),
        help="sends per second of 100 nodes, in (b) and (c)",
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
        report["ns3"] = against_ns3(args.rounds, args.rate)
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
