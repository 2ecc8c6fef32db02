"""thyme node, thyme server, thyme worlds: run a node in a live world, or list live worlds.

Clauses: M21, M24, E5, B5.
"""

from __future__ import annotations

import gc
import json
import os
import re
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thyme.cli.option_values import parse_instant
from thyme.distribution import install_hint
from thyme.model.errors import OptionError, safe_repr
from thyme.model.time_frames import as_instant_us, format_instant

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.live.node_options import NodeOptions
    from thyme.live.sockets import NetworkConfig
    from thyme.model.ids import NodeId
    from thyme.model.worlds import Area, GeoPoint, WorldInfo

DATA_DIR = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "thyme"
HTTP_ADDRESS = "127.0.0.1:8473"
GPSD_ADDRESS = "127.0.0.1:2947"
COLLECTION_THRESHOLDS = (50_000, 20, 20)
"""How many objects that may be in a cycle are made before the garbage collector runs: a busy node
makes thousands at a time, and nearly all are freed without it."""

NODE_HELP = """\
Nodes find each other by multicast on one network interface and store their state in DIR. A node
runs until Ctrl-C or SIGTERM; started again, it keeps its identity. Applications on this machine
connect to the address given by --http; see docs/live.md.

substrates:
  dcs   the devices of an area store objects together (the default with --area)
  ls    each device stores its own objects (the default without --area)
  es    one server stores all objects: start it with thyme server
  infra  as dcs, within one hall, with the help of a base station if there is one (thyme
        station); every device names the substrate, and none creates the world (docs/infra.md)
  auto  as es while a server of the world is in reach, as dcs in a crowd if all devices name the
        same --area, else as ls; every device names it, and none creates the world
  mobuser  no network: devices exchange events with those they meet; every device names the
        substrate, and none creates the world (docs/mobuser.md)

examples:
  thyme node --world lisbon --create
  thyme node --world lisbon
  thyme node --world lisbon --create --area 400x200 --cell 40 --position 120,80
  thyme node --world lisbon --substrate infra
  thyme node --world lisbon --substrate mobuser
"""
SERVER_HELP = """\
Creates a world with substrate es and runs its server. Other devices join with thyme node.

example:
  thyme server --world lisbon
"""


def add_to(commands: Subparsers) -> None:
    """Adds the commands to the parser."""
    node = _add_parser(
        commands, "node", "run a node in a live world", "Run a node in a live world.", NODE_HELP
    )
    node.add_argument(
        "--substrate",
        metavar="S",
        help="dcs, ls, es, infra, mobuser or auto (default: that of the world)",
    )
    node.add_argument("--create", action="store_true", help="create the world; fails if it exists")
    node.add_argument("--area", metavar="WxH", help="area of a new dcs world, in metres")
    node.add_argument("--cell", metavar="M", type=float, help="cell width in metres (default: 40)")
    node.add_argument("--range", metavar="M", type=float,
        help="range of the radio in metres, instead of --cell: makes the largest cells whose "
        "neighbours hear each other")  # fmt: skip
    node.add_argument("--keys", metavar="K",
        help="new dcs world: choose the key of a conjunction by random, rarest, nearest or first "
        "(default: as the profile does)")  # fmt: skip
    node.add_argument("--replicas", metavar="all|N",
        help="new dcs world: how many nodes of a cell store an object (default: as the profile "
        "does)")  # fmt: skip
    node.add_argument("--cells", metavar="N", type=int,
        help="infra: number of cells while there is no station, the same on all devices "
        "(default: 4)")  # fmt: skip
    node.add_argument("--position", metavar="X,Y", help="position of the device (default: centre)")
    node.add_argument("--gps", metavar="A:PORT", nargs="?", const=GPSD_ADDRESS,
        help=f"take the position from gpsd at this address (default: {GPSD_ADDRESS})")  # fmt: skip
    node.add_argument("--station", metavar="ID", action="append", default=[],
        help="infra: use only this base station (default: the first one that answers)")  # fmt: skip
    node.add_argument("--origin", metavar="LAT,LON",
        help="south-west corner of the area of a new world, in degrees")  # fmt: skip
    node.set_defaults(run=node_command)
    server = _add_parser(
        commands, "server", "run the server of an es world", "Run an ES server.", SERVER_HELP
    )
    server.set_defaults(
        run=node_command, substrate="es", create=True, area=None, cell=None, range=None, cells=None,
        keys=None, replicas=None, position=None, gps=None, origin=None, station=[],
    )  # fmt: skip
    worlds = commands.add_parser(
        "worlds",
        help="list live worlds in range",
        description="Listen for nodes in range and list their worlds.",
    )
    add_network(worlds)
    worlds.add_argument(
        "--seconds", metavar="S", type=float, default=2.5, help="how long to listen (default: 2.5)"
    )
    worlds.add_argument("--json", action="store_true", help="print one JSON array")
    worlds.set_defaults(run=worlds_command)


def _add_parser(
    commands: Subparsers, name: str, purpose: str, description: str, epilog: str
) -> ArgumentParser:
    parser: ArgumentParser = commands.add_parser(
        name,
        help=purpose,
        description=description,
        epilog=epilog,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--world", metavar="NAME", required=True, help="name of the world")
    parser.add_argument("--wid", metavar="ID", help="identifier of a new world")
    parser.add_argument("--profile", metavar="P",
        help="robust, or paper for the protocol of the papers, in a new world (default: robust)"
    )  # fmt: skip
    parser.add_argument("--ends", metavar="TIME",
        help="end of a new world: a span from now (2h, 3d) or an instant (2026-07-10T21:00Z)"
    )  # fmt: skip
    parser.add_argument("--secret-file", metavar="FILE", type=Path,
        help="file with the secret of a closed world; or set THYME_SECRET")  # fmt: skip
    parser.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        default=DATA_DIR,
        help=f"folder for stored data (default: {DATA_DIR})",
    )
    parser.add_argument("--memory", action="store_true", help="store nothing on disk")
    add_network(parser)
    parser.add_argument("--port", metavar="N", type=int, default=0, help="UDP port (default: any)")
    parser.add_argument(
        "--http",
        metavar="A:PORT",
        default=HTTP_ADDRESS,
        help=f"address for applications (default: {HTTP_ADDRESS})",
    )
    parser.add_argument("--http-token", metavar="FILE", type=Path,
        help="applications need the token in this file, which is made if missing: "
        "thyme ... --node http://:TOKEN@127.0.0.1:PORT")  # fmt: skip
    parser.add_argument("--patience", metavar="S", type=float, default=10.0,
        help="how long to search for the world (default: 10)")  # fmt: skip
    parser.add_argument("--quota", metavar="Q",
        help="storage limit per peer (default: bytes=4G,objects=100000,"
        "subscriptions=1000)")  # fmt: skip
    parser.add_argument("--retention", metavar="R",
        help="storage limit of this node, beyond which it removes the oldest objects: "
        "age=7d,bytes=10G,objects=100000, or some of these (default: unlimited)")  # fmt: skip
    parser.add_argument("--events", metavar="DIR", type=Path,
        help="export events to DIR, for thyme analytics follow")  # fmt: skip
    parser.add_argument("--log-json", action="store_true", help="log as JSON, one line per event")
    return parser


def add_network(parser: ArgumentParser) -> None:
    """Adds the network options."""
    parser.add_argument(
        "--interface",
        metavar="I",
        action="append",
        default=[],
        help="name or address of an interface, may be repeated, or all (default: automatic)",
    )
    parser.add_argument("--group", metavar="A:PORT",
        help="multicast group, or a relay's address; the same on all nodes")  # fmt: skip
    parser.add_argument("--peer", metavar="A:PORT", action="append", default=[],
        help="a node that multicast does not reach; it needs --peer for this one, too")  # fmt: skip


def node_command(args: Namespace) -> int:
    """thyme node --world NAME"""
    require_live()
    from thyme.daemon import logs
    from thyme.daemon.daemon import DaemonOptions, run

    if args.gps is not None and args.position is not None:
        raise OptionError("use --position or --gps, not both")
    running = DaemonOptions(
        node=node_options(args),
        http=parse_address(args.http, "--http"),
        gps=None if args.gps is None else parse_address(args.gps, "--gps"),
        events=args.events,
        token_file=args.http_token,
    )
    logs.configure(as_json=args.log_json)
    coroutine_runner()(run(running))
    return 0


def worlds_command(args: Namespace) -> int:
    """thyme worlds"""
    require_live()
    import msgspec

    from thyme.daemon.status.collect_status import describe_world
    from thyme.live.discovery import list_worlds

    found = coroutine_runner()(list_worlds(network_config(args), args.seconds))
    if args.json:
        print(json.dumps(msgspec.to_builtins([describe_world(world) for world in found])))
        return 0
    for world in found:
        details = "".join(f"  {detail}" for detail in world_details(world))
        print(f"{world.name}  {world.substrate or 'closed'}  {world.world_id}{details}")
    if not found:
        print("no world found")
    return 0


def world_details(world: WorldInfo) -> list[str]:
    """The settings of a world in words, as far as it has them."""
    details = []
    if world.area is not None:
        cell = f"cells of {world.cell_m:g} m"
        details.append(f"{world.area.width_m:g}x{world.area.height_m:g} m, {cell}")
    if world.cells is not None:
        details.append(f"{world.cells} cells")
    if (settings := world.settings) is not None:
        details.append(f"profile {settings.profile}")
        details += [] if settings.key_choice is None else [f"{settings.key_choice} keys"]
        if settings.replicas is not None:
            details.append(f"{settings.replicas or 'all'} replicas")
    if world.ends_us is not None:
        details.append(f"ends {format_instant(world.ends_us)}")
    return details


def node_options(args: Namespace) -> NodeOptions:
    """Builds the node options from the command line of `thyme node`."""
    from thyme.api.arguments import make_settings
    from thyme.cli.option_values import parse_quota, parse_replicas, parse_retention
    from thyme.live.node_factory import QUOTA
    from thyme.live.node_options import NodeOptions
    from thyme.substrates.common.catalogue import Retention

    area = None if args.area is None else _parse_area(args.area)
    return NodeOptions(
        world=args.world,
        substrate=args.substrate,
        create=args.create,
        area=area,
        cell_m=_cell_m(args),
        cells=args.cells,
        ends_us=None if args.ends is None else _parse_end(args.ends),
        world_id=args.wid,
        position=None
        if args.position is None
        else _parse_pair(args.position, ",", "--position X,Y"),
        origin=None if args.origin is None else _parse_origin(args.origin),
        secret=_read_secret(args.secret_file),
        data=None if args.memory else args.data,
        network=network_config(args),
        discovery_timeout_s=args.patience,
        quota=QUOTA if args.quota is None else parse_quota(args.quota, QUOTA),
        retention=Retention() if args.retention is None else parse_retention(args.retention),
        settings=make_settings(args.profile, args.keys, parse_replicas(args.replicas)),
        stations=tuple(map(_parse_station, args.station)),
    )


def _cell_m(args: Namespace) -> float | None:
    """The width of the cells: given, or that for the range of the radio (D2)."""
    if args.range is None:
        return args.cell if args.cell is not None or args.area is None else 40.0
    if args.cell is not None:
        raise OptionError("use --cell or --range, not both")
    from thyme.live.node_factory import cell_m_for_range

    return cell_m_for_range(args.range)


def network_config(args: Namespace) -> NetworkConfig:
    """Builds the network configuration from the options."""
    from thyme.live.interfaces import resolve_addresses
    from thyme.live.sockets import MULTICAST_GROUP, MULTICAST_PORT, NetworkConfig

    group, group_port = (
        (MULTICAST_GROUP, MULTICAST_PORT)
        if args.group is None
        else parse_address(args.group, "--group")
    )
    port = getattr(args, "port", 0)
    if not 0 <= port <= 65_535:
        raise OptionError(f"a port is a number from 0 to 65535, not {port}")
    return NetworkConfig(
        interfaces=resolve_addresses(args.interface),
        port=port,
        group=group,
        group_port=group_port,
        peers=tuple(_parse_peer(peer) for peer in args.peer),
    )


def parse_address(text: str, option: str) -> tuple[str, int]:
    """Parses an address such as 127.0.0.1:8473."""
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise OptionError(
            f"{option} is an address and a port, like {HTTP_ADDRESS}, not {safe_repr(text)}"
        )
    return host.strip("[]"), int(port)


def _parse_peer(text: str) -> tuple[str, int]:
    host, port = parse_address(text, "--peer")
    try:
        return str(ip_address(host)), port
    except ValueError:
        raise OptionError(f"--peer takes an IP address and a port, not {safe_repr(text)}") from None


def _parse_station(text: str) -> NodeId:
    from thyme.model.ids import NodeId

    if not re.fullmatch("[0-9a-fA-F]{32}", text):
        raise OptionError(
            "--station takes the id of a station, as thyme station --print-id prints it, "
            f"not {safe_repr(text)}"
        )
    return NodeId(bytes.fromhex(text))


def _read_secret(file: Path | None) -> str | None:
    """Reads the secret from a file or the environment; every user can read command lines."""
    if file is None:
        return os.environ.get("THYME_SECRET")
    try:
        return file.read_text("utf-8").strip()
    except UnicodeDecodeError:
        raise OptionError(f"{file} is not text") from None


def _parse_end(text: str) -> int:
    """The end of a world, in microseconds since 1970; it must be in the future."""
    ends_us = as_instant_us(parse_instant(text, past=False), time.time_ns() // 1_000)
    if ends_us <= time.time_ns() // 1_000:
        raise OptionError(f"a world ends in the future, not at {safe_repr(text)}")
    return ends_us


def _parse_area(text: str) -> Area:
    from thyme.model.worlds import Area

    return Area(*_parse_pair(text, "x", "--area WxH"))


def _parse_origin(text: str) -> GeoPoint:
    from thyme.model.worlds import GeoPoint

    return GeoPoint(*_parse_pair(text, ",", "--origin LAT,LON"))


def _parse_pair(text: str, separator: str, option: str) -> tuple[float, float]:
    try:
        one, other = map(float, text.split(separator))
    except ValueError:
        raise OptionError(f"{option} takes two numbers, not {safe_repr(text)}") from None
    return one, other


def require_live() -> None:
    """Raises `OptionError` if a package that live nodes need is not installed."""
    from importlib.util import find_spec

    if any(find_spec(name) is None for name in ("aiohttp", "nacl")):
        raise OptionError(f"live nodes need more packages: {install_hint('live')}")


def coroutine_runner() -> Any:
    """Prepares the process of a command; returns the function that runs a coroutine: uvloop's if
    it is installed, else asyncio's."""
    gc.freeze()
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    try:
        import uvloop
    except ImportError:
        import asyncio

        return asyncio.run
    return uvloop.run
