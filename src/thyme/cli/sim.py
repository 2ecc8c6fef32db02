"""thyme sim: the simulated world and its parts, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thyme.cli import sim_radio, sim_run

if TYPE_CHECKING:
    from thyme.cli.commands import Commands


def add_to(commands: Commands) -> None:
    """Adds the commands to the parser."""
    group = commands.add_parser(
        "sim",
        help="run scenarios, try the simulated radio",
        description="The simulated world and its parts, one at a time.",
    ).add_subparsers(metavar="COMMAND", required=True)
    sim_run.add_to(group)
    sim_radio.add_to(group)
