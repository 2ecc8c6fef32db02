"""thyme station: runs the base station of a venue.

Clauses: I28, I29, B8.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli.node import DATA_DIR, coroutine_runner, parse_address, require_live
from thyme.model.errors import OptionError

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers

HTTP_ADDRESS = "127.0.0.1:8483"
STATION_HELP = """\
A station stands beside an access point: it keeps what its visitors download often, and exchanges
with the other stations of its list what their visitors subscribe to. Nodes find it by themselves
(thyme node --substrate infra) and do without it while it is away. The configuration file is
described in docs/infra.md.

Stations recognise each other by the id of their key. Each station needs the ids of the others in
its file, so print them first:

examples:
  thyme station --print-id --data /var/lib/thyme
  thyme station --config north.toml --data /var/lib/thyme
  thyme status --node http://127.0.0.1:8483
"""


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser: ArgumentParser = commands.add_parser(
        "station",
        help="run the base station of a venue",
        description="Run the base station of a venue.",
        epilog=STATION_HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", metavar="FILE", type=Path, help="configuration file (TOML)")
    parser.add_argument(
        "--print-id", action="store_true", help="print the id of the station in DIR, and end"
    )
    data = DATA_DIR / "station"
    parser.add_argument("--data", metavar="DIR", type=Path, default=data,
        help=f"folder for the key and the state (default: {data})")  # fmt: skip
    parser.add_argument("--memory", action="store_true", help="store nothing on disk")
    parser.add_argument("--group", metavar="A:PORT",
        help="multicast group of the nodes (default: discovery in FILE)")  # fmt: skip
    parser.add_argument("--http", metavar="A:PORT", default=HTTP_ADDRESS,
        help=f"address for status and metrics (default: {HTTP_ADDRESS})")  # fmt: skip
    parser.add_argument("--events", metavar="DIR", type=Path,
        help="export events to DIR, for thyme analytics follow")  # fmt: skip
    parser.add_argument("--popular-tags", metavar="FILE", type=Path,
        help="popular_tags.json of thyme analytics: ask other stations for these tags")  # fmt: skip
    parser.add_argument("--log-json", action="store_true", help="log as JSON, one line per event")
    parser.set_defaults(run=station_command)


def station_command(args: Namespace) -> int:
    """thyme station --config FILE"""
    require_live()
    from thyme.live.station.open_station import StationOptions, station_id

    if args.print_id:
        if args.memory:
            raise OptionError("a station with --memory has another id at each start")
        print(station_id(args.data).hex())
        return 0
    if args.config is None:
        raise OptionError("a station needs a configuration file: --config FILE (docs/infra.md)")
    from thyme.daemon import logs
    from thyme.daemon.station_daemon import StationDaemonOptions, run_station
    from thyme.substrates.infra.config_file import parse_station_config

    try:
        text = args.config.read_text("utf-8")
    except UnicodeDecodeError:
        raise OptionError(f"{args.config} is not text") from None
    except OSError as error:
        raise OptionError(f"{args.config}: {error.strerror}") from error
    station = StationOptions(
        config=parse_station_config(text, str(args.config)),
        data=None if args.memory else args.data,
        group=None if args.group is None else parse_address(args.group, "--group"),
    )
    http = parse_address(args.http, "--http")
    options = StationDaemonOptions(
        station=station, http=http, events=args.events, popular_tags=args.popular_tags
    )
    logs.configure(as_json=args.log_json)
    coroutine_runner()(run_station(options))
    return 0
