"""thyme trace: builds a trace of operations, from posts, as a lecture, or as MobUser's users.

Clauses: P3, P10, S13, U9.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from thyme.cli.pipeline.options import (
    add_integer,
    add_options,
    check_stage,
    open_session,
    print_stage,
)
from thyme.cli.pipeline.window_options import (
    WINDOW_HELP,
    add_rule_options,
    add_window_options,
    parse_display_zone,
    parse_rules,
    parse_window,
    print_window,
)
from thyme.model.errors import OptionError

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.pipeline.warehouse import Stage

BUILD_HELP = f"""\
{WINDOW_HELP}
The hours of the window are compressed into 600 s; --compress 18 makes an hour 200 s instead.

exit status: 0 success, 2 error

examples:
  thyme trace build --posts w --users 100 --out w
  thyme trace build --posts w --start 2015-09-19T11:30 --hours 2.5 --compress 18 --out w
  thyme trace build --posts w --kick-off 2015-09-19T12:45 --zone Europe/London --out w
"""


def add_to(commands: Subparsers) -> None:
    """Adds the commands to the parser."""
    group = commands.add_parser(
        "trace",
        help="build a trace of operations",
        description="Build a trace of operations.",
    ).add_subparsers(metavar="COMMAND", required=True)
    _add_build(
        group.add_parser(
            "build",
            help="build the trace of the most active users",
            description="Build the trace of the most active users of an event, by the rules of "
            "Thyme (journal article), section 9.2.",
            epilog=BUILD_HELP,
            formatter_class=RawDescriptionHelpFormatter,
        )
    )
    _add_lecture(
        group.add_parser(
            "lecture",
            help="draw the trace of a lecture",
            description="Draw the workload of the thesis, section 5.1: a class held twice, with "
            "good and regular students.",
        )
    )
    _add_mobuser(
        group.add_parser(
            "mobuser",
            help="draw the trace of the MobUser paper",
            description="Draw the users of the MobUser paper, sections V to VII: all subscribe to "
            "one topic and some publish in it or, with --rare, to six topics, of which the rarest "
            "is published in.",
        )
    )


def _add_build(parser: ArgumentParser) -> None:
    parser.add_argument("--posts", metavar="W", required=True, help="warehouse with the posts")
    add_integer(parser, "--users", "number of users, the most active ones", 100)
    add_integer(parser, "--seed", "random seed", 1)
    parser.add_argument(
        "--publishers", metavar="SHARE", type=float,
        help="share of users that only publish; the others only subscribe (default: all do both)",
    )  # fmt: skip
    parser.add_argument(
        "--compress", metavar="N", type=float,
        help="duration of the window divided by that of the trace (default: the trace has 600 s)",
    )  # fmt: skip
    add_window_options(parser)
    add_rule_options(parser)
    add_options(parser)
    parser.set_defaults(run=build_command)


def _add_lecture(parser: ArgumentParser) -> None:
    add_integer(parser, "--users", "number of students", 100)
    add_integer(parser, "--seed", "random seed", 1)
    add_options(parser)
    parser.set_defaults(run=lecture_command)


def _add_mobuser(parser: ArgumentParser) -> None:
    add_integer(parser, "--users", "number of users", 1_000)
    add_integer(parser, "--seed", "random seed", 1)
    parser.add_argument(
        "--rare", metavar="P", type=float,
        help="six topics; the probability with which a user subscribes to the rarest",
    )  # fmt: skip
    parser.add_argument(
        "--publishers", metavar="SHARE", type=float, default=0.1,
        help="share of the users that publish an event, if there is one topic (default: 0.1)",
    )  # fmt: skip
    add_options(parser)
    parser.set_defaults(run=mobuser_command)


def build_command(args: Namespace) -> int:
    """thyme trace build --posts DIR --users N --seed N --out DIR"""
    from thyme.pipeline.session import require_spark

    require_spark()
    import msgspec

    from thyme.pipeline.evaluation_traces import TraceSource, prepare_posts
    from thyme.pipeline.jobs import build_trace
    from thyme.pipeline.warehouse import Warehouse
    from thyme.pipeline.window import check_users, window_facts

    zone = parse_display_zone(args)
    check_stage(args.posts, "posts")
    source = TraceSource(
        posts=Warehouse(args.posts), choice=parse_window(args), rules=parse_rules(args)
    )
    with open_session(args) as spark:
        found = prepare_posts(Warehouse(args.out), source, spark)
        assert found is not None  # the source has posts, and Spark is there
        length_us = found.rules.timetable.length_us
        lasts_us = _trace_length_us(args.compress, length_us, found.rules.lasts_us)
        if found.window is not None:
            if not args.json:
                print_window(found.window, zone, lasts_us)
            check_users(window_facts(found.window), args.users, zone)
        rules = msgspec.structs.replace(found.rules, lasts_us=lasts_us)
        stage = build_trace(
            spark, Warehouse(args.out), found.posts, args.users, args.seed, rules, args.publishers
        )
    return print_stage(args, stage, lambda: _count_lines(stage))


def _trace_length_us(compress: float | None, length_us: int, default_us: int) -> int:
    if compress is None:
        return default_us
    if not 0 < compress <= length_us:
        raise OptionError(f"--compress must be above 0, not {compress:g}")
    return max(round(length_us / compress), 1)


def lecture_command(args: Namespace) -> int:
    """thyme trace lecture --users N --seed N --out DIR"""
    from thyme.pipeline.session import require_spark

    require_spark()
    from thyme.pipeline.jobs import build_lecture_trace
    from thyme.pipeline.warehouse import Warehouse
    from thyme.traces.synthetic.lecture_trace import LectureConfig

    config = LectureConfig(users=args.users)
    with open_session(args) as spark:
        stage = build_lecture_trace(spark, Warehouse(args.out), args.seed, config)
    return print_stage(args, stage, lambda: _count_lines(stage))


def mobuser_command(args: Namespace) -> int:
    """thyme trace mobuser --users N --seed N --out DIR"""
    from thyme.pipeline.session import require_spark

    require_spark()
    from thyme.pipeline.jobs import build_mobuser_trace
    from thyme.pipeline.warehouse import Warehouse
    from thyme.sim.encounters.mobuser_trace import MobUserPopulation

    config = MobUserPopulation(
        users=args.users, publishers_share=args.publishers, rare_probability=args.rare
    )
    with open_session(args) as spark:
        stage = build_mobuser_trace(spark, Warehouse(args.out), args.seed, config)
    return print_stage(args, stage, lambda: _count_lines(stage))


def _count_lines(stage: Stage) -> Iterator[str]:
    counts = stage.manifest.notes["operations"]
    yield ", ".join(f"{count:,} {kind}s" for kind, count in counts.items())
