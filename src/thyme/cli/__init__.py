"""The `thyme` command: thin commands over the other rooms.

Each command parses, calls and renders; what it calls is what an application would call. Results go
to standard output, everything else to standard error. The exit status is 0 when all went well and 2
when what was asked for cannot be done; a command that answers a question says no with 1.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from io import TextIOWrapper
from typing import NoReturn

from thyme.cli import (
    client,
    demo,
    evaluate,
    lab,
    node,
    oracle,
    posts,
    query,
    report,
    sim,
    trace,
    version,
)
from thyme.cli import compile as compiling
from thyme.model.errors import ThymeError

FAILED = 2
INTERRUPTED = 130  # what a shell reports of a program that Ctrl-C ended
PIPE_CLOSED = 141  # and of one whose reader went away

EXAMPLES = """\
examples:
  thyme demo                                         simulate, measure, report
  thyme story                                        what an application can do
  thyme query explain 'goal & (eder | ronaldo)'      what a query means
  thyme query match 'goal & !replay' --tags goal,eder && echo hit
  thyme node --world lisbon --create                 be in a live world
  thyme subscribe 'goal & !replay' --follow          hear of what others publish there
  thyme sim radio --selftest --quick                 the simulated radio against ns-3

Put queries in single quotes: & | ! ( ) mean something to the shell, too.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    try:
        _make_streams_safe()
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        _give_up_output()
        return PIPE_CLOSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        _give_up_output()
        return _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return status


def _give_up_output() -> None:
    """Python writes what is left once more when it ends; lets that go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
        status: int = args.run(args)
    except ThymeError as error:
        return _complain(str(error))
    except SystemExit as stop:  # argparse has said what there was to say
        return stop.code if isinstance(stop.code, int) else FAILED
    return status


class _Parser(ArgumentParser):
    """Complains in one line and points to the help that teaches."""

    def error(self, message: str) -> NoReturn:
        self.exit(_complain(f"{message}\n(see {self.prog} --help)"))


def _parser() -> ArgumentParser:
    parser = _Parser(
        prog="thyme",
        description="Time-aware reactive storage for devices that share a place.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=version.ShowVersion, nargs=0, help="the same as the command version"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for command in (
        *(
            demo,
            node,
            client,
            query,
            lab,
            sim,
            posts,
            trace,
            oracle,
            evaluate,
            report,
            compiling,
            version,
        ),
    ):
        command.add_to(commands)
    return parser


def _complain(message: str) -> int:
    print(f"thyme: {message}", file=sys.stderr)
    return FAILED


def _make_streams_safe() -> None:
    """A terminal that cannot show a letter gets a stand-in, not a crash; and a closed output is
    an output that nobody reads."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (stays open until the process ends)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
