"""Station configurations of a lab: one file for each base station, with short periods.

Entry point: `write_station_configs`. The files are those that an operator would write; the
reference is in docs/infra.md.
Clauses: I28.
"""

from __future__ import annotations

from pathlib import Path

PERIOD_MS = 5_000
"""Decisions, needs, time slots and cell data: an object reaches other venues in about 20 s."""


def write_station_configs(
    directory: Path, mobile_ports: list[int], wired_ports: list[int], ids: list[str]
) -> None:
    """Writes `station-01.toml` and so on, each with the list of the other stations."""
    for number, port in enumerate(mobile_ports):
        parts = [
            f"""\
[station]
name = "{_name(number)}"
address = "127.0.0.1"
mobile_port = {port}
wired_port = {wired_ports[number]}

[popularity]
decision_period_ms = {PERIOD_MS}

[sharing]
needs_period_ms = {PERIOD_MS}
reply_window_ms = {PERIOD_MS}

[worlds]
cell_data_period_ms = {PERIOD_MS}
"""
        ]
        parts += [
            f"""
[[others]]
name = "{_name(other)}"
address = "127.0.0.1"
port = {wired_ports[other]}
id = "{ids[other]}"
"""
            for other in range(len(mobile_ports))
            if other != number
        ]
        (directory / f"{_name(number)}.toml").write_text("".join(parts), "utf-8")


def _name(number: int) -> str:
    return f"station-{number + 1:02}"
