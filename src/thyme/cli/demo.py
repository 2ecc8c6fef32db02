"""thyme demo: a story told by a real world of one."""

from __future__ import annotations

import json
from argparse import Namespace, RawDescriptionHelpFormatter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thyme.cli.commands import Commands

EPILOG = """\
Everything shown is done by the library while you watch; the data is made up and lives in
memory and in a temporary directory that is removed at the end.
"""


def add_to(commands: Commands) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="see Thyme at work",
        description="Tell the story of a football final with a real world of one.",
        epilog=EPILOG,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print only what happened, as JSON")
    parser.set_defaults(run=demo_command)


def demo_command(args: Namespace) -> int:
    """thyme demo [--json]"""
    import asyncio

    from thyme.cli.stage import RichStage, SilentStage
    from thyme.cli.story import as_json, tell

    facts = asyncio.run(tell(SilentStage() if args.json else RichStage()))
    if args.json:
        print(json.dumps(as_json(facts)))
    return 0
