"""thyme sim run for the encounter substrates: MobUser, MFPS and RAPID.

Clauses: U7, U8, U9.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable

    from thyme.sim.encounters.contact_files import ContactTrace
    from thyme.sim.encounters.run import EncounterSummary
    from thyme.sim.encounters.scenario import EncounterScenario
    from thyme.sim.progress import RunProgress
    from thyme.traces.trace import Trace

SUBSTRATES = ("mobuser", "mfps", "rapid")
LECTURE = "lecture"
SCENARIOS = ("manhattan", "areas", "waypoint", "contacts")
DEFAULTS = {"manhattan": (1_000, 4.0), "areas": (10, 1.0), "waypoint": (100, 1.0)}
"""Nodes and hours of each scenario; those of recorded contacts are in the file."""
SIDES_M = {"manhattan": 450.0, "areas": 120.0, "waypoint": 100.0}
EXCHANGES = ("whole", "one-for-one", "reconcile")
OTHER_OPTIONS = (
    *("failing", "speed", "topology", "out", "watch"),
    *("profile", "area", "retrieve", "within"),
)
"""Options of the radio's scenarios that have no meaning here."""


def run_command(args: Namespace) -> int:
    """thyme sim run --substrate mobuser|mfps|rapid --scenario NAME …"""
    _check_options(args)
    try:
        from thyme.sim.encounters.run import run_encounters
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise OptionError(
            "encounters are computed with numpy, which is not installed: "
            "pip install 'thyme-store[sim]'"
        ) from error
    recorded, trace = _read_contacts(args), _read_trace(args)
    scenario = _make_scenario(args, recorded, trace)
    summary = run_encounters(scenario, recorded, trace=trace, on_progress=_progress_callback(args))
    if args.json:
        import msgspec

        print(msgspec.json.encode(summary).decode())
    else:
        _print_summary(summary)
    return 0


def _check_options(args: Namespace) -> None:
    if args.scenario not in SCENARIOS:
        raise OptionError(
            f"--scenario {safe_repr(args.scenario)} is unknown for {args.substrate}; there is "
            + ", ".join(SCENARIOS)
        )
    for option in OTHER_OPTIONS:
        if getattr(args, option) not in (None, False):
            raise OptionError(f"--{option} is for es, ls and dcs, not for {args.substrate}")
    if (args.contacts is not None) != (args.scenario == "contacts"):
        raise OptionError("--contacts FILE and --scenario contacts go together")
    if args.contacts is not None and (args.nodes is not None or args.side is not None):
        raise OptionError("--nodes and --side are in the file of --contacts: leave them out")
    if args.exchange is not None and args.exchange not in EXCHANGES:
        raise OptionError(
            f"--exchange {safe_repr(args.exchange)} is unknown; there is {', '.join(EXCHANGES)}"
        )
    if args.discovery is not None:
        if args.substrate == "mfps":
            raise OptionError("--discovery is not for mfps: its period follows the neighbours")
        if not 0.1 <= args.discovery <= 86_400:
            raise OptionError(f"--discovery is from 0.1 to 86,400 s, not {args.discovery:g}")
    for option in ("exchange", "memory_bytes"):
        if getattr(args, option) is not None and args.substrate != "mobuser":
            name = option.replace("_", "-")
            raise OptionError(f"--{name} is for mobuser, not for {args.substrate}")
    if args.hours is not None and not (math.isfinite(args.hours) and args.hours > 0):
        raise OptionError(f"--hours is a number above 0, not {args.hours}")


def _read_trace(args: Namespace) -> Trace | None:
    """The operations of the users, from a file; None: those of the scenario."""
    if args.trace is None:
        return None
    if args.rare is not None:
        raise OptionError("--rare draws the operations of users: not with --trace")
    if args.trace.name == LECTURE:
        from thyme.traces.synthetic.lecture_trace import LectureConfig, lecture_trace

        hours = args.hours or DEFAULTS["manhattan"][1]
        users = args.nodes or DEFAULTS["waypoint"][0]
        lasts_us = max(1, round(hours * 3_600_000_000))
        return lecture_trace(args.seed, LectureConfig(users=users, lasts_us=lasts_us))
    from thyme.traces.trace_files import read_trace

    return read_trace(args.trace)


def _read_contacts(args: Namespace) -> ContactTrace | None:
    if args.contacts is None:
        return None
    from thyme.sim.encounters.contact_files import read_contacts

    return read_contacts(args.contacts)


def _make_scenario(
    args: Namespace, recorded: ContactTrace | None, trace: Trace | None
) -> EncounterScenario:
    from thyme.sim.encounters.scenario import (
        HOUR_US,
        EncounterKind,
        EncounterProtocol,
        EncounterScenario,
    )
    from thyme.substrates.encounters.config import DISCOVERY_US, ExchangeMode

    if recorded is None:
        nodes, hours = DEFAULTS[args.scenario]
        side_m = SIDES_M[args.scenario]
        if trace is not None:
            nodes = max(2, trace.users)
    else:
        nodes, hours = recorded.nodes, recorded.duration_us / HOUR_US
        side_m = SIDES_M["manhattan"]
    return EncounterScenario(
        protocol=EncounterProtocol(args.substrate),
        kind=EncounterKind(args.scenario),
        nodes=nodes if args.nodes is None else args.nodes,
        duration_us=round((hours if args.hours is None else args.hours) * HOUR_US),
        side_m=side_m if args.side is None else args.side,
        rare_probability=args.rare,
        exchange=ExchangeMode(args.exchange or ExchangeMode.WHOLE),
        memory_bytes=args.memory_bytes,
        joules_per_hour=args.joules_per_hour,
        discovery_us=DISCOVERY_US if args.discovery is None else round(args.discovery * 1e6),
        seed=args.seed,
    )


def _progress_callback(args: Namespace) -> Callable[[RunProgress], None] | None:
    screen = sys.stderr
    if screen is None or args.json or not screen.isatty():
        return None

    def show(progress: RunProgress) -> None:
        over = progress.done_us == progress.span_us
        print(f"\r\x1b[K{progress}", end="\n" if over else "", file=screen, flush=True)

    return show


def _print_summary(summary: EncounterSummary) -> None:
    events, traffic, delay = summary.events, summary.traffic, summary.events.delay_s
    reliability = "-" if events.reliability is None else f"{events.reliability:.1%}"
    print(
        f"{summary.protocol}, {summary.scenario}: {summary.nodes:,} nodes, {summary.hours:g} h, "
        f"{summary.contacts:,} contacts"
    )
    print(
        f"events: {events.published:,} published, {events.delivered:,} of {events.due:,} "
        f"deliveries made, reliability {reliability}"
    )
    if delay.mean is not None:
        print(f"delay: mean {delay.mean:,.0f} s, p50 {delay.p50:,.0f} s, p95 {delay.p95:,.0f} s")
    print(
        f"traffic: {traffic.bytes:,} bytes in {traffic.messages:,} messages, "
        f"{traffic.exchanges:,} exchanges, {traffic.broken:,} messages broken off"
    )
    print(f"energy: about {traffic.joules_per_node_hour:.0f} J per node and hour")
    for reason, count in summary.dropped.items():
        print(f"  refused or left out: {count:,} {reason}")
    print(f"{summary.wall_s:.1f} s")
