"""thyme sim run: simulates one scenario and prints its measurements.

Clauses: S7, S10–S12, S14–S18, I28, U9.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thyme.cli.sim import encounters, venues
from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from collections.abc import Callable

    from thyme.cli.subparsers import Subparsers
    from thyme.sim.progress import RunProgress
    from thyme.sim.results.state_summary import CellsSummary
    from thyme.sim.results.summary import Latency, RunSummary
    from thyme.sim.scenario import Scenario
    from thyme.sim.users import Users
    from thyme.sim.venues.scenario import VenueScenario
    from thyme.traces.trace import Trace

RADIO_SUBSTRATES = ("es", "ls", "dcs")
SUBSTRATES = (*RADIO_SUBSTRATES, venues.SUBSTRATE, *encounters.SUBSTRATES)
OPTIONS_OF_SUBSTRATES: dict[tuple[str, ...], tuple[str, ...]] = {
    RADIO_SUBSTRATES: ("out", "topology", "events"),
    (venues.SUBSTRATE,): ("stations", "station_config"),
    encounters.SUBSTRATES: (
        *("hours", "side", "rare", "contacts", "exchange", "discovery"),
        *("memory_bytes", "joules_per_hour"),
    ),
}
"""Options that some substrates have and the others refuse."""
SCENARIOS = ("static", "crash", "transient", "mobile")
PROFILES = ("paper", "robust")
LECTURE = "lecture"
"""The value of --trace that stands for the synthetic lecture; files have a suffix."""
NODES = 100
RETRIEVE, WITHIN_S = 0.7, 30.0
PROGRESS_EVERY_S = 0.5

HELP = """\
scenarios (parameters of Thyme, journal article; 720 s: routing only for 30 s, nodes join until
60 s, operations for 600 s, quiet for 60 s):
  static      no node fails or moves
  crash       each node is a publisher or a subscriber; a share of the publishers (--failing)
              crashes permanently at a random instant between 200 and 300 s
  transient   a share of the nodes (--failing) alternates between 120 s up and 60 s down
  mobile      60 % of the nodes walk at up to --speed m/s, with pauses of 120 s

mobuser, mfps and rapid spread events by encounters (MobUser paper), on contacts instead of a radio:
  manhattan   1,000 nodes on the streets of a square of 450 m (--side) for 4 hours; all subscribe to
              one topic and a tenth publishes; --rare P: six topics, the rarest with probability P
  areas       six nodes with areas of interest and four walkers, 120 m, 1 hour
  waypoint    100 nodes walk to random positions in a square of 100 m, 1 hour
  contacts    recorded contacts (--contacts FILE): rows `t i j` of SocioPatterns or
              `t CONN i j up|down` of ONE, also gzipped
With --exchange reconcile, devices of mobuser compare their events before they send any.

infra has stations (Thyme-Infrastructure), each with a venue of 60 × 40 m (--area) in which all
nodes hear each other; users are spread over the venues:
  static      no node fails or moves
  mobile      30 % of the users walk to another venue, at --speed m/s
  outage      a share of the stations (--failing, default: all) fails after a third of the
              operations and returns, with empty caches, after two thirds

Without --trace, the operations are those of the synthetic football match of the seed; with
--trace lecture, those of the lecture of the thesis: two classes, good and regular students. A trace
file is a table of operations, as CSV or Parquet; docs/traces.md describes it. Users retrieve an
object they are notified of with a given probability (--retrieve), within a given time (--within).

--out DIR writes the tables (operations, notifications, traffic, energy, storage, and the cells of
dcs), summary.json, the recording of the run, and playback.html to view it in a browser. The same
scenario and seed give the same bytes, except for the wall time in the summary.

exit status: 0 success, 2 error

examples:
  thyme sim run --substrate ls --nodes 16
  thyme sim run --substrate es --nodes 36 --scenario transient --failing 0.4 --seed 3 --json
  thyme sim run --substrate dcs --nodes 36 --scenario crash --failing 0.2
  thyme sim run --substrate dcs --nodes 36 --scenario mobile --speed 2.5 --profile robust
  thyme sim run --substrate ls --nodes 36 --scenario mobile --speed 2.5 --out result
  thyme sim run --substrate dcs --nodes 36 --trace lecture
  thyme sim run --substrate mobuser --scenario manhattan --nodes 100 --hours 2 --json
  thyme sim run --substrate mobuser --nodes 100 --hours 2 --exchange reconcile
  thyme sim run --substrate rapid --scenario contacts --contacts tij_WS16.dat.gz
  thyme sim run --substrate infra --stations 2 --nodes 40 --trace lecture --json
  thyme sim run --substrate infra --stations 2 --nodes 40 --scenario outage --profile robust
"""


def add_to(group: Subparsers) -> None:
    """Adds the command to the parser."""
    parser: ArgumentParser = group.add_parser(
        "run",
        help="run a scenario and print its measurements",
        description="Run a scenario on the simulated radio and print its measurements.",
        epilog=HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--substrate", metavar="NAME", required=True, help=_join_or(SUBSTRATES))
    parser.add_argument(
        "--nodes", metavar="N", type=int, help="default: users of the trace, or 100"
    )
    parser.add_argument(
        "--scenario", metavar="NAME",
        help=_join_or((*SCENARIOS, *encounters.SCENARIOS)) + " (default: static, or manhattan)",
    )  # fmt: skip
    parser.add_argument("--hours", metavar="H", type=float, help="duration of encounters")
    parser.add_argument("--side", metavar="M", type=float, help="side of the square of encounters")
    parser.add_argument(
        "--rare", metavar="P", type=float, help="six topics, the rarest with this probability"
    )
    parser.add_argument("--contacts", metavar="FILE", type=Path, help="file of recorded contacts")
    parser.add_argument(
        "--exchange", metavar="MODE",
        help="how devices of mobuser exchange events: whole, one-for-one or reconcile",
    )  # fmt: skip
    parser.add_argument(
        "--discovery", metavar="S", type=float,
        help="seconds between two discoveries of mobuser and rapid (default: 300)",
    )  # fmt: skip
    parser.add_argument(
        "--memory-bytes", metavar="N", type=int,
        help="limit of the bytes in the memory of a device of mobuser (default: none)",
    )  # fmt: skip
    parser.add_argument(
        "--joules-per-hour", metavar="J", type=float,
        help="energy that a device may spend on encounters; a discovery takes 8 J (default: no "
        "limit)",
    )  # fmt: skip
    parser.add_argument(
        "--failing",
        metavar="SHARE",
        type=float,
        help="share of failing nodes, 0 to 1 (default: 0.2)",
    )
    parser.add_argument("--speed", metavar="M/S", type=float, help="maximum speed (default: 1.4)")
    parser.add_argument(
        "--trace", metavar="FILE", type=Path, help=f"trace of operations, a file or {LECTURE}"
    )
    parser.add_argument("--profile", metavar="NAME", help=_join_or(PROFILES) + " (default: paper)")
    parser.add_argument("--area", metavar="WxH", help="metres (default: two nodes per 40 × 40 m)")
    parser.add_argument(
        "--retrieve", metavar="P", type=float,
        help="probability that a user retrieves a notified object (default: 0.7)",
    )  # fmt: skip
    parser.add_argument(
        "--within", metavar="S", type=float,
        help="maximum seconds from notification to retrieve (default: 30)",
    )  # fmt: skip
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="random seed (default: 1)")
    parser.add_argument(
        "--topology", metavar="N", type=int, help="seed for node positions (default: --seed)"
    )
    parser.add_argument(
        "--stations", metavar="N", type=int, help="base stations of infra (default: 1)"
    )
    parser.add_argument(
        "--station-config", metavar="FILE", type=Path,
        help="settings of the stations of infra, a TOML file (docs/infra.md)",
    )  # fmt: skip
    parser.add_argument("--out", metavar="DIR", type=Path, help="write tables and a playback page")
    parser.add_argument(
        "--events", metavar="DIR", type=Path, help="export events, for thyme analytics follow"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--watch", action="store_true", help="print progress and counts during the run"
    )
    parser.set_defaults(run=run_command)


def _join_or(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + f" or {names[-1]}"


def run_command(args: Namespace) -> int:
    """thyme sim run --substrate NAME [--nodes N] [--scenario NAME] …"""
    _check_options(args)
    if args.substrate in encounters.SUBSTRATES:
        args.scenario = args.scenario or "manhattan"
        return encounters.run_command(args)
    _set_defaults(args)
    if args.substrate == venues.SUBSTRATE:
        area_m, show = _parse_area(args.area), _progress_callback(args)
        within_us = _to_us(args.within)
        return venues.run_command(args, lambda of: _venue_trace(args, of), area_m, within_us, show)
    scenario = _make_scenario(args)
    from msgspec.structs import replace

    from thyme.sim.event_export import SimulationEvents
    from thyme.sim.results.summary import summarise_run
    from thyme.sim.results.tables import result_folder
    from thyme.sim.run import run
    from thyme.sim.scenario import lecture_of

    trace = None
    if args.trace == Path(LECTURE):
        trace = lecture_of(scenario)
    elif args.trace is not None:
        trace = _read_trace(args)
        scenario = replace(scenario, nodes=trace.users)
        _check_trace(args.trace, scenario, trace)
    with ExitStack() as stack:
        folder = None if args.out is None else stack.enter_context(result_folder(args.out))
        with ExitStack() as recording:
            record = None if folder is None else recording.enter_context(folder.open_recording())
            events = None if args.events is None else SimulationEvents(args.events, scenario, trace)
            found = run(
                scenario,
                trace,
                on_progress=_progress_callback(args),
                recording_file=record,
                events=events,
            )
            if events is not None and (dropped := events.close()):
                raise OptionError(f"--events: {dropped:,} events do not fit into {args.events}")
        outcome = summarise_run(found)
        if folder is not None:
            folder.write_results(found, outcome)
    if args.json:
        import msgspec

        print(msgspec.json.encode(outcome).decode())
    else:
        _print_summary(outcome)
        if args.out is not None:
            print(f"\nwritten: {args.out}/ (open {args.out / 'playback.html'} in a browser)")
    return 0


def _check_options(args: Namespace) -> None:
    """Refuses options that are only for other substrates."""
    for substrates, options in OPTIONS_OF_SUBSTRATES.items():
        for option in options if args.substrate not in substrates else ():
            if getattr(args, option) is not None:
                names = substrates[0] if len(substrates) == 1 else _join_or(substrates)
                raise OptionError(f"--{option.replace('_', '-')} is for {names}")


def _set_defaults(args: Namespace) -> None:
    for option, default in (
        ("scenario", "static"),
        ("profile", "paper"),
        ("retrieve", RETRIEVE),
        ("within", WITHIN_S),
    ):
        if getattr(args, option) is None:
            setattr(args, option, default)


def _venue_trace(args: Namespace, scenario: VenueScenario) -> Trace | None:
    """The trace that the options ask for; None for the synthetic football match."""
    from thyme.sim.scenario import lecture_of

    if args.trace is None:
        return None
    base = scenario.without_stations()
    if args.trace == Path(LECTURE):
        return lecture_of(base)
    trace = _read_trace(args)
    from msgspec.structs import replace

    _check_trace(args.trace, replace(base, nodes=trace.users), trace)
    return trace


def _make_scenario(args: Namespace) -> Scenario:
    """Builds the scenario from the options."""
    for option, known in (
        ("substrate", SUBSTRATES),
        ("scenario", SCENARIOS),
        ("profile", PROFILES),
    ):
        given = getattr(args, option)
        if given not in known:
            raise OptionError(
                f"--{option} {safe_repr(given)} is unknown; there is {_join_or(known)}"
            )
    if args.failing is not None and args.scenario not in ("crash", "transient"):
        raise OptionError(f"--failing is for crash and transient; in {args.scenario} nobody fails")
    if args.speed is not None and args.scenario != "mobile":
        raise OptionError(f"--speed is for mobile; in {args.scenario} nobody moves")
    from thyme.sim.scenario import Profile, Scenario, Series, Substrate
    from thyme.traces.retrieve_behaviour import RetrieveBehaviour

    given = {"failing": args.failing, "speed_m_s": args.speed, "area_m": _parse_area(args.area)}
    return Scenario(
        substrate=Substrate(args.substrate),
        nodes=NODES if args.nodes is None else args.nodes,
        kind=Series(args.scenario),
        profile=Profile(args.profile),
        reaction=RetrieveBehaviour(probability=args.retrieve, within_us=_to_us(args.within)),
        seed=args.seed,
        topology=args.topology,
        **{name: value for name, value in given.items() if value is not None},
    )


def _read_trace(args: Namespace) -> Trace:
    """Reads the trace file and checks that each node has a user."""
    from thyme.sim.scenario import ScenarioError
    from thyme.traces.trace_files import read_trace

    trace = read_trace(args.trace, args.nodes)
    users = 1 + max(operation.user for operation in trace.operations)
    if users < trace.users:
        raise ScenarioError(
            f"nodes: {args.trace} has {users} users, but there are {trace.users} nodes; "
            f"use --nodes {users}"
        )
    return trace


def _check_trace(path: Path, scenario: Scenario, trace: Trace) -> None:
    from thyme.sim.scenario import check_trace
    from thyme.traces.files import InputFileError
    from thyme.traces.operations import TraceError

    try:
        check_trace(scenario, trace)
    except TraceError as error:
        raise InputFileError(str(path), str(error)) from error


def _parse_area(text: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    width, _, height = text.lower().partition("x")
    try:
        return float(width), float(height)
    except ValueError:
        raise OptionError(
            f"--area is WxH in metres, as in 400x200, not {safe_repr(text)}"
        ) from None


def _to_us(seconds: float) -> int:
    try:
        return round(1e6 * seconds)
    except (ValueError, OverflowError):
        raise OptionError(f"--within is a number of seconds, not {seconds}") from None


# Progress


def _progress_callback(args: Namespace) -> Callable[[RunProgress, Users], None] | None:
    """Returns the progress callback: one updated line on a terminal; with --watch, a new line each
    time, with counts of the operations so far. None: no progress output."""
    screen = sys.stderr
    if screen is None or not (args.watch or (screen.isatty() and not args.json)):
        return None
    shown_s = 0.0

    def show(progress: RunProgress, users: Users) -> None:
        nonlocal shown_s
        over = progress.done_us == progress.span_us
        if not over and time.monotonic() < shown_s + PROGRESS_EVERY_S:
            return
        shown_s = time.monotonic()
        if args.watch:
            print(f"{progress}; {_format_counts(users)}", file=screen, flush=True)
        else:
            print(f"\r\x1b[K{progress}", end="\n" if over else "", file=screen, flush=True)

    return show


def _format_counts(users: Users) -> str:
    issued = Counter(attempt.kind for attempt in users.attempts)
    ended = Counter(attempt.kind for attempt in users.attempts if attempt.code == "ok")
    counts = [f"{kind} {ended[kind]}/{issued[kind]}" for kind in sorted(issued)]
    return ", ".join([*counts, f"notified {users.notification_count}"])


# Text output


def _print_summary(outcome: RunSummary) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from thyme.cli.terminal import Terminal

    console = Terminal()
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("operation", no_wrap=True)
    for name in ("issued", "succeeded", "", "mean ms", "p50", "p95", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for kind, ops in outcome.ops.items():
        table.add_row(
            kind,
            f"{ops.issued:,}",
            f"{ops.ok:,}",
            _format_share(ops.success),
            *_format_latency(ops.latency_ms),
        )
    notes = outcome.notifications
    table.add_row(
        "notification",
        f"{notes.expected:,}",
        f"{notes.delivered:,}",
        _format_share(notes.recall),
        *_format_latency(notes.latency_ms),
    )
    console.print(table)
    console.print(
        f"\nnotifications: {notes.spurious} spurious, {notes.duplicates} duplicates, "
        f"{notes.unexpected} not in a perfect execution"
    )
    for line in _summary_lines(outcome):
        console.print(line, soft_wrap=True)
    console.print(_message_table(outcome))


def _summary_lines(outcome: RunSummary) -> list[str]:
    traffic, load, joules = outcome.traffic, outcome.load, outcome.energy_j
    kept = outcome.storage
    return [
        f"on the air: {traffic.phy_bytes:,} bytes in {traffic.phy_frames:,} frames; "
        f"{traffic.mac_retransmissions:,} retransmissions, {traffic.mac_exceeded:,} given up",
        f"forwarded: {traffic.forwarded_bytes:,} bytes; routing control: "
        f"{traffic.control_bytes:,} bytes",
        f"busiest node: {load.max:,.0f} messages; Gini {load.gini:.3f}; "
        f"energy per node: {joules.mean:.0f} J, at most {joules.max:.0f} J",
        f"kept per node: {kept.objects.mean:.1f} objects ({kept.bytes.mean:,.0f} bytes), at most "
        f"{kept.objects.max:.0f}; metadata of {kept.metadata.mean:.1f}, at most "
        f"{kept.metadata.max:.0f}; {kept.subscriptions.mean:.1f} subscriptions, at most "
        f"{kept.subscriptions.max:.0f}",
        *([] if outcome.cells is None else _cell_lines(outcome.cells)),
        f"{outcome.events:,} events in {outcome.wall_s:.1f} s\n",
    ]


def _cell_lines(cells: CellsSummary) -> list[str]:
    load, hot_spot, differ = cells.load, cells.hot_spot, cells.divergence
    lines = [
        f"cells: {cells.cells}, of which populated: {cells.populated_mean:.1f} on average, "
        f"{cells.populated_end} at the end; messages per cell: {load.mean:,.0f} on average, at "
        f"most {load.max:,.0f}; Gini {load.gini:.3f}",
    ]
    if hot_spot is not None:
        tags = f" ({', '.join(hot_spot.tags)})" if hot_spot.tags else ""
        lines.append(f"hot spot: cell {hot_spot.cell}{tags}, {hot_spot.share:.1%} of the load")
    lines.append(
        f"agreement within cells: {differ.pairs_differing} of {differ.pairs} pairs of nodes "
        f"differ, {differ.records_differing} of {differ.records} records are not known to all"
    )
    return lines


def _message_table(outcome: RunSummary) -> Any:
    """Table of messages predicted by the analytical model and simulated messages."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("messages, each hop counted", no_wrap=True)
    table.add_column("by formula", justify="right")
    table.add_column("simulated", justify="right")
    formula, simulated = outcome.analytical.formula, outcome.analytical.simulated
    names = ("insert", "delete", "subscribe", "unsubscribe", "notification", "retrieve")
    for name in (*names, "acknowledgement", "upkeep"):
        by_formula = f"{getattr(formula, name):,.0f}" if name in names else "-"
        table.add_row(name, by_formula, f"{simulated.get(name, 0):,}")
    return table


def _format_share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _format_latency(latency: Latency) -> tuple[str, ...]:
    values = latency.mean, latency.p50, latency.p95, latency.max
    return tuple("-" if value is None else f"{value:,.1f}" for value in values)
