"""Thyme-DCS in the documents' scenarios: the targets, with means and standard deviations.

Static places of several sizes, publishers that crash, nodes that come and go, nodes that walk; the
profiles `paper` and `robust` on the same traces, and ES and LS beside them at the largest size.
Each case is run in several topologies, some times each. All of it takes many hours: what is done is
kept in a file (--out) and not done again, so it can be stopped and gone on with, and a part of it
chosen (--cases, --sizes, --rivals, --topologies, --runs). Ends with a table, and each target;
--show shows those of what is done.
Clauses: S16, C3, C5, C9, C12, C14.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import msgspec
from load.kept_runs import KeptRuns

from thyme.sim.results.summary import RunSummary, summarise_run
from thyme.sim.run import run
from thyme.sim.scenario import Profile, Scenario, Series, Substrate

SIZES = (16, 36, 64, 100, 144, 196)
LARGEST = SIZES[-1]
OTHERS = 64
"""How many nodes crash, come and go, or walk."""
FAILING, SPEED_M_S = 0.4, 2.5
RIVALS = (Substrate.ES, Substrate.LS)
TOPOLOGIES, RUNS = 5, 3


class Case(NamedTuple):
    """What is run several times."""

    kind: Series
    nodes: int
    substrate: Substrate
    profile: Profile

    @property
    def name(self) -> str:
        who = f"DCS {self.profile}" if self.substrate is Substrate.DCS else self.substrate.upper()
        return f"{self.kind} {self.nodes} {who}"


class Figures(NamedTuple):
    """What one run came to."""

    operations: float
    """The lowest share of any kind of operation that succeeded."""
    slowest_ms: float
    """The highest median of any kind."""
    recall: float
    wrong: int
    """Notifications that should not have been, or came twice."""
    mb: float
    """On the air."""
    control_mb: float


def cases(kinds: Sequence[Series], sizes: Sequence[int], rivals: Sequence[Substrate]) -> list[Case]:
    """What is asked for, the small ones first."""
    asked = []
    for kind in kinds:
        for nodes in sizes if kind is Series.STATIC else (OTHERS,):
            asked += [Case(kind, nodes, Substrate.DCS, profile) for profile in Profile]
            if nodes == LARGEST:
                asked += [Case(kind, nodes, rival, Profile.PAPER) for rival in rivals]
    return sorted(asked, key=lambda case: case.nodes)


def scenario_of(case: Case, topology: int, seed: int) -> Scenario:
    """One run of a case."""
    return Scenario(
        substrate=case.substrate,
        nodes=case.nodes,
        kind=case.kind,
        profile=case.profile,
        failing=FAILING,
        speed_m_s=SPEED_M_S,
        seed=seed,
        topology=topology,
    )


def figures(name: str, scenario: Scenario) -> tuple[str, Figures]:
    """Runs it."""
    outcome: RunSummary = summarise_run(run(scenario))
    tried = [each for each in outcome.ops.values() if each.success is not None]
    told = outcome.notifications
    return name, Figures(
        operations=min(each.success for each in tried if each.success is not None),
        slowest_ms=max(each.latency_ms.p50 or 0.0 for each in tried),
        recall=1.0 if told.recall is None else told.recall,
        wrong=told.spurious + told.duplicates,
        mb=outcome.traffic.phy_bytes / 1e6,
        control_mb=outcome.traffic.control_bytes / 1e6,
    )


def names(case: Case, topologies: int, runs: int) -> Iterator[tuple[str, int, int]]:
    """The runs of a case: the trace differs from one to the next, the places now and then."""
    for number in range(runs):
        for topology in range(1, topologies + 1):
            seed = 1 + number * topologies + topology
            yield f"{case.name} {topology}/{seed}", topology, seed


def run_all(wanted: Sequence[Case], kept: KeptRuns[Figures], args: argparse.Namespace) -> None:
    """Runs what is not done, on several cores, and says so."""
    missing: dict[str, Scenario] = {}
    for case in wanted:
        for name, topology, seed in names(case, args.topologies, args.runs):
            if name not in kept.done:
                missing[name] = scenario_of(case, topology, seed)
    with ProcessPoolExecutor(args.jobs, max_tasks_per_child=1) as pool:
        futures = [pool.submit(figures, name, scenario) for name, scenario in missing.items()]
        for count, future in enumerate(as_completed(futures), 1):
            name, found = future.result()
            kept.add(name, found)
            print(
                f"{count}/{len(futures)} {name}: operations {found.operations:.2%}, "
                f"notifications {found.recall:.2%}, {found.mb:.1f} MB",
                file=sys.stderr,
                flush=True,
            )


def spread(values: Iterable[float]) -> tuple[float, float]:
    """The mean and the standard deviation."""
    some = list(values)
    return mean(some), stdev(some) if len(some) > 1 else 0.0


def show(case: Case, found: Sequence[Figures]) -> None:
    """A row of the table."""
    cells = [case.name, str(len(found))]
    for field in ("operations", "recall"):
        middle, off = spread(getattr(each, field) for each in found)
        cells.append(f"{middle:.2%} ± {off:.2%}")
    for field in ("slowest_ms", "mb", "control_mb"):
        middle, off = spread(getattr(each, field) for each in found)
        cells.append(f"{middle:.1f} ± {off:.1f}")
    cells.append(str(sum(each.wrong for each in found)))
    print("| " + " | ".join(cells) + " |")


def verdicts(results: dict[Case, list[Figures]]) -> Iterator[tuple[str, float, float, bool]]:
    """Each target: what it says, what was found, the target, and whether it is met."""

    def least(case: Case, field: str, target: float) -> Iterator[tuple[str, float, float, bool]]:
        if case in results:
            value = mean(getattr(each, field) for each in results[case])
            yield f"{case.name}: {field}, at least", value, target, value >= target

    def ratio(case: Case, other: Case, field: str) -> float | None:
        if case not in results or other not in results:
            return None
        over = mean(float(getattr(each, field)) for each in results[case])
        return over / mean(float(getattr(each, field)) for each in results[other])

    paper = Case(Series.STATIC, LARGEST, Substrate.DCS, Profile.PAPER)
    yield from least(paper, "operations", 0.99)
    yield from least(paper, "recall", 0.95)
    for rival in RIVALS:
        case = Case(Series.STATIC, LARGEST, rival, Profile.PAPER)
        if (times := ratio(case, paper, "mb")) is not None:
            yield f"{case.name}: bytes, in those of DCS, more than", times, 2.0, times > 2.0
        if (times := ratio(paper, case, "control_mb")) is not None:
            yield f"control bytes of DCS in those of {rival}, below", times, 0.5, times < 0.5
    for nodes in SIZES:
        case, other = (Case(Series.STATIC, nodes, Substrate.DCS, profile) for profile in Profile)
        yield from least(other, "recall", 0.995)
        if (times := ratio(other, case, "mb")) is not None:
            yield f"{other.name}: bytes, in those of paper, at most", times, 1.25, times <= 1.25
    for kind, field, target in (
        (Series.CRASH, "recall", 0.97),
        (Series.TRANSIENT, "operations", 0.95),
        (Series.MOBILE, "recall", 0.97),
    ):
        yield from least(Case(kind, OTHERS, Substrate.DCS, Profile.ROBUST), field, target)
    slow = Case(Series.TRANSIENT, OTHERS, Substrate.DCS, Profile.ROBUST)
    if slow in results:
        value = mean(each.slowest_ms for each in results[slow])
        yield f"{slow.name}: highest median in ms, below", value, 300.0, value < 300.0
    wrong = float(sum(each.wrong for some in results.values() for each in some))
    yield "notifications that were wrong or came twice", wrong, 0.0, wrong == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    listed: dict[str, Any] = {"nargs": "*"}
    parser.add_argument(
        "--cases", type=Series, default=list(Series), choices=list(Series), **listed
    )
    parser.add_argument("--sizes", type=int, default=SIZES, help="of static places", **listed)
    parser.add_argument("--rivals", type=Substrate, default=RIVALS, choices=RIVALS, **listed)
    parser.add_argument("--topologies", metavar="N", type=int, default=TOPOLOGIES)
    parser.add_argument("--runs", metavar="N", type=int, default=RUNS, help="in each of them")
    parser.add_argument("--jobs", metavar="N", type=int, help="at a time; default: all cores")
    parser.add_argument("--out", metavar="FILE", type=Path, default=Path("bench-dcs.jsonl"))
    parser.add_argument("--show", action="store_true", help="only show what is done")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    args = parser.parse_args()
    wanted = cases(args.cases, args.sizes, args.rivals)
    kept = KeptRuns(args.out, Figures)
    if not args.show:
        run_all(wanted, kept, args)
    results: dict[Case, list[Figures]] = {}
    print("| | runs | lowest operation | notifications | ms | MB | control | wrong |")
    print("| --- " * 8 + "|")
    for case in wanted:
        runs = names(case, args.topologies, args.runs)
        if found := [kept.done[name] for name, _, _ in runs if name in kept.done]:
            results[case] = found
            show(case, found)
    print()
    targets = list(verdicts(results))
    for words, value, target, good in targets:
        print(f"{'ok  ' if good else 'MISS'} {words}: {value:.4g} (target: {target:g})")
    if args.json:
        told = {case.name: [each._asdict() for each in some] for case, some in results.items()}
        verdict = {words: {"value": value, "good": good} for words, value, _, good in targets}
        print(msgspec.json.encode({"benchmark": "dcs", "runs": told, "targets": verdict}).decode())
    return 0 if all(good for *_, good in targets) else 1


if __name__ == "__main__":
    raise SystemExit(main())
