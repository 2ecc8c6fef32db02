"""thyme demo and thyme story: show Thyme on a simulated network and in a local world.

The demo is `thyme evaluate --preset quick`, from traces to a report. The story shows in a few
scenes what an application can do; its scenes are in `story`, its output in `story_output`.
Clauses: P5–P7.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers

OUT = Path("thyme-demo")
DEMO_HELP = f"""\
Simulates the devices of 16 and 36 people at a football match, with three substrates (es, ls, dcs):
without failures, with crashes, with transient churn, and with mobility. It takes about two minutes
and writes a report to {OUT}/. It is the same as

  thyme evaluate --preset quick --out {OUT}

Runs with a result in that folder are not simulated again; remove the folder to start afresh.
"""
STORY_HELP = """\
Every step shown is executed by the library as you watch. The data is made up; it is stored in
memory and in a temporary directory that is removed at the end.
"""


def add_to(commands: Subparsers) -> None:
    """Adds the commands to the parser."""
    parser = commands.add_parser(
        "demo",
        help="see Thyme at work: simulate, measure, report",
        description="Simulate a small evaluation and write its report.",
        epilog=DEMO_HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--out", metavar="W", type=Path, default=OUT, help=f"folder (default: {OUT})"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=demo_command)
    parser = commands.add_parser(
        "story",
        help="see what an application can do, in eight scenes",
        description="Show the operations of Thyme in the story of a football final.",
        epilog=STORY_HELP,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print only the results, as JSON")
    parser.set_defaults(run=story_command)


def demo_command(args: Namespace) -> int:
    """thyme demo [--out W] [--json]"""
    from thyme.cli.pipeline import evaluate

    parser = ArgumentParser()
    evaluate.add_to(parser.add_subparsers())
    words = ["evaluate", "--preset", "quick", "--out", str(args.out)]
    options = parser.parse_args([*words, "--json"] if args.json else words)
    status: int = options.run(options)
    return status


def story_command(args: Namespace) -> int:
    """thyme story [--json]"""
    import asyncio

    from thyme.cli.story import as_json, run_story
    from thyme.cli.story_output import NullOutput, RichOutput

    facts = asyncio.run(run_story(NullOutput() if args.json else RichOutput()))
    if args.json:
        print(json.dumps(as_json(facts)))
    return 0
