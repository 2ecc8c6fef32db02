"""thyme oracle: computes the notifications of a perfect execution of a trace.

Clauses: P4, P10.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli.spark_stage import add_options, session, show

if TYPE_CHECKING:
    from thyme.cli.commands import Commands


def add_to(commands: Commands) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "oracle",
        help="compute the notifications a trace should cause",
        description="Compute every notification of a perfect execution of a trace.",
    )
    parser.add_argument(
        "--trace", metavar="DIR", type=Path, required=True, help="warehouse with the trace"
    )
    add_options(parser)
    parser.set_defaults(run=oracle_command)


def oracle_command(args: Namespace) -> int:
    """thyme oracle --trace DIR --out DIR"""
    from thyme.pipeline.session import need_spark

    need_spark()
    from thyme.pipeline.jobs import ask_oracle
    from thyme.pipeline.warehouse import Warehouse

    trace = Warehouse(args.trace).open("trace")
    with session(args) as spark:
        stage = ask_oracle(spark, Warehouse(args.out), trace)
    return show(args, stage)
