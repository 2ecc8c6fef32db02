"""thyme sim run: simulates one scenario and prints its measurements.

Options: `run_options`; text output: `run_output`.
Clauses: S7, S10–S12, S14–S18, I28, U9.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli.sim import encounters, venues
from thyme.cli.sim.run_options import (
    HELP,
    LECTURE,
    NODES,
    PROFILES,
    SCENARIOS,
    SUBSTRATES,
    add_options,
    check_options,
    join_or,
    set_defaults,
)
from thyme.cli.sim.run_output import close_events, print_summary, progress_callback
from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.sim.scenario import Scenario
    from thyme.sim.venues.scenario import VenueScenario
    from thyme.traces.trace import Trace


def add_to(group: Subparsers) -> None:
    """Adds the command to the parser."""
    parser: ArgumentParser = group.add_parser(
        "run",
        help="run a scenario and print its measurements",
        description="Run a scenario on the simulated radio and print its measurements.",
        epilog=HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    add_options(parser)
    parser.set_defaults(run=run_command)


def run_command(args: Namespace) -> int:
    """thyme sim run --substrate NAME [--nodes N] [--scenario NAME] …"""
    check_options(args)
    if args.substrate in encounters.SUBSTRATES:
        args.scenario = args.scenario or "manhattan"
        return encounters.run_command(args)
    set_defaults(args)
    if args.substrate == venues.SUBSTRATE:
        area_m, show = _parse_area(args.area), progress_callback(args)
        within_us = _to_us(args.within)
        return venues.run_command(args, lambda of: _venue_trace(args, of), area_m, within_us, show)
    scenario = _make_scenario(args)
    from msgspec.structs import replace

    from thyme.sim.event_export import SimulationEvents
    from thyme.sim.results.summary import summarise_run
    from thyme.sim.results.tables import result_folder
    from thyme.sim.run import run

    trace = _drawn_trace(args, scenario)
    if trace is None and args.trace is not None:
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
                on_progress=progress_callback(args),
                recording_file=record,
                events=events,
            )
            close_events(args, events)
        outcome = summarise_run(found)
        if folder is not None:
            folder.write_results(found, outcome)
    if args.json:
        import msgspec

        print(msgspec.json.encode(outcome).decode())
    else:
        print_summary(outcome)
        if args.out is not None:
            print(f"\nwritten: {args.out}/ (open {args.out / 'playback.html'} in a browser)")
    return 0


def _venue_trace(args: Namespace, scenario: VenueScenario) -> Trace | None:
    """The trace that the options ask for; None for the synthetic football match."""
    if args.trace is None:
        return None
    base = scenario.without_stations()
    drawn = _drawn_trace(args, base)
    if drawn is not None:
        return drawn
    trace = _read_trace(args)
    from msgspec.structs import replace

    _check_trace(args.trace, replace(base, nodes=trace.users), trace)
    return trace


def _drawn_trace(args: Namespace, scenario: Scenario) -> Trace | None:
    """The lecture or the match that --trace names, drawn by the seed; None for a file."""
    if args.trace is None:
        return None
    from thyme.sim.scenario import lecture_of, synthetic_trace
    from thyme.traces.synthetic.football_match import FITTED_MATCHES

    name = str(args.trace)
    if name == LECTURE:
        return lecture_of(scenario)
    return synthetic_trace(scenario, FITTED_MATCHES[name]) if name in FITTED_MATCHES else None


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
                f"--{option} {safe_repr(given)} is unknown; there is {join_or(known)}"
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
