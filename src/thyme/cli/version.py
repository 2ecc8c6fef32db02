"""thyme version: which Thyme this is, and what it speaks."""

from __future__ import annotations

import json
from argparse import Action, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thyme.cli.commands import Commands


def add_to(commands: Commands) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "version", help="which version this is", description="Print the version of Thyme."
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=version_command)


def version_command(args: Namespace) -> int:
    """thyme version [--json]"""
    print(json.dumps(versions()) if args.json else line())
    return 0


class ShowVersion(Action):
    """thyme --version"""

    def __call__(self, parser: ArgumentParser, *_: Any) -> None:
        print(line())
        parser.exit()


def versions() -> dict[str, str | int]:
    """The versions that a report of a problem should name; imports what other commands need not."""
    import platform

    import thyme
    from thyme import wire

    return {
        "thyme": thyme.__version__,
        "wire": wire.VERSION,
        "python": platform.python_version(),
    }


def line() -> str:
    """The same for people."""
    found = versions()
    return f"thyme {found['thyme']} (wire version {found['wire']}, Python {found['python']})"
