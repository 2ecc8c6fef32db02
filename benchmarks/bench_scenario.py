"""A whole scenario: how does its time compare with that of ns-3 for the routing alone?

Two questions: (a) the 720 s of the static series with 100 nodes, substrate by substrate, against
ns-3 with DSDV on the same places and nothing to carry, in turns; (b) with --sizes, the time per
operation by the number of nodes. Times are processor time of one core: ours of all that `run` does,
from the trace to the tables (ES has a server on top); ns-3's of its simulation alone. ns-3 runs for
a shorter span and is extrapolated at its cost per second once the first dumps have spread; so are
we with --quick.
Clauses: S6, S11.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from ns3_reference.dsdv import DUMP_S, DsdvCost, Ns3Dsdv
from ns3_reference.radio import installed

from thyme.distribution import install_hint
from thyme.model.time_frames import SECOND_US
from thyme.sim.deployment import Deployment
from thyme.sim.progress import RunProgress
from thyme.sim.run import Run, run
from thyme.sim.scenario import Scenario, Substrate, Timeline, synthetic_trace
from thyme.sim.validation import reference
from thyme.tools import mypyc_build
from thyme.traces.trace import Trace

NODES = 100
SPREAD_PERIODS = 2
"""After so many of ns-3's dumps everybody knows everybody, and its cost per second is taken."""
QUICK_S = 120
REFERENCE_S = 120
FRAMES_OFF_MOST = 0.2
"""ns-3's frames per node and second vary with the places; beyond this it is another rival."""


class Row(NamedTuple):
    """A substrate and what is asked of it."""

    substrate: Substrate
    share_most: float
    """Of ns-3's time for the routing alone."""
    growth_most: float | None = None
    """Of the time per operation, from the first number of nodes to the last."""

    @property
    def name(self) -> str:
        return f"Thyme-{self.substrate.upper()}"


ROWS = (
    Row(Substrate.ES, 1 / 10),
    Row(Substrate.LS, 1 / 10),
    Row(Substrate.DCS, 1 / 20, growth_most=2.0),
)


class Ours(NamedTuple):
    """One run of ours."""

    run: Run
    cpu_s: float
    """Of what was run."""
    whole_s: float
    """Of the whole timeline: the same, or extrapolated."""


def met(ok: bool) -> str:
    return "met" if ok else "NOT met"


def ours(substrate: Substrate, nodes: int, seconds: int, seed: int) -> Ours:
    """Runs so many of a scenario's seconds. Those left out cost what those since the operations
    began have cost."""
    began_s = time.process_time()
    whole = Scenario(substrate=substrate, nodes=nodes, seed=seed)
    origin_s = whole.timeline.origin_us // SECOND_US
    marks_s: dict[int, float] = {}

    def mark(progress: RunProgress, *_: object) -> None:
        marks_s[progress.done_us // SECOND_US] = time.process_time() - began_s

    result = run(*first(whole, seconds), on_progress=mark)
    cpu_s = time.process_time() - began_s
    left_s = whole.timeline.end_us // SECOND_US - seconds
    per_second = (marks_s[seconds] - marks_s[origin_s]) / (seconds - origin_s)
    return Ours(result, cpu_s, cpu_s + left_s * per_second)


def first(whole: Scenario, seconds: int) -> tuple[Scenario, Trace]:
    """The first seconds of a scenario, and of its trace."""
    since_us = seconds * SECOND_US - whole.timeline.origin_us
    operations_us = min(since_us, whole.timeline.operations_us)
    timeline = Timeline(operations_us=operations_us, quiet_us=since_us - operations_us)
    trace = synthetic_trace(whole)
    cut = Trace(trace.users, tuple(op for op in trace.operations if op.at_us <= operations_us))
    scenario = Scenario(
        substrate=whole.substrate, nodes=whole.nodes, seed=whole.seed, timeline=timeline
    )
    return scenario, cut


# (a) against ns-3


def against_ns3(
    rows: Sequence[Row], *, seconds: int, dumps: int, rounds: int, seed: int
) -> dict[str, Any]:
    """Ours, ns-3, ours, ns-3, and so on."""
    whole = Scenario(substrate=rows[0].substrate, nodes=NODES, seed=seed)
    whole_s = whole.timeline.end_us // SECOND_US
    print(f"\n(a) {NODES} nodes that stay, {whole_s} s\n")
    rival = Ns3Dsdv() if installed() else None
    if rival is None:
        print(f"ns-3 is not installed here ({install_hint('ns3')}): ours alone")
    if seconds < whole_s:
        print(f"ours: the first {seconds} s, extrapolated at the cost since operations began")
    places = Deployment(whole, Trace(NODES, ())).positions[:NODES]
    mine: dict[Row, list[Ours]] = {row: [] for row in rows}
    theirs: list[DsdvCost] = []
    for number in range(rounds):
        for row in rows:
            mine[row].append(ours(row.substrate, NODES, seconds, seed))
            print(f"turn: {row.name}, {mine[row][-1].cpu_s:.1f} s", flush=True)
            if rival is not None:
                theirs.append(rival.run(places, dumps, run=1 + number))
                print(f"turn: ns-3, {_by_dump(theirs[-1])}", flush=True)
    their_s = _the_rival(theirs, whole_s) if theirs else None
    print(f"\n{'':<12}{'events':>12}{'frames':>11}{'s':>9}{'share':>9}{'target':>7}{'ratio':>8}")
    found: dict[str, Any] = {} if their_s is None else {"ns3": _figures(theirs, whole_s)}
    for row, runs in mine.items():
        found[str(row.substrate)] = _show(row, runs, their_s)
    for row in rows if their_s is not None else ():
        ok = found[row.substrate]["share"] <= row.share_most
        print(f"target: {row.name} in at most 1/{1 / row.share_most:.0f} of ns-3's time: {met(ok)}")
    return found


def _show(row: Row, runs: list[Ours], their_s: float | None) -> dict[str, Any]:
    """One line of the table; returns its figures."""
    cpu_s = median(one.whole_s for one in runs)
    figures = {
        "cpu_s": round(cpu_s, 2),
        "events": runs[0].run.events,
        "frames": runs[0].run.measurements.frames,
    }
    line = f"{row.name:<12}{figures['events']:>12,}{figures['frames']:>11,}{cpu_s:>9.1f}"
    if their_s is not None:
        figures["share"] = round(cpu_s / their_s, 4)
        figures["ratio"] = round(their_s / cpu_s, 2)
        line += f"{figures['share']:>9.1%}{row.share_most:>7.0%}{figures['ratio']:>7.1f}×"
    print(line)
    return figures


def _the_rival(theirs: list[DsdvCost], whole_s: int) -> float:
    """What ns-3 takes; and whether it is the rival that was measured for the reference."""
    span_s, spread_s = theirs[0].span_s, DUMP_S * SPREAD_PERIODS
    print(f"\nns-3: {span_s} s, extrapolated at the cost per second from {spread_s} s on,")
    print("      by when the first dumps have spread")
    for cost in theirs:
        print(
            f"      {cost.cpu_s_per_second(SPREAD_PERIODS):.3f} s per second, "
            f"{cost.cpu_s_of(whole_s, SPREAD_PERIODS):.0f} s in all"
        )
    frames = theirs[0].frames_of(REFERENCE_S, SPREAD_PERIODS) / NODES / REFERENCE_S
    expected = next(idle.frames for idle in reference.dsdv_figures().idle if idle.nodes == NODES)
    ok = abs(frames / expected - 1) <= FRAMES_OFF_MOST
    print(
        f"      {frames:.2f} frames per node and second in {REFERENCE_S} s "
        f"({expected:.2f} in the reference): "
        f"{'the right rival' if ok else 'NOT the rival of the reference'}"
    )
    return median(cost.cpu_s_of(whole_s, SPREAD_PERIODS) for cost in theirs)


def _by_dump(cost: DsdvCost) -> str:
    return ", ".join(f"{cpu_s:.1f}" for cpu_s in cost.cpu_s_by_period()) + f" s per {DUMP_S} s"


def _figures(theirs: list[DsdvCost], whole_s: int) -> dict[str, Any]:
    return {
        "cpu_s": [round(cost.cpu_s_of(whole_s, SPREAD_PERIODS), 1) for cost in theirs],
        "span_s": theirs[0].span_s,
        "cpu_s_per_s": [round(cost.cpu_s_per_second(SPREAD_PERIODS), 4) for cost in theirs],
        "frames_in_120_s": round(theirs[0].frames_of(REFERENCE_S, SPREAD_PERIODS)),
    }


# (b) by the number of nodes


def scaling(rows: Sequence[Row], sizes: list[int], *, seconds: int, seed: int) -> dict[str, Any]:
    """Equal density; the users are the most active of the same match."""
    print(f"\n(b) Time per operation by number of nodes, the first {seconds} s\n")
    print(
        f"{'':<12}{'nodes':>8}{'operations':>12}{'events':>13}{'s':>9}{'ms per op':>11}"
        f"{'growth':>9}{'µs per event':>14}"
    )
    found: dict[str, Any] = {}
    for row in rows:
        costs_ms: dict[int, float] = {}
        for size in sizes:
            one = ours(row.substrate, size, seconds, seed)
            operations = len(one.run.attempts)
            costs_ms[size] = 1e3 * one.cpu_s / operations
            print(
                f"{row.name:<12}{size:>8,}{operations:>12,}{one.run.events:>13,}{one.cpu_s:>9.1f}"
                f"{costs_ms[size]:>11.2f}{costs_ms[size] / costs_ms[sizes[0]]:>8.2f}×"
                f"{1e6 * one.cpu_s / one.run.events:>14.1f}",
                flush=True,
            )
        found[str(row.substrate)] = {str(size): round(ms, 3) for size, ms in costs_ms.items()}
        if row.growth_most is not None:
            ok = costs_ms[sizes[-1]] <= row.growth_most * costs_ms[sizes[0]]
            print(f"target: {row.name} at most {row.growth_most:g} times: {met(ok)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [str(row.substrate) for row in ROWS]
    parser.add_argument("--only", choices=names, help="one substrate")
    parser.add_argument("--quick", action="store_true", help=f"the first {QUICK_S} s of ours")
    parser.add_argument("--rounds", type=int, default=1, help="of all turns")
    parser.add_argument("--dumps", type=int, default=3, help=f"ns-3's span, in {DUMP_S} s")
    parser.add_argument(
        "--sizes", type=int, nargs="*", metavar="NODES", help="(b) instead; 100 and 1000 if bare"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.dumps <= SPREAD_PERIODS:
        parser.error(f"--dumps: more than {SPREAD_PERIODS}, by when the first have spread")
    build = mypyc_build.build_state().value
    print(
        f"Python {platform.python_version()}, {platform.machine()}, hot modules {build}, "
        f"seed {args.seed}"
    )
    rows = [row for row in ROWS if args.only in (None, row.substrate)]
    seconds = QUICK_S if args.quick else Timeline().end_us // SECOND_US
    report: dict[str, Any] = {}
    if args.sizes is None:
        report["against_ns3"] = against_ns3(
            rows, seconds=seconds, dumps=args.dumps, rounds=args.rounds, seed=args.seed
        )
    else:
        report["ms_per_operation_by_nodes"] = scaling(
            rows, args.sizes or [NODES, 1_000], seconds=seconds, seed=args.seed
        )
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "hot_modules": build,
    }
    print(json.dumps({"benchmark": "scenario", **machine, "seconds": seconds, **report}))


if __name__ == "__main__":
    main()
