"""thyme analytics follow: turns the events of nodes into live tables.

Clause: P9.
"""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thyme.cli.pipeline.options import add_session_options, open_session, summarise_java_error
from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.pipeline.analytics.follow import Follower
    from thyme.pipeline.analytics.page import PageServer
    from thyme.pipeline.analytics.tables import AnalyticsTables

PAGE_ADDRESS = "127.0.0.1:8474"
OUT = "thyme-analytics"
REFRESH_S = 2.0
PAUSE_PER_WORK = 3.0
PAUSE_S_MAX = 8.0
"""Deriving tables takes about a quarter of the time of one core: the stream goes first."""
ROWS_SHOWN = 8
HELP = """\
Nodes write events with thyme node --events DIR, simulations with thyme sim run --events DIR.
follow reads every event once, also after a restart, keeps the tables in the folder given by --out,
and shows them: popular tags, latency, hit ratios, load per cell, lost and late notifications.
docs/pipeline.md describes the tables and the files.

examples:
  thyme analytics follow events
  thyme analytics follow events --serve
  thyme analytics follow events --once --json
"""


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    group = commands.add_parser(
        "analytics",
        help="turn the events of nodes into live tables",
        description="Turn the events of nodes into live tables.",
    )
    actions = group.add_subparsers(metavar="ACTION", required=True)
    parser: ArgumentParser = actions.add_parser(
        "follow",
        help="follow a folder of events",
        description="Follow a folder of events and keep tables of them.",
        epilog=HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("events", metavar="DIR", help="folder of event files")
    parser.add_argument("--out", metavar="DIR", default=OUT, help=f"tables (default: {OUT})")
    parser.add_argument("--serve", metavar="A:PORT", nargs="?", const=PAGE_ADDRESS,
        help=f"serve a page with the tables (default: {PAGE_ADDRESS})")  # fmt: skip
    parser.add_argument("--once", action="store_true", help="process what is there, then end")
    parser.add_argument("--window", metavar="S", type=float, default=60.0,
        help="length of the windows in seconds (default: 60)")  # fmt: skip
    parser.add_argument("--half-life", metavar="S", type=float, default=600.0,
        help="seconds after which popularity counts half (default: 600)")  # fmt: skip
    add_session_options(parser)
    parser.add_argument("--json", action="store_true",
        help="print the tables as JSON: once, or one line per refresh")  # fmt: skip
    parser.set_defaults(run=follow_command)


def follow_command(args: Namespace) -> int:
    """thyme analytics follow DIR"""
    from thyme.pipeline.session import require_spark

    require_spark()
    from thyme.pipeline.analytics.follow import SESSION_SETTINGS, FollowConfig, Follower
    from thyme.pipeline.analytics.page import PageServer

    if "://" not in args.events and not Path(args.events).is_dir():
        raise OptionError(
            f"there is no folder {safe_repr(args.events)}: make it, or start a node with "
            "--events DIR first"
        )
    if args.once and args.serve is not None:
        raise OptionError("--once ends when it is done: use --serve without it")
    config = FollowConfig(
        window_us=_to_us(args.window, "--window"),
        half_life_us=_to_us(args.half_life, "--half-life"),
    )
    with ExitStack() as stack:
        server = None
        if args.serve is not None:
            from thyme.cli.node import parse_address

            server = PageServer(*parse_address(args.serve, "--serve"))
            stack.callback(server.close)
            print(f"serving {server.url}", file=sys.stderr, flush=True)
        spark = stack.enter_context(open_session(args, SESSION_SETTINGS))
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise OptionError("the analytics need a Spark master of their own, not Spark Connect")
        follower = Follower(spark, _absolute(args.events), _absolute(args.out), config)
        if args.once:
            _show(args, follower.run_once(), server)
        else:
            _follow(args, follower, server)
    return 0


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).resolve())


def _to_us(seconds: float, option: str) -> int:
    if not 0.001 <= seconds <= 1e9:
        raise OptionError(f"{option} is a number of seconds above 0, not {seconds}")
    return round(1e6 * seconds)


def _follow(args: Namespace, follower: Follower, server: PageServer | None) -> None:
    """Refreshes the tables until the user interrupts or the stream fails."""
    from rich.live import Live

    from thyme.cli.terminal import Terminal
    from thyme.pipeline.analytics.follow import lower_priority
    from thyme.pipeline.session import SparkError

    query = follower.start()
    lower_priority()
    shown = -1
    with ExitStack() as stack:
        stack.callback(query.stop)
        view = None
        if not args.json and sys.stdout.isatty():
            view = stack.enter_context(Live(console=Terminal(), screen=True, auto_refresh=False))
        while query.isActive:
            started_s = time.monotonic()
            if follower.log.last != shown:
                shown = follower.log.last
                tables = follower.refresh()
                if view is None:
                    _show(args, tables, server)
                else:
                    view.update(render_tables(tables), refresh=True)
                    if server is not None:
                        server.show(tables)
            follower.merge_batches()
            took_s = time.monotonic() - started_s
            time.sleep(min(max(REFRESH_S, PAUSE_PER_WORK * took_s), PAUSE_S_MAX))
    if follower.failure is not None:
        raise follower.failure
    if (error := query.exception()) is not None:
        raise SparkError(f"the stream failed: {summarise_java_error(str(error))}")


def _show(args: Namespace, tables: AnalyticsTables, server: PageServer | None) -> None:
    import msgspec

    from thyme.cli.terminal import Terminal

    if server is not None:
        server.show(tables)
    if args.json:
        print(msgspec.json.encode(tables).decode(), flush=True)
    else:
        Terminal().print(render_tables(tables))


def render_tables(tables: AnalyticsTables) -> Any:
    """The tables for the terminal."""
    from rich.console import Group
    from rich.text import Text

    totals = tables.totals
    bad = ", ".join(f"{count:,} {reason}" for reason, count in totals.quarantined.items())
    missing = sum(writer.missing for writer in tables.writers)
    facts = [
        f"{totals.events:,} events of {len(tables.writers)} writers in {totals.batches:,} batches",
        f"{totals.duplicates:,} repeated and ignored",
        f"{missing:,} missing",
        *([f"set aside: {bad}"] if bad else []),
    ]
    from thyme.pipeline.analytics.page import recent

    return Group(
        Text("; ".join(facts)),
        _table("popular tags", ("tag", "score", "inserts", "notified", "retrieved"), [
            (tag.tag, tag.score, tag.inserts, tag.notifications, tag.retrieves)
            for tag in tables.popular_tags.tags[:ROWS_SHOWN]
        ]),
        _table("latency", ("of", "count", "p50 ms", "p95 ms", "p99 ms", "max ms", "below 0"), [
            (row.name, row.count, row.p50_ms, row.p95_ms, row.p99_ms, row.max_ms, row.negative)
            for row in recent(tables.latency)[:ROWS_SHOWN]
        ]),
        _table("notifications", ("published", "expected", "in time", "late", "lost", "unsure"), [
            (f"{row.window_us / 1e6:.0f} s", row.expected, row.in_time, row.late, row.lost,
             row.unsure)
            for row in recent(tables.recall)[:ROWS_SHOWN]
        ]),
        _table("hits and successes", ("of", "hits", "total", "ratio"), [
            (row.name, row.hits, row.total, f"{row.ratio:.1%}")
            for row in recent(tables.ratios)[:ROWS_SHOWN]
        ]),
        _table("load", ("cell", "messages", "bytes", "neighbours"), [
            (row.cell, row.messages, row.bytes, row.neighbours_mean)
            for row in recent(tables.load)[:ROWS_SHOWN]
        ]),
    )  # fmt: skip


def _table(title: str, names: tuple[str, ...], rows: list[tuple[object, ...]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _text(value: object) -> str:
    match value:
        case None:
            return "-"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.1f}"
    return str(value)
