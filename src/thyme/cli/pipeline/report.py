"""thyme report: writes the report of a finished evaluation again.

Clause: P7.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from thyme.cli.pipeline.options import require_report
from thyme.model.errors import InputError

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers
    from thyme.report.report import Report


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser: ArgumentParser = commands.add_parser(
        "report",
        help="write the report of an evaluation again",
        description="Write figures, scorecard and page from the results of `thyme evaluate`.",
    )
    parser.add_argument(
        "folder", metavar="W", type=Path, help="folder given as --out to thyme evaluate"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object for each report")
    parser.set_defaults(run=report_command)


def report_command(args: Namespace) -> int:
    """thyme report W [--json]"""
    require_report()
    from thyme.cli.pipeline.evaluate import FAMILIES
    from thyme.report.tables import NoTablesError

    reports, problems = [], []
    for family in FAMILIES:
        try:
            reports.append(family.make_report(args.folder))
        except NoTablesError as error:
            problems.append(str(error))
    if not reports:
        raise InputError(problems[0])
    if args.json:
        for report in reports:
            print(json.dumps(report.as_json()))
    else:
        for report in reports:
            print_report(report)
    return 0


def print_report(report: Report) -> None:
    """Prints the scorecard and the path of the page."""
    print(f"{report.folder}/")
    for name, rows in report.tables.items():
        print(f"  {name:<14}{rows:>10,} rows")
    print(f"  {len(report.figures)} figures")
    width = max(len(line.claim) for line in report.lines)
    print()
    for line in report.lines:
        print(f"{line.claim:<{width}}  {line.verdict}: {line.title}")
    print(f"\nThe report: {report.page} (open it in a browser)")
