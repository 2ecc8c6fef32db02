"""Load: the substrates under the load of a real crowd, on the simulated radio.

The load is the posts of real matches (`--posts`: a folder of files as `load/match_posts.py`
describes them), of the most active users; without it, the synthetic match, or with `--matches
synthetic-chelsea-arsenal` one of those that are fitted to real ones. A row is a substrate
with its profile, or the profile `robust` of DCS without one of its mechanisms, which says what the
mechanism brings. A finished run is kept in a file (--out), and not made again; a file belongs to
one version of the code. --show shows the rows of the finished runs.
Clauses: D28, S16.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from load.kept_runs import KeptRuns
from load.least_air import least_air
from load.match_posts import SUFFIX, MatchShare, match_trace
from msgspec.structs import replace

from thyme.model.errors import InputError
from thyme.model.time_frames import SECOND_US
from thyme.sim.results.summary import summarise_run
from thyme.sim.run import run
from thyme.sim.scenario import Profile, Scenario, Series, Substrate, Timeline, synthetic_trace
from thyme.substrates.dcs.config import ROBUST, DcsConfig
from thyme.traces.synthetic.football_match import FITTED_MATCHES
from thyme.traces.trace import Trace

SYNTHETIC = "synthetic"
OPERATIONS_S = 600


class Contender(NamedTuple):
    """What is compared: a substrate with a profile, or with other settings."""

    substrate: Substrate
    profile: Profile
    config: DcsConfig | None = None
    """The settings of DCS; None for those of the profile."""


CONTENDERS: Mapping[str, Contender] = {
    "es": Contender(Substrate.ES, Profile.PAPER),
    "ls": Contender(Substrate.LS, Profile.PAPER),
    "es-robust": Contender(Substrate.ES, Profile.ROBUST),
    "ls-robust": Contender(Substrate.LS, Profile.ROBUST),
    "dcs-paper": Contender(Substrate.DCS, Profile.PAPER),
    "dcs-robust": Contender(Substrate.DCS, Profile.ROBUST),
    "dcs-small-objects": Contender(
        Substrate.DCS, Profile.ROBUST, replace(ROBUST, small_object_bytes_max=256)
    ),
}
MECHANISMS: Mapping[str, DcsConfig] = {
    "few-announcements": replace(
        ROBUST, replication=replace(ROBUST.replication, announcements=None)
    ),
    "named-replicas": replace(ROBUST, replication=replace(ROBUST.replication, beacon_names_max=0)),
    "joint-acknowledgements": replace(
        ROBUST, notification_delivery=replace(ROBUST.notification_delivery, ack_delay_us=0)
    ),
    "compact-messages": replace(ROBUST, compact_messages=False),
    "aggregated-notifications": replace(
        ROBUST,
        notification_delivery=replace(ROBUST.notification_delivery, aggregation_us=0),
    ),
    "late-acknowledgements": replace(
        ROBUST,
        notification_delivery=replace(ROBUST.notification_delivery, busy_ack_delay_us=0),
    ),
    "measured-waits": replace(ROBUST, reply_wait_us_max=None),
    "strong-links": replace(ROBUST, routing=replace(ROBUST.routing, beacon_gap_us_max=None)),
    "shared-hops": replace(ROBUST, routing=replace(ROBUST.routing, share_hops=False)),
    "peer-reads": replace(ROBUST, replication=replace(ROBUST.replication, ask_peers=False)),
    "record-checks": replace(ROBUST, record_checks=None),
    "insert-pacing": replace(ROBUST, insert_pacing=None),
    "acknowledged-notifications": replace(
        ROBUST, notification_delivery=replace(ROBUST.notification_delivery, ack_timeout_us=None)
    ),
}
"""The profile `robust`, without one mechanism, by its name."""
WITHOUT = "dcs-robust-without-"


class Case(NamedTuple):
    """What is run in several topologies."""

    match: str
    kind: Series
    nodes: int
    load: float
    """The load in that of the match: with 2, its posts are sent in half the time."""
    contender: str

    @property
    def name(self) -> str:
        return f"{self.match} {self.kind} {self.nodes} x{self.load:g} {self.contender}"


class Figures(NamedTuple):
    """The figures of one run."""

    mb: float
    """Bytes on the air, in millions."""
    control: float
    """Share of routing control in them."""
    due: int
    """Notifications of a perfect execution."""
    recall: float
    operations: float
    """The lowest share of any kind of operation that succeeded."""
    lowest: str
    """The kind with the lowest share."""
    mean_ms: float
    """Mean latency of notifications."""
    p95_ms: float
    retransmissions: int
    delivered_per_s: float
    """Notifications delivered per second of the operations."""
    gini: float | None
    """Gini coefficient of the load of cells."""
    hottest: float | None
    """Load of the hottest cell over the mean."""
    refused: int
    """Operations that were refused, since the channel was busy or a limit was reached."""
    wrong: int
    """Notifications that should not have been, or came twice."""
    seconds: float
    """Duration of the run on the machine."""

    @property
    def retransmissions_each(self) -> float:
        return self.retransmissions / max(1.0, self.recall * self.due)


def contender_named(name: str) -> Contender:
    """Returns a contender; one without a mechanism is named after it."""
    if name.startswith(WITHOUT):
        config = MECHANISMS[name.removeprefix(WITHOUT)]
        return Contender(Substrate.DCS, Profile.ROBUST, config)
    return CONTENDERS[name]


def scenario_of(case: Case, posts: Path | None, topology: int) -> tuple[Scenario, Trace]:
    """The scenario of a case in one topology, and its trace."""
    contender = contender_named(case.contender)
    operations_us = int(OPERATIONS_S * SECOND_US / case.load)
    scenario = Scenario(
        substrate=contender.substrate,
        nodes=case.nodes,
        kind=case.kind,
        profile=contender.profile,
        failing=0.4,
        speed_m_s=2.5,
        seed=1 + topology,
        topology=topology,
        timeline=Timeline(operations_us=operations_us),
    )
    if case.match.startswith(SYNTHETIC) or posts is None:
        match = FITTED_MATCHES.get(case.match.removeprefix(f"{SYNTHETIC}-"))
        return scenario, synthetic_trace(scenario, match)
    share = MatchShare.parse(case.match)
    return scenario, match_trace(posts, share, case.nodes, scenario.seed, operations_us)


def show_least_air(cases: Sequence[Case], posts: Path | None) -> None:
    """Shows how busy the channel is at least, in the busiest minute of each load."""
    print("| load | new objects | notifications | past | busiest minute |")
    print("| --- " * 5 + "|")
    for case in dict.fromkeys(case._replace(contender="dcs-robust") for case in cases):
        air = least_air(*scenario_of(case, posts, 1))
        minute = max(range(len(air.index)), key=lambda each: sum(part[each] for part in air))
        parts = " | ".join(f"{part[minute]:.0%}" for part in air)
        print(f"| {case.name} | {parts} | {air.peak:.0%} |")


def figures(case: Case, posts: Path | None, topology: int) -> Figures:
    """Runs a case in one topology."""
    contender = contender_named(case.contender)
    scenario, trace = scenario_of(case, posts, topology)
    outcome = summarise_run(run(scenario, trace, dcs_config=contender.config))
    told, traffic, cells = outcome.notifications, outcome.traffic, outcome.cells
    shares = [(each.success, kind) for kind, each in outcome.ops.items() if each.success]
    lowest, lowest_kind = min(shares, default=(1.0, "none"))
    return Figures(
        mb=traffic.phy_bytes / 1e6,
        control=traffic.control_bytes / traffic.phy_bytes,
        due=told.expected,
        recall=1.0 if told.recall is None else told.recall,
        operations=lowest or 0.0,
        lowest=lowest_kind,
        mean_ms=told.latency_ms.mean or 0.0,
        p95_ms=told.latency_ms.p95 or 0.0,
        retransmissions=traffic.mac_retransmissions,
        delivered_per_s=told.delivered * SECOND_US / scenario.timeline.operations_us,
        gini=None if cells is None else cells.load.gini,
        hottest=None if cells is None else cells.load.max / (cells.load.mean or 1.0),
        refused=sum(each.failures.get("rejected", 0) for each in outcome.ops.values()),
        wrong=told.spurious + told.duplicates,
        seconds=outcome.wall_s,
    )


def run_name(case: Case, topology: int) -> str:
    return f"{case.name} {topology}"


def run_missing(cases: Sequence[Case], kept: KeptRuns[Figures], args: argparse.Namespace) -> None:
    """Runs what is not done, on several cores, and says so."""
    missing = [
        (case, topology)
        for topology in range(1, args.topologies + 1)
        for case in cases
        if run_name(case, topology) not in kept.done
    ]
    with ProcessPoolExecutor(args.jobs, max_tasks_per_child=1) as pool:
        futures = {
            pool.submit(figures, case, args.posts, topology): run_name(case, topology)
            for case, topology in missing
        }
        for count, future in enumerate(as_completed(futures), 1):
            name, found = futures[future], future.result()
            kept.add(name, found)
            print(
                f"{count}/{len(futures)} {name}: {found.mb:.1f} MB, operations "
                f"{found.operations:.2%}, recall {found.recall:.2%}, {found.mean_ms:.0f} ms, "
                f"{found.seconds:.0f} s",
                file=sys.stderr,
                flush=True,
            )


def spread(values: Sequence[float], form: str) -> str:
    """The mean of values and, of several, their standard deviation."""
    text = format(mean(values), form)
    return f"{text} ± {format(stdev(values), form)}" if len(values) > 1 else text


HEADINGS = (
    *("", "runs", "due", "MB", "control", "recall", "lowest operation", "notification, s"),
    *("p95, s", "delivered/s", "refused", "retransmissions", "per notification", "Gini"),
    *("hottest cell", "wrong", "run, s"),
)


def row(case: Case, found: Sequence[Figures]) -> list[str]:
    """A row of the table."""

    def column(field: str, form: str) -> str:
        values = [getattr(each, field) for each in found]
        return "–" if None in values else spread(values, form)

    kinds = ", ".join(sorted({each.lowest for each in found if each.operations < 1.0}))
    return [
        case.name,
        str(len(found)),
        f"{mean(each.due for each in found):,.0f}",
        column("mb", ".1f"),
        column("control", ".0%"),
        column("recall", ".2%"),
        column("operations", ".2%") + (f" ({kinds})" if kinds else ""),
        spread([each.mean_ms / 1e3 for each in found], ".2f"),
        spread([each.p95_ms / 1e3 for each in found], ".2f"),
        column("delivered_per_s", ".0f"),
        column("refused", ",.0f"),
        column("retransmissions", ",.0f"),
        column("retransmissions_each", ".2f"),
        column("gini", ".2f"),
        column("hottest", ".1f"),
        str(sum(each.wrong for each in found)),
        column("seconds", ".0f"),
    ]


def targets(results: Mapping[Case, Sequence[Figures]]) -> Iterator[tuple[str, float, str, float]]:
    """The targets of D28 for the profile `robust`: text, value, `<` or `>=`, target."""

    def value(case: Case, field: str) -> float:
        return mean(getattr(each, field) for each in results[case])

    for case in results:
        if case.contender != "dcs-robust":
            continue
        if case.load != 1:
            base = case._replace(load=1.0)
            if base in results:
                times = value(case, "delivered_per_s") / value(base, "delivered_per_s")
                yield f"{case.name}: notifications per second, in those at x1", times, ">=", 1.0
            continue
        calm = case.kind is Series.STATIC
        yield f"{case.name}: operations", value(case, "operations"), ">=", 0.99 if calm else 0.97
        yield f"{case.name}: recall", value(case, "recall"), ">=", 0.995 if calm else 0.98
        if calm:
            yield f"{case.name}: mean in ms", value(case, "mean_ms"), "<", 300.0
            yield f"{case.name}: p95 in ms", value(case, "p95_ms"), "<", 1_000.0
            yield f"{case.name}: Gini of cell load", value(case, "gini"), "<", 0.5
            yield f"{case.name}: hottest cell", value(case, "hottest"), "<", 3.0
        for rival in ("es", "ls"):
            other = case._replace(contender=rival)
            if calm and other in results:
                times = value(case, "mb") / value(other, "mb")
                most = 0.6 if case.nodes >= 196 else 1.0
                yield f"{case.name}: bytes, in those of {rival}", times, "<", most
                if rival == "ls":
                    each = value(case, "retransmissions_each")
                    most = value(other, "retransmissions_each")
                    yield f"{case.name}: retransmissions per notification", each, "<", most


def matches_in(posts: Path | None) -> list[str]:
    """The names of the matches in a folder; the synthetic match without a folder."""
    if posts is None:
        return [SYNTHETIC]
    found = sorted(path.name.removesuffix(SUFFIX) for path in posts.glob("*" + SUFFIX))
    if not found:
        raise InputError(f"{posts}: there is no file *{SUFFIX}")
    return found


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [*CONTENDERS, *(WITHOUT + name for name in MECHANISMS)]
    listed: dict[str, Any] = {"nargs": "*"}
    parser.add_argument("--posts", metavar="FOLDER", type=Path, help="files of real posts")
    parser.add_argument(
        "--matches",
        metavar="NAME",
        help="of the folder, default: all; NAME:0.4:0.67 for 40 %% of the posts of a match, with "
        "67 %% of their tags",
        **listed,
    )
    parser.add_argument(
        "--kinds", type=Series, default=[Series.STATIC], choices=list(Series), **listed
    )
    parser.add_argument("--sizes", metavar="NODES", type=int, default=[36, 100], **listed)
    parser.add_argument("--loads", metavar="TIMES", type=float, default=[1.0], **listed)
    parser.add_argument("--rows", default=list(CONTENDERS), choices=names, **listed)
    parser.add_argument("--topologies", metavar="N", type=int, default=1)
    parser.add_argument("--jobs", metavar="N", type=int, help="at a time; default: all cores")
    parser.add_argument("--out", metavar="FILE", type=Path, default=Path("bench-load.jsonl"))
    parser.add_argument(
        "--least", action="store_true", help="only show how busy the channel is at least"
    )
    parser.add_argument("--show", action="store_true", help="only show the finished runs")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    return parser.parse_args()


def main() -> int:
    args = parse_args()
    try:
        matches = args.matches or matches_in(args.posts)
        for match in matches:
            MatchShare.parse(match)
    except InputError as error:
        print(f"bench load: {error}", file=sys.stderr)
        return 2
    cases = [
        Case(match, kind, nodes, load, name)
        for match in matches
        for kind in args.kinds
        for nodes in args.sizes
        for load in args.loads
        for name in args.rows
    ]
    if args.least:
        show_least_air(cases, args.posts)
        return 0
    kept = KeptRuns(args.out, Figures)
    if not args.show:
        run_missing(cases, kept, args)
    results: dict[Case, list[Figures]] = {}
    print("| " + " | ".join(HEADINGS) + " |")
    print("| --- " * len(HEADINGS) + "|")
    for case in cases:
        names = [run_name(case, topology) for topology in range(1, args.topologies + 1)]
        if found := [kept.done[name] for name in names if name in kept.done]:
            results[case] = found
            print("| " + " | ".join(row(case, found)) + " |")
    print()
    verdicts = {}
    for text, value, sign, target in targets(results):
        good = value < target if sign == "<" else value >= target
        verdicts[text] = {"value": value, "target": target, "good": good}
        print(f"{'ok  ' if good else 'MISS'} {text}: {value:.4g} (target: {sign} {target:g})")
    if args.json:
        runs = {case.name: [each._asdict() for each in found] for case, found in results.items()}
        print(json.dumps({"benchmark": "load", "runs": runs, "targets": verdicts}))
    return 0 if all(verdict["good"] for verdict in verdicts.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
