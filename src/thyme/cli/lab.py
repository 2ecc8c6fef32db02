"""thyme lab: starts, shows and ends many real nodes on one machine, linked by a virtual radio."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.lab.supervisor import LabNode, LabState

SUBSTRATES = ("dcs", "ls", "es", "infra", "mobuser")
NO_LAB, SUCCESS = 1, 0

HELP = """\
A lab is a set of real node processes linked by a virtual radio: a datagram reaches the nodes within
--range, except for random loss (--loss). Without root, all nodes use loopback and one process is
the radio. With root, --namespaces gives each node its own network namespace. With --stations, each
station has a venue of its own, and the nodes are in the venues in turn; the periods of the stations
are short (5 s), so that objects soon come to the other venues.

examples:
  thyme lab up --nodes 12 --area 120x80
  thyme lab up --nodes 12 --area 120x80 --range 50 --loss 5%     several hops, some loss
  sudo thyme lab up --nodes 12 --namespaces
  thyme lab up --stations 2 --nodes 12                           two venues with base stations
  thyme lab up --map                                             a live map in the browser
  thyme lab up --nodes 6 --area 60x60 --substrate mobuser --range 10 --speed 1.5
  thyme lab status
  thyme lab down
"""


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser: ArgumentParser = commands.add_parser(
        "lab",
        help="run many real nodes on this machine, with a virtual radio",
        description="Run many real nodes on one machine, linked by a virtual radio.",
        epilog=HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    group = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_up(group)
    status = group.add_parser("status", help="show the state of the lab")
    status.add_argument("--json", action="store_true", help="print one JSON object")
    status.set_defaults(run=status_command)
    down = group.add_parser("down", help="end the lab and all its processes")
    down.set_defaults(run=down_command)
    for command in (status, down):
        _add_directory(command)


def _add_up(group: Subparsers) -> None:
    up: ArgumentParser = group.add_parser(
        "up", help="start a lab", epilog=HELP, formatter_class=RawDescriptionHelpFormatter
    )
    up.add_argument(
        "--nodes", metavar="N", type=int, default=12, help="number of nodes (default: 12)"
    )
    up.add_argument("--area", metavar="WxH", default="120x80", help="metres (default: 120x80)")
    up.add_argument(
        "--cell", metavar="M", type=float, default=40.0, help="cell width, metres (default: 40)"
    )
    up.add_argument("--substrate", choices=SUBSTRATES, help="default: dcs; with --stations, infra")
    up.add_argument(
        "--stations", metavar="N", type=int, default=0,
        help="base stations, each in a venue of its own (default: 0)",
    )  # fmt: skip
    up.add_argument(
        "--range",
        metavar="M",
        type=float,
        default=0.0,
        help="metres (default: 2.83 cells, as DCS needs)",
    )
    up.add_argument(
        "--speed", metavar="M/S", type=float, default=0.0,
        help="nodes of mobuser walk to random positions at this speed (default: 0)",
    )  # fmt: skip
    up.add_argument(
        "--loss", metavar="P", default="0%", help="loss rate per receiver (default: 0%%)"
    )
    up.add_argument(
        "--delay", metavar="MS", type=float, default=0.0, help="milliseconds (default: 0)"
    )
    up.add_argument(
        "--namespaces", action="store_true", help="one network namespace per node; needs root"
    )
    up.add_argument(
        "--seed", metavar="N", type=int, default=1, help="seed for positions and losses"
    )
    up.add_argument("--world", metavar="NAME", default="lab", help="default: lab")
    up.add_argument(
        "--map", metavar="PORT", type=int, nargs="?", const=0, help="serve a live map for a browser"
    )
    up.add_argument("--json", action="store_true", help="print one JSON object")
    _add_directory(up)
    up.set_defaults(run=up_command)


def _add_directory(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dir",
        metavar="DIR",
        type=Path,
        help="folder of the lab (default: in your state directory)",
    )


def up_command(args: Namespace) -> int:
    """thyme lab up"""
    from thyme.lab.lab import up
    from thyme.lab.plan import LabPlan

    width_m, height_m = parse_area(args.area)
    plan = LabPlan(
        nodes=args.nodes,
        width_m=width_m,
        height_m=height_m,
        cell_m=args.cell,
        substrate=args.substrate or ("infra" if args.stations else "dcs"),
        stations=args.stations,
        range_m=args.range,
        loss=parse_share(args.loss),
        delay_ms=args.delay,
        namespaces=args.namespaces,
        seed=args.seed,
        world=args.world,
        speed_m_s=args.speed,
        map_port=args.map,
    )
    progress = _StartProgress()
    state = up(_directory(args), plan, progress.show)
    progress.end()
    _print_state(state, as_json=args.json)
    return SUCCESS


def status_command(args: Namespace) -> int:
    """thyme lab status"""
    from thyme.lab.lab import read_status

    state = read_status(_directory(args))
    if state is None:
        print("no lab is up", file=sys.stderr)
        return NO_LAB
    _print_state(state, as_json=args.json)
    return SUCCESS


def down_command(args: Namespace) -> int:
    """thyme lab down"""
    from thyme.lab.lab import down

    count = down(_directory(args))
    print(f"{count} nodes ended" if count else "no lab is up", file=sys.stderr)
    return SUCCESS


def parse_area(text: str) -> tuple[float, float]:
    """Parses an area such as 120x80."""
    width, by, height = text.partition("x")
    try:
        if by:
            return float(width), float(height)
    except ValueError:
        pass
    raise OptionError(f"an area is written 120x80, in metres, not {safe_repr(text)}")


def parse_share(text: str) -> float:
    """Parses a share such as 5% or 0.05."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise OptionError(f"a loss is written 5% or 0.05, not {safe_repr(text)}") from None


def _directory(args: Namespace) -> Path:
    from thyme.lab.lab import default_directory

    directory: Path = args.dir or default_directory()
    return directory.absolute()


class _StartProgress:
    """Shows the number of started nodes on one line of a terminal."""

    def __init__(self) -> None:
        self._shown = -1

    def show(self, state: LabState) -> None:
        here = sum(node.state == "up" for node in state.nodes)
        if here != self._shown and sys.stderr.isatty():
            print(f"\r{here} of {len(state.nodes)} nodes are up", end="", file=sys.stderr)
            self._shown = here

    def end(self) -> None:
        if self._shown >= 0:
            print(file=sys.stderr)


def _print_state(state: LabState, *, as_json: bool) -> None:
    import msgspec

    if as_json:
        print(json.dumps(msgspec.to_builtins(state)))
        return
    from rich.table import Table

    from thyme.cli.terminal import Terminal

    plan = state.plan
    table = Table(
        title=f"{plan.substrate} on {plan.width_m:g} x {plan.height_m:g} m, "
        f"range {plan.effective_range_m:.0f} m, loss {plan.loss:.0%}",
        title_justify="left",
        title_style="bold",
        box=None,
    )
    for name in ("node", "place", "state", "in reach", "URL", "process"):
        table.add_column(name, justify="left" if name in ("state", "URL") else "right")
    for node in state.nodes:
        table.add_row(str(node.number), *_columns(node))
    for station in state.stations:
        table.add_row(f"station {station.number}", *_columns(station))
    terminal = Terminal()
    terminal.print(table)
    if state.map_url:
        terminal.print(f"map: {state.map_url}")
    terminal.print(f"datagrams carried: {state.delivered:,}, lost: {state.lost:,}")


def _columns(node: LabNode) -> tuple[str, ...]:
    place = f"{node.position[0]:g}, {node.position[1]:g}"
    return place, node.state, str(len(node.reaches)), node.url, str(node.pid)
