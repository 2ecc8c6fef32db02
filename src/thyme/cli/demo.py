"""thyme demo and thyme story: Thyme at work, on a simulated network and in a world of one.

The demo is the quick evaluation, from traces to a report to look at. The story shows what an
application can do, in a few scenes.
Clauses: P5–P7.
"""

from __future__ import annotations

import json
from argparse import Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thyme.cli.commands import Commands

OUT = Path("thyme-demo")
DEMO = f"""\
Devices of 16 and 36 people at a football match are simulated in three ways of keeping what they
share: nobody fails, devices crash, come and go, or move. It takes two minutes or so
and leaves a report in {OUT}/. It is the same as

  thyme evaluate --preset quick --out {OUT}

What is in that folder already is not simulated again: remove it to start afresh.
"""
STORY = """\
Everything shown is done by the library while you watch; the data is made up and lives in
memory and in a temporary directory that is removed at the end.
"""


def add_to(commands: Commands) -> None:
    """Adds the commands to the parser."""
    parser = commands.add_parser(
        "demo",
        help="see Thyme at work: simulate, measure, report",
        description="Simulate a small evaluation and write its report.",
        epilog=DEMO,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", metavar="W", type=Path, default=OUT, help=f"default: {OUT}")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=demo_command)
    parser = commands.add_parser(
        "story",
        help="what an application can do, told in eight scenes",
        description="Tell the story of a football final with a real world of one.",
        epilog=STORY,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print only what happened, as JSON")
    parser.set_defaults(run=story_command)


def demo_command(args: Namespace) -> int:
    """thyme demo [--out W] [--json]"""
    from thyme.cli.evaluate import evaluate_command

    asked = {"preset": "quick", "only": None, "profile": "paper", "posts": None, "master": None}
    return evaluate_command(Namespace(**asked, out=args.out, json=args.json))


def story_command(args: Namespace) -> int:
    """thyme story [--json]"""
    import asyncio

    from thyme.cli.stage import RichStage, SilentStage
    from thyme.cli.story import as_json, tell

    facts = asyncio.run(tell(SilentStage() if args.json else RichStage()))
    if args.json:
        print(json.dumps(as_json(facts)))
    return 0
