"""thyme sim run --substrate infra: simulates venues with base stations.

Clauses: S11, S13, S14, I28.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli.sim.run_output import close_events
from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.sim.progress import RunProgress
    from thyme.sim.users import Users
    from thyme.sim.venues.scenario import VenueScenario
    from thyme.sim.venues.summary import StationSummary, VenueSummary
    from thyme.traces.trace import Trace

SUBSTRATE = "infra"
SCENARIOS = ("static", "mobile", "outage")
STATIONS = 1
ShowProgress = Callable[["RunProgress", "Users"], None]


def run_command(
    args: Namespace,
    trace_of: Callable[[VenueScenario], Trace | None],
    area_m: tuple[float, float] | None,
    within_us: int,
    on_progress: ShowProgress | None,
) -> int:
    """Runs a scenario with stations and prints its summary; `trace_of` returns the trace that the
    options ask for, None for the default one."""
    scenario = make_scenario(args, area_m, within_us)
    from msgspec.structs import replace

    from thyme.sim.event_export import SimulationEvents
    from thyme.sim.venues.run import simulate_venues

    trace = trace_of(scenario)
    if trace is not None:
        scenario = replace(scenario, nodes=trace.users)
    events = None if args.events is None else SimulationEvents(args.events, scenario, trace)
    summary = simulate_venues(scenario, trace, on_progress=on_progress, events=events)
    close_events(args, events)
    if args.json:
        import msgspec

        print(msgspec.json.encode(summary).decode())
    else:
        _print_summary(summary)
    return 0


def make_scenario(
    args: Namespace, area_m: tuple[float, float] | None, within_us: int
) -> VenueScenario:
    """Builds the scenario from the options; refuses options of other substrates."""
    if args.scenario not in SCENARIOS:
        known = ", ".join(SCENARIOS[:-1]) + f" or {SCENARIOS[-1]}"
        raise OptionError(
            f"--scenario {safe_repr(args.scenario)} is not for infra; there is {known}"
        )
    if args.failing is not None and args.scenario != "outage":
        raise OptionError(f"--failing is for outage; in {args.scenario} no station fails")
    if args.speed is not None and args.scenario != "mobile":
        raise OptionError(f"--speed is for mobile; in {args.scenario} nobody moves")
    from thyme.sim.scenario import Profile
    from thyme.sim.venues.scenario import VenueScenario, VenueSeries
    from thyme.traces.retrieve_behaviour import RetrieveBehaviour

    given = {
        "failing": args.failing,
        "speed_m_s": args.speed,
        "venue_m": area_m,
        "nodes": args.nodes,
        "stations": args.stations,
        "gap_m": args.gap,
        "settings": _read_settings(args.station_config),
        "wires": _wire_config(args),
    }
    return VenueScenario(
        kind=VenueSeries(args.scenario),
        profile=Profile(args.profile),
        reaction=RetrieveBehaviour(probability=args.retrieve, within_us=within_us),
        seed=args.seed,
        **{name: value for name, value in given.items() if value is not None},
    )


def _wire_config(args: Namespace) -> object:
    """The wires between stations that the options ask for; None for the default ones."""
    given = {
        name: value
        for name, value in (
            ("latency_us", _scaled(args.wire_latency, 1e3, "--wire-latency")),
            ("bits_per_s", _scaled(args.wire_rate, 1e6, "--wire-rate")),
            ("loss", args.wire_loss),
        )
        if value is not None
    }
    from thyme.sim.networks.wired_links import WireConfig

    return WireConfig(**given) if given else None


def _scaled(value: float | None, factor: float, option: str) -> int | None:
    if value is None:
        return None
    try:
        return round(factor * value)
    except (ValueError, OverflowError):
        raise OptionError(f"{option} is a number, not {value}") from None


def _read_settings(path: Path | None) -> object:
    """The settings in a station's configuration file; its addresses are of no use here."""
    if path is None:
        return None
    from thyme.substrates.infra.config_file import parse_station_config

    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--station-config {path}: {error}") from None
    return parse_station_config(text, str(path)).settings


def _print_summary(summary: VenueSummary) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from thyme.cli.terminal import Terminal

    console = Terminal()
    table = Table(box=SIMPLE_HEAD, show_edge=False)
    table.add_column("operation", no_wrap=True)
    for name in ("issued", "succeeded", "", "mean ms", "p95"):
        table.add_column(name, justify="right", no_wrap=True)
    rows = [
        (kind, ops.issued, ops.ok, ops.success, ops.latency_ms) for kind, ops in summary.ops.items()
    ]
    for name, notes in (
        ("notification, all venues", summary.notifications),
        ("notification, own venue", summary.notifications_in_venue),
    ):
        rows.append((name, notes.expected, notes.delivered, notes.recall, notes.latency_ms))
    for kind, issued, succeeded, share, latency in rows:
        mean, p95 = latency.mean, latency.p95
        table.add_row(
            kind,
            f"{issued:,}",
            f"{succeeded:,}",
            "-" if share is None else f"{share:.1%}",
            "-" if mean is None else f"{mean:,.1f}",
            "-" if p95 is None else f"{p95:,.1f}",
        )
    console.print(table)
    notes = summary.notifications
    console.print(f"\nnotifications: {notes.spurious} spurious, {notes.duplicates} duplicates")
    for station in summary.stations:
        console.print(_station_line(station), soft_wrap=True)
    traffic, energy = summary.traffic, summary.energy_j
    console.print(
        f"on the air: {traffic.phy_bytes:,} bytes in {traffic.phy_frames:,} frames; "
        f"energy per mobile node: {energy.mean:.0f} J, at most {energy.max:.0f} J",
        soft_wrap=True,
    )
    console.print(f"{summary.events:,} events in {summary.wall_s:.1f} s")


def _station_line(station: StationSummary) -> str:
    if not station.is_up:
        return f"station {station.station}: down at the end"
    local = station.caches["local_popularity"]
    cells = ", ".join(str(count) for count in station.cells.values())
    return (
        f"station {station.station}: {station.items_served:,} downloads served, "
        f"{station.downloads_missed:,} not cached, {station.forced_downloads:,} fetched from afar; "
        f"local popularity cache {local['entries']:.0f} of {local['capacity']:.0f}, hit ratio "
        f"{local['hit_ratio']:.1%}; {station.items_sent:,} items to other stations "
        f"({station.wired_bytes:,} bytes), {station.items_received:,} from them; "
        f"{station.cell_data:,} cycles of cell data; cells: {cells}"
    )
