"""thyme trace: builds a trace of operations from the posts of a warehouse.

Clauses: P3, P10.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from thyme.cli.pipeline.options import (
    add_integer,
    add_options,
    check_stage,
    open_session,
    print_stage,
)

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers


def add_to(commands: Subparsers) -> None:
    """Adds the commands to the parser."""
    group = commands.add_parser(
        "trace",
        help="build a trace from posts",
        description="Build a trace of operations from posts.",
    ).add_subparsers(metavar="COMMAND", required=True)
    parser = group.add_parser(
        "build",
        help="build the trace of the most active users",
        description="Build the trace of the most active users of a match, by the rules of Thyme "
        "(journal article), section 9.2.",
    )
    parser.add_argument("--posts", metavar="W", required=True, help="warehouse with the posts")
    add_integer(parser, "--users", "number of users, the most active ones", 100)
    add_integer(parser, "--seed", "random seed", 1)
    parser.add_argument(
        "--boolean", metavar="SHARE", type=float, default=0.0,
        help="share of queries that are Boolean formulas, 0 to 1 (default: 0)",
    )  # fmt: skip
    parser.add_argument(
        "--publishers", metavar="SHARE", type=float,
        help="share of users that only publish; the others only subscribe (default: all do both)",
    )  # fmt: skip
    add_options(parser)
    parser.set_defaults(run=build_command)


def build_command(args: Namespace) -> int:
    """thyme trace build --posts DIR --users N --seed N --out DIR"""
    from thyme.pipeline.session import require_spark

    require_spark()
    from thyme.pipeline.jobs import build_trace
    from thyme.pipeline.warehouse import Warehouse
    from thyme.traces.posts_to_trace import TraceRules

    check_stage(args.posts, "posts")
    rules = TraceRules(boolean_share=args.boolean)
    with open_session(args) as spark:
        posts = Warehouse(args.posts).open_stage("posts")
        stage = build_trace(
            spark, Warehouse(args.out), posts, args.users, args.seed, rules, args.publishers
        )
    counts = stage.manifest.notes["operations"]

    def lines() -> Iterator[str]:
        yield ", ".join(f"{count:,} {kind}s" for kind, count in counts.items())

    return print_stage(args, stage, lines)
