"""thyme posts: imports or generates posts and stores them in a warehouse.

Clauses: P1, P2, P10.
"""

from __future__ import annotations

import shlex
import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from thyme.cli.pipeline.options import (
    add_integer,
    add_options,
    check_stage,
    open_session,
    parse_pairs,
    print_stage,
)
from thyme.model.errors import InputError

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.pipeline.warehouse import Stage

FORMATS = ("twitter-v2", "twitter-v1", "mastodon", "bluesky", "csv", "jsonl", "parquet")

HELP = """\
FILES are files, folders, patterns or URIs that Spark can read; JSON lines and CSV may be compressed
(.gz). csv, jsonl and parquet are tables with the columns id, user, time, text and tags, or those
named by --columns; id and tags are optional. Without --format, the names of the files tell csv,
parquet and jsonl. Times are ISO 8601 or numbers since 1970 (--time-unit and --time-origin for
others); a time without a zone is UTC, or of --zone. Without texts, map a column of tags.

Invalid rows go to the table quarantine, with the reason and the original row.

Files are added to those that were imported before; a file that was is not read again. After an
interruption of any kind, the same command imports everything or finds it done. Each import adds
files of its own: `thyme posts compact` merges small ones.

exit status: 0 success, 2 error

examples:
  thyme posts import tweets.jsonl.gz --format twitter-v2 --out w
  thyme posts import match.csv --columns user=author,time=when,text=body --out w
  thyme posts import s3a://bucket/2016/ --format jsonl --out s3a://bucket/w \\
      --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:3.5.0
"""


def add_to(commands: Subparsers) -> None:
    """Adds the commands to the parser."""
    group = commands.add_parser(
        "posts",
        help="import posts, or generate synthetic ones",
        description="Import or generate posts and store them in a warehouse.",
    ).add_subparsers(metavar="COMMAND", required=True)
    _add_import(
        group.add_parser(
            "import",
            help="import posts from files",
            description="Import posts from files into a warehouse.",
            epilog=HELP,
            formatter_class=RawDescriptionHelpFormatter,
        )
    )
    compact = group.add_parser(
        "compact",
        help="merge the small files of many imports",
        description="Merge the small files that many imports left. The posts stay the same.",
    )
    add_options(compact)
    compact.set_defaults(run=compact_command)
    _add_synth(
        group.add_parser(
            "synth",
            help="generate the posts of a synthetic match",
            description="Generate the posts of a synthetic football match.",
        )
    )


def _add_import(parser: ArgumentParser) -> None:
    parser.add_argument("files", metavar="FILES", nargs="+", help="files to import")
    parser.add_argument("--format", metavar="NAME", help=", ".join(FORMATS))
    parser.add_argument("--columns", metavar="NAMES", help="e.g. user=author,time=when,text=body")
    parser.add_argument(
        "--zone", metavar="ZONE", help="time zone of times without one, e.g. +01:00"
    )
    parser.add_argument(
        "--time-unit", metavar="UNIT", help="unit of times that are numbers: s, ms or us"
    )
    parser.add_argument(
        "--time-origin",
        metavar="TIME",
        help="the instant from which such times count, e.g. 2015-09-19T11:45Z (default: 1970)",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="import these files only, and drop those that were imported before",
    )
    add_options(parser)
    parser.set_defaults(run=import_command)


def _add_synth(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--match",
        metavar="NAME",
        default="final-2016",
        help="final-2016, or chelsea-arsenal or swansea-everton, which are fitted to real posts",
    )
    add_integer(parser, "--users", "number of users of final-2016", 5_000)
    add_integer(parser, "--posts", "number of posts", 1_000_000)
    add_integer(parser, "--tags", "number of distinct tags of final-2016", 800)
    add_integer(parser, "--seed", "random seed", 1)
    add_options(parser)
    parser.set_defaults(run=synth_command)


def import_command(args: Namespace) -> int:
    """thyme posts import FILES --format NAME --out DIR"""
    from thyme.pipeline.session import require_spark

    require_spark()
    from thyme.pipeline.jobs import import_posts
    from thyme.pipeline.posts.csv_files import check_header
    from thyme.pipeline.posts.formats import PostReader
    from thyme.pipeline.posts.rows import NOT_UTF8
    from thyme.pipeline.posts.sources import expand_files, guess_format
    from thyme.pipeline.warehouse import Warehouse

    files = expand_files(args.files) if args.format is None else None
    reader = PostReader(
        form=args.format or guess_format(files or ()),
        columns=parse_pairs(args.columns, "--columns") if args.columns else {},
        zone=args.zone,
        unit=args.time_unit,
        origin=args.time_origin,
        now_us=time.time_ns() // 1_000,
    )
    files = files or expand_files(args.files)
    if reader.form == "csv":
        for file in files:
            check_header(file, reader)
    with open_session(args) as spark:
        stage = import_posts(spark, Warehouse(args.out), files, reader, replace=args.replace)
    notes = stage.manifest.notes

    def lines() -> Iterator[str]:
        if stage.built_now:
            added = notes["files_added"]
            word = "file" if added == 1 else "files"
            yield f"{notes['rows_added']:,} rows of {added:,} new {word} added"
        yield f"{notes['rows_in']:,} rows read, {notes['untagged']:,} posts without a tag"
        if notes["zone_assumed"]:
            yield (
                f"{notes['zone_assumed']:,} times have no time zone and are read as UTC; "
                "--zone Europe/Lisbon reads them as local times"
            )
        if _has_times_of_1970(stage):
            yield (
                "the first posts are of 1970: if their times count from the start of an event, "
                "give --time-unit ms --time-origin 2015-09-19T11:45Z and --replace"
            )
        for reason, count in notes["quarantined"].items():
            advice = ": convert the file, e.g. iconv -f WINDOWS-1252 -t UTF-8; --replace imports it"
            yield f"quarantined: {count:,} ({reason}{advice if reason == NOT_UTF8 else ''})"
        if stage.row_count("posts"):
            folder = shlex.quote(args.out)
            yield f"next: thyme trace build --posts {folder} --out {folder}"

    return print_stage(args, stage, lines)


def _has_times_of_1970(stage: Stage) -> bool:
    files = stage.manifest.tables["posts"].files
    return any(each.at_us is not None and each.at_us[0] < 365 * 86_400_000_000 for each in files)


def compact_command(args: Namespace) -> int:
    """thyme posts compact --out W"""
    from thyme.pipeline.session import require_spark

    require_spark()
    from thyme.pipeline.jobs import compact_posts
    from thyme.pipeline.warehouse import Warehouse

    check_stage(args.out, "posts")
    with open_session(args) as spark:
        stage = compact_posts(spark, Warehouse(args.out))
    return print_stage(args, stage)


def synth_command(args: Namespace) -> int:
    """thyme posts synth --users N --posts N --seed N --out DIR"""
    from thyme.pipeline.session import require_spark

    require_spark()
    from thyme.pipeline.jobs import generate_posts
    from thyme.pipeline.warehouse import Warehouse
    from thyme.traces.synthetic.football_match import FITTED_MATCHES

    match = FITTED_MATCHES.get(args.match)
    if match is None:
        raise InputError(f"--match: one of {', '.join(FITTED_MATCHES)}, not {args.match!r}")
    config = replace(match, posts=args.posts)
    if match.tag_lists is None:
        config = replace(config, users=args.users, tags=args.tags)
    with open_session(args) as spark:
        stage = generate_posts(spark, Warehouse(args.out), args.seed, config)
    return print_stage(args, stage)
