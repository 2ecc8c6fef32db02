"""thyme sim: the group of simulator commands, `run` and `radio`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thyme.cli import sim_radio, sim_run

if TYPE_CHECKING:
    from thyme.cli.commands import Commands


def add_to(commands: Commands) -> None:
    """Adds the commands to the parser."""
    group = commands.add_parser(
        "sim",
        help="simulate a scenario, or only the radio",
        description="Simulate a whole scenario, or only the radio.",
    ).add_subparsers(metavar="COMMAND", required=True)
    sim_run.add_to(group)
    sim_radio.add_to(group)
