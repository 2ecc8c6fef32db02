"""thyme oracle: computes the notifications of a perfect execution of a trace.

Clauses: P4, P10.
"""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from thyme.cli.pipeline.options import add_options, check_stage, open_session, print_stage

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "oracle",
        help="compute the notifications a trace should cause",
        description="Compute every notification of a perfect execution of a trace.",
    )
    parser.add_argument("--trace", metavar="W", required=True, help="warehouse with the trace")
    add_options(parser)
    parser.set_defaults(run=oracle_command)


def oracle_command(args: Namespace) -> int:
    """thyme oracle --trace DIR --out DIR"""
    from thyme.pipeline.session import require_spark

    require_spark()
    from thyme.pipeline.jobs import compute_oracle
    from thyme.pipeline.warehouse import Warehouse

    check_stage(args.trace, "trace")
    with open_session(args) as spark:
        trace = Warehouse(args.trace).open_stage("trace")
        stage = compute_oracle(spark, Warehouse(args.out), trace)
    return print_stage(args, stage)
