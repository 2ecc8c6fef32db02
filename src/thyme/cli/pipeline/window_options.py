"""Options of the window and of the rules by which posts become a trace, and their output.

`trace build` and `evaluate` share them. Entry points: `add_window_options`, `parse_window`,
`add_rule_options`, `parse_rules`, `print_window`.
Clause: P3.
"""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from datetime import UTC, tzinfo
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from thyme.model.errors import OptionError, safe_repr

if TYPE_CHECKING:
    from thyme.pipeline.warehouse import Stage
    from thyme.pipeline.window import WindowFacts
    from thyme.traces.posts_to_trace import TraceRules
    from thyme.traces.query_tags import QueryTags
    from thyme.traces.timetable import TimetableChoice

WINDOW_HELP = """\
The trace covers the busiest three hours of the posts, or fewer if the posts cover less. --start,
--end, --hours and --kick-off choose other hours, e.g. --start 2015-09-19T11:30 --hours 2.5; times
without a zone are in --zone (UTC if absent). --timetable reads them from a TOML file, which can
also name both halves (docs/pipeline.md).
"""
_TIMES = (
    ("--start", "first instant of the window, e.g. 2015-09-19T11:30 or 2015-09-19T12:30+01:00"),
    ("--end", "end of the window"),
    ("--kick-off", "start of the first half; the window starts earlier by a ninth of its length"),
)
_RATES = (
    ("--subscribes-early", 3.0, "subscriptions per user and hour until the first half ends"),
    ("--subscribes-late", 1.0, "subscriptions per user and hour after it"),
    ("--deletes", 0.5, "deletes per user and hour of the second half"),
    ("--unsubscribes", 0.2, "unsubscribes per user and hour of the second half"),
)
_SHARES = (
    ("--always", 0.6, "share of subscriptions that also cover the past; the others start now"),
    ("--candidates", 0.6, "share of the tags, the most popular, that are queried"),
    ("--boolean", 0.0, "share of queries that are Boolean formulas"),
)
_RULE_FIELDS = {
    "subscribes_early": "subscribes_early",
    "subscribes_late": "subscribes_late",
    "deletes": "deletes",
    "unsubscribes": "unsubscribes",
    "always": "always_share",
    "candidates": "candidate_share",
    "boolean": "boolean_share",
}


def add_window_options(parser: ArgumentParser) -> None:
    """Adds the options that choose the window."""
    group = parser.add_argument_group("window")
    for name, text in _TIMES:
        group.add_argument(name, metavar="TIME", help=text)
    group.add_argument("--hours", metavar="H", type=float, help="length of the window (default: 3)")
    group.add_argument("--zone", metavar="ZONE", help="time zone of the times, given and printed")
    group.add_argument("--timetable", metavar="FILE", type=Path, help="window and halves, as TOML")


def add_rule_options(parser: ArgumentParser) -> None:
    """Adds the options for the rates and shares of drawn operations."""
    group = parser.add_argument_group("rules")
    for name, default, text in _RATES:
        group.add_argument(
            name, metavar="RATE", type=float, default=default, help=f"{text} (default: {default:g})"
        )
    for name, default, text in _SHARES:
        group.add_argument(
            name,
            metavar="SHARE",
            type=float,
            default=default,
            help=f"{text} (default: {default:g})",
        )

    group.add_argument(
        "--query-tags", metavar="READING", default="distinct",
        help="distinct: each of these tags is equally likely; common: so are the tags that make up "
        "this share of all uses; used: each is as likely as it is used (default: distinct)",
    )  # fmt: skip


def parse_rules(args: Namespace, **more: Any) -> TraceRules:
    """The rules chosen by the options."""
    from thyme.traces.posts_to_trace import TraceRules

    chosen = {field: getattr(args, option) for option, field in _RULE_FIELDS.items()}
    chosen["query_tags"] = parse_query_tags(args.query_tags)
    return TraceRules(**chosen, **more)


def parse_query_tags(text: str) -> QueryTags:
    """The reading of the rule for queries that --query-tags names."""
    from thyme.traces.query_tags import QueryTags

    try:
        return QueryTags(text)
    except ValueError as error:
        known = ", ".join(QueryTags)
        raise OptionError(f"--query-tags {safe_repr(text)} is unknown; there is {known}") from error


def parse_window(args: Namespace) -> TimetableChoice:
    """The parts of the timetable chosen by the options."""
    from thyme.pipeline.timetable_files import read_timetable
    from thyme.traces.timetable import TimetableChoice

    given = {name: getattr(args, name) for name in ("start", "end", "kick_off", "hours")}
    options = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    if args.timetable is None:
        zone = parse_display_zone(args)
        hours = given.pop("hours")
        start_us, end_us, kick_off_us = (_parse_time(name, given[name], zone) for name in given)
        return TimetableChoice(
            start_us=start_us, end_us=end_us, kick_off_us=kick_off_us, hours=hours
        )
    if options:
        raise OptionError(f"--timetable sets the whole window: leave out {', '.join(options)}")
    return read_timetable(args.timetable)


def parse_display_zone(args: Namespace) -> tzinfo:
    """The time zone of --zone; UTC if it is absent."""
    from thyme.pipeline.posts.formats import parse_zone

    return UTC if args.zone is None else parse_zone(args.zone)


def _parse_time(name: str, text: str | None, zone: tzinfo) -> int | None:
    from thyme.pipeline.posts.formats import InvalidPost, parse_instant_us

    if text is None:
        return None
    try:
        return parse_instant_us(text, zone)
    except InvalidPost as error:
        option = f"--{name.replace('_', '-')}"
        raise OptionError(
            f"{option} {safe_repr(text)} is not a time; write it as 2015-09-19T11:30"
        ) from error


# Output


def print_window(stage: Stage, zone: tzinfo, lasts_us: int, out: TextIO | None = None) -> None:
    """Prints the histogram of the posts and the window below it."""
    import pyarrow.parquet as pq

    from thyme.pipeline.storage import read_file
    from thyme.pipeline.window import window_facts

    facts = window_facts(stage)
    files = (BytesIO(read_file(path)) for path in stage.table_files("histogram"))
    bins = [row for file in files for row in pq.read_table(file).to_pylist()]
    for line in window_lines(facts, [(row["at_us"], row["posts"]) for row in bins], zone, lasts_us):
        print(line, file=out or sys.stdout)


def window_lines(
    facts: WindowFacts, bins: list[tuple[int, int]], zone: tzinfo, lasts_us: int
) -> list[str]:
    """The histogram of posts over time, with the window marked, as lines of text."""
    from thyme.cli.pipeline.histogram import render_histogram
    from thyme.pipeline.window import format_span

    game = facts.timetable
    hours = f"{game.length_s / 3_600:.4g} h"
    speed = f"{game.length_us / lasts_us:.3g}"
    return [
        *render_histogram(bins, facts.bin_s, (game.starts_us, game.ends_us), zone),
        f"window: {format_span(game.starts_us, game.ends_us, zone)} ({hours}, compressed "
        f"{speed} times into {lasts_us / 1e6:g} s)",
        f"  first half {_half(game.starts_us, game.first_half_s, zone)}, "
        f"second half {_half(game.starts_us, game.second_half_s, zone)}",
        f"  {facts.window_tagged:,} of {facts.tagged:,} posts with tags, by "
        f"{facts.window_users:,} of {facts.users:,} users",
    ]


def _half(starts_us: int, half_s: tuple[int, int], zone: tzinfo) -> str:
    from thyme.pipeline.window import format_instant

    begin, end = (
        format_instant(starts_us + mark_s * 1_000_000, zone, "%H:%M") for mark_s in half_s
    )
    return f"{begin} to {end}"
