"""thyme sim: the group of simulator commands, `run` and `radio`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thyme.cli.sim import radio, run

if TYPE_CHECKING:
    from thyme.cli.subparsers import Subparsers


def add_to(commands: Subparsers) -> None:
    """Adds the commands to the parser."""
    group = commands.add_parser(
        "sim",
        help="simulate a scenario, or only the radio",
        description="Simulate a whole scenario, or only the radio.",
    ).add_subparsers(metavar="COMMAND", required=True)
    run.add_to(group)
    radio.add_to(group)
