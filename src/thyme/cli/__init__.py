"""The `thyme` command: one module per subcommand.

Entry point: `main`. Each command parses its options, calls the same functions an application would
call, and prints the result. Results go to standard output, everything else to standard error. The
exit status is 0 for success, 2 for an error, and 1 if a command answers a question with no.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from io import TextIOWrapper
from typing import NoReturn

from thyme.cli import compile as compiling
from thyme.cli import demo, lab, node, node_commands, query, station, version
from thyme.cli.operations import doctor, gallery
from thyme.cli.pipeline import analytics, evaluate, oracle, posts, report, trace
from thyme.cli.sim import group
from thyme.model.errors import ThymeError

EXIT_ERROR = 2
EXIT_INTERRUPTED = 130  # the exit status that a shell reports after Ctrl-C
EXIT_PIPE_CLOSED = 141  # the exit status that a shell reports after SIGPIPE

EXAMPLES = """\
examples:
  thyme demo                                         simulate, measure, report
  thyme story                                        see what an application can do
  thyme gallery --create --lan                       share photos with phones near you
  thyme query explain 'goal & (eder | ronaldo)'      explain a query
  thyme query match 'goal & !replay' --tags goal,eder && echo hit
  thyme node --world lisbon --create                 run a node in a live world
  thyme subscribe 'goal & !replay' --follow          print matching objects as they are published
  thyme doctor                                       find out why a node hears nobody
  thyme sim radio --selftest --quick                 compare the simulated radio with ns-3

Put queries in single quotes: & | ! ( ) are special characters of the shell.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    try:
        _prepare_output()
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_output()
        return EXIT_PIPE_CLOSED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except OSError as error:
        _discard_output()
        return _print_error(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return status


def _discard_output() -> None:
    """Redirects standard output to the null device: Python flushes it once more at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: Sequence[str] | None) -> int:
    try:
        args = _parser().parse_args(argv)
        status: int = args.run(args)
    except ThymeError as error:
        return _print_error(str(error))
    except SystemExit as stop:  # argparse has printed the message
        return stop.code if isinstance(stop.code, int) else EXIT_ERROR
    return status


class _Parser(ArgumentParser):
    """A parser whose errors are one line and refer to the help."""

    def error(self, message: str) -> NoReturn:
        self.exit(_print_error(f"{message}\n(see {self.prog} --help)"))


def _parser() -> ArgumentParser:
    parser = _Parser(
        prog="thyme",
        description="Time-aware reactive storage for devices that share a place.",
        epilog=EXAMPLES,
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version", action=version.ShowVersion, nargs=0, help="same as the command version"
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    for command in (
        *(
            demo,
            gallery,
            node,
            station,
            node_commands,
            doctor,
            query,
            lab,
            group,
            posts,
            trace,
            oracle,
            evaluate,
            report,
            analytics,
            compiling,
            version,
        ),
    ):
        command.add_to(commands)
    return parser


def _print_error(message: str) -> int:
    print(f"thyme: {message}", file=sys.stderr)
    return EXIT_ERROR


def _prepare_output() -> None:
    """Makes standard output replace characters that it cannot encode, and opens the null device
    if standard output is closed."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (stays open until the process ends)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
