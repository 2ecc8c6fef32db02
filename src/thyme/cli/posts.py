"""thyme posts: posts into a warehouse, from files or from a synthetic match.

Clauses: P1, P2, P10.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from thyme.cli.spark_stage import add_options, pairs, session, show, whole

if TYPE_CHECKING:
    from thyme.cli.commands import Commands

FORMATS = ("twitter-v2", "twitter-v1", "mastodon", "bluesky", "csv", "jsonl", "parquet")

HELP = """\
FILES are files, folders, patterns or addresses that Spark reads; JSON lines and CSV may be
compressed (.gz). csv, jsonl and parquet are tables with the columns id, user, time, text and tags,
or those that --columns names; id and tags may be missing. Times are ISO 8601 or numbers since 1970.

What is no post goes to the table quarantine with the reason and the row as it was.

exit status: 0 all is well, 2 what was asked cannot be done

examples:
  thyme posts import tweets.jsonl.gz --format twitter-v2 --out w
  thyme posts import match.csv --format csv --columns user=author,time=when,text=body --out w
"""


def add_to(commands: Commands) -> None:
    """Adds the commands to the parser."""
    group = commands.add_parser(
        "posts",
        help="posts from files, or synthetic ones",
        description="Posts into a warehouse, from files or from a synthetic match.",
    ).add_subparsers(metavar="COMMAND", required=True)
    _add_import(
        group.add_parser(
            "import",
            help="read posts from files",
            description="Read posts from files into a warehouse.",
            epilog=HELP,
            formatter_class=RawDescriptionHelpFormatter,
        )
    )
    _add_synth(
        group.add_parser(
            "synth",
            help="make the posts of a synthetic match",
            description="Make the posts of a synthetic football match.",
        )
    )


def _add_import(parser: ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILES", nargs="+", help="what to read")
    parser.add_argument("--format", metavar="NAME", required=True, help=", ".join(FORMATS))
    parser.add_argument("--columns", metavar="NAMES", help="as in user=author,time=when,text=body")
    parser.add_argument("--zone", metavar="ZONE", help="of times that name none, as in +01:00")
    add_options(parser)
    parser.set_defaults(run=import_command)


def _add_synth(parser: ArgumentParser) -> None:
    whole(parser, "--users", "how many take part", 5_000)
    whole(parser, "--posts", "how many posts", 1_000_000)
    whole(parser, "--tags", "how many tags", 800)
    whole(parser, "--seed", "what the posts are drawn from", 1)
    add_options(parser)
    parser.set_defaults(run=synth_command)


def import_command(args: Namespace) -> int:
    """thyme posts import FILES --format NAME --out DIR"""
    from thyme.pipeline.session import need_spark

    need_spark()
    from thyme.pipeline.jobs import import_posts
    from thyme.pipeline.reading import Reader
    from thyme.pipeline.sources import files_of
    from thyme.pipeline.warehouse import Warehouse

    reader = Reader(
        form=args.format,
        columns=pairs(args.columns, "--columns") if args.columns else {},
        zone=args.zone,
        now_us=time.time_ns() // 1_000,
    )
    files = files_of(args.files)
    with session(args) as spark:
        stage = import_posts(spark, Warehouse(args.out), files, reader)
    notes = stage.manifest.notes

    def lines() -> Iterator[str]:
        yield f"{notes['rows_in']:,} rows in, {notes['untagged']:,} of the posts without a tag"
        for reason, count in notes["quarantined"].items():
            yield f"quarantined: {count:,} ({reason})"

    return show(args, stage, lines)


def synth_command(args: Namespace) -> int:
    """thyme posts synth --users N --posts N --seed N --out DIR"""
    from thyme.pipeline.session import need_spark

    need_spark()
    from thyme.pipeline.jobs import synthesise_posts
    from thyme.pipeline.warehouse import Warehouse
    from thyme.traces.match import MatchConfig

    config = MatchConfig(posts=args.posts, users=args.users, tags=args.tags)
    with session(args) as spark:
        stage = synthesise_posts(spark, Warehouse(args.out), args.seed, config)
    return show(args, stage)
