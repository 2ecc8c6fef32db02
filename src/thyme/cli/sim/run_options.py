"""Options of `thyme sim run`: what can be set, for which substrates, and the help.

Entry points: `add_options`, `check_options` and `set_defaults`.
Clauses: S7, S11, S12, I28, U9.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from thyme.cli.option_values import add_retrieve_options
from thyme.cli.sim import encounters, venues
from thyme.model.errors import OptionError

RADIO_SUBSTRATES = ("es", "ls", "dcs")
SUBSTRATES = (*RADIO_SUBSTRATES, venues.SUBSTRATE, *encounters.SUBSTRATES)
OPTIONS_OF_SUBSTRATES: dict[tuple[str, ...], tuple[str, ...]] = {
    RADIO_SUBSTRATES: ("out", "topology"),
    (*RADIO_SUBSTRATES, venues.SUBSTRATE): ("events",),
    (venues.SUBSTRATE,): (
        *("stations", "station_config", "gap", "wire_latency", "wire_rate", "wire_loss"),
    ),
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
MATCHES = ("chelsea-arsenal", "swansea-everton")
"""Other matches than the default one that --trace may name."""
NODES = 100
RETRIEVE, WITHIN_S = 0.7, 30.0


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
Stations are joined by wires (--wire-latency, --wire-rate, --wire-loss); venues may overlap (--gap).

Without --trace, the operations are those of the synthetic football match of the seed; with
--trace lecture, those of the lecture of the thesis: two classes, good and regular students; with
--trace chelsea-arsenal or swansea-everton, those of a match fitted to real posts, in which a
subscription matches hundreds of objects (with many nodes, more than the channel carries). A trace
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
  thyme sim run --substrate dcs --nodes 36 --trace swansea-everton --profile robust
  thyme sim run --substrate mobuser --scenario manhattan --nodes 100 --hours 2 --json
  thyme sim run --substrate mobuser --nodes 100 --hours 2 --exchange reconcile
  thyme sim run --substrate rapid --scenario contacts --contacts tij_WS16.dat.gz
  thyme sim run --substrate infra --stations 2 --nodes 40 --trace lecture --json
  thyme sim run --substrate infra --stations 2 --nodes 40 --scenario outage --profile robust
  thyme sim run --substrate infra --stations 3 --wire-latency 40 --wire-rate 10 --wire-loss 0.01
"""


def add_options(parser: ArgumentParser) -> None:
    """Adds all options of the command."""
    parser.add_argument("--substrate", metavar="NAME", required=True, help=join_or(SUBSTRATES))
    parser.add_argument(
        "--nodes", metavar="N", type=int, help="default: users of the trace, or 100"
    )
    parser.add_argument(
        "--scenario", metavar="NAME",
        help=join_or((*SCENARIOS, *encounters.SCENARIOS)) + " (default: static, or manhattan)",
    )  # fmt: skip
    _add_encounter_options(parser)
    parser.add_argument(
        "--failing",
        metavar="SHARE",
        type=float,
        help="share of failing nodes, 0 to 1 (default: 0.2)",
    )
    parser.add_argument("--speed", metavar="M/S", type=float, help="maximum speed (default: 1.4)")
    parser.add_argument(
        "--trace", metavar="FILE", type=Path,
        help=f"trace of operations: a file, {LECTURE}, or a match: {join_or(MATCHES)}",
    )  # fmt: skip
    parser.add_argument("--profile", metavar="NAME", help=join_or(PROFILES) + " (default: paper)")
    parser.add_argument("--area", metavar="WxH", help="metres (default: two nodes per 40 × 40 m)")
    add_retrieve_options(parser)
    parser.add_argument("--seed", metavar="N", type=int, default=1, help="random seed (default: 1)")
    parser.add_argument(
        "--topology", metavar="N", type=int, help="seed for node positions (default: --seed)"
    )
    _add_station_options(parser)
    parser.add_argument("--out", metavar="DIR", type=Path, help="write tables and a playback page")
    parser.add_argument(
        "--events", metavar="DIR", type=Path, help="export events, for thyme analytics follow"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--watch", action="store_true", help="print progress and counts during the run"
    )


def _add_encounter_options(parser: ArgumentParser) -> None:
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


def _add_station_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--stations", metavar="N", type=int, help="base stations of infra (default: 1)"
    )
    parser.add_argument(
        "--station-config", metavar="FILE", type=Path,
        help="settings of the stations of infra, a TOML file (docs/infra.md)",
    )  # fmt: skip
    parser.add_argument(
        "--gap", metavar="M", type=float,
        help="metres between two venues, negative if they overlap (default: 300)",
    )  # fmt: skip
    parser.add_argument(
        "--wire-latency", metavar="MS", type=float,
        help="latency of the wires between stations, in milliseconds (default: 2)",
    )  # fmt: skip
    parser.add_argument(
        "--wire-rate", metavar="MBIT/S", type=float,
        help="bandwidth of the wires in each direction, in Mb/s (default: 100)",
    )  # fmt: skip
    parser.add_argument(
        "--wire-loss", metavar="SHARE", type=float,
        help="share of the messages that the wires lose, below 1 (default: 0)",
    )  # fmt: skip


def join_or(names: tuple[str, ...]) -> str:
    """The names in words: a, b or c."""
    return ", ".join(names[:-1]) + f" or {names[-1]}"


def check_options(args: Namespace) -> None:
    """Refuses options that are only for other substrates."""
    for substrates, options in OPTIONS_OF_SUBSTRATES.items():
        for option in options if args.substrate not in substrates else ():
            if getattr(args, option) is not None:
                names = substrates[0] if len(substrates) == 1 else join_or(substrates)
                raise OptionError(f"--{option.replace('_', '-')} is for {names}")


def set_defaults(args: Namespace) -> None:
    """Sets the options of the radio's substrates that were not given."""
    for option, default in (
        ("scenario", "static"),
        ("profile", "paper"),
        ("retrieve", RETRIEVE),
        ("within", WITHIN_S),
    ):
        if getattr(args, option) is None:
            setattr(args, option, default)
