"""thyme version: prints the versions of Thyme, of the wire format and of Python."""

from __future__ import annotations

import json
from argparse import Action, ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers


def add_to(commands: Subparsers) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "version", help="print the version", description="Print the version of Thyme."
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
    """The versions to name in a bug report. Imports here keep other commands fast."""
    import platform

    import thyme
    from thyme.wire import codec

    return {
        "thyme": thyme.__version__,
        "wire": codec.VERSION,
        "python": platform.python_version(),
    }


def line() -> str:
    """The versions as one line of text."""
    found = versions()
    return f"thyme {found['thyme']} (wire version {found['wire']}, Python {found['python']})"
