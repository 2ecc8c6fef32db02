"""Station processes on loopback: their files and commands, for tests and benchmarks."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from tests.live.nodes import NodeProcess, free_group
from thyme.lab.supervisor import free_ports
from thyme.live.station.open_station import station_id

PERIOD_MS = 1_000
"""Short periods, so that an object soon comes to the other venue."""


class StationFiles:
    """The configuration files and data directories of stations that know each other."""

    def __init__(
        self, folder: Path, names: Sequence[str], *, period_ms: int = PERIOD_MS, more: str = ""
    ) -> None:
        self.folder = folder
        self.group = {name: free_group() for name in names}
        mobile = dict(zip(names, free_ports(len(names), socket.SOCK_DGRAM), strict=True))
        wired = dict(zip(names, free_ports(len(names), socket.SOCK_STREAM), strict=True))
        self.ids = {name: station_id(folder / name).hex() for name in names}
        for name in names:
            address, port = self.group[name].split(":")
            text = f"""
[station]
name = "{name}"
address = "127.0.0.1"
mobile_port = {mobile[name]}
wired_port = {wired[name]}
[discovery]
address = "{address}"
port = {port}
[popularity]
decision_period_ms = {period_ms}
[sharing]
needs_period_ms = {period_ms}
reply_window_ms = {period_ms}
[worlds]
cell_data_period_ms = {period_ms}
{more}"""
            for other in names:
                if other != name:
                    text += f"""
[[others]]
name = "{other}"
address = "127.0.0.1"
port = {wired[other]}
id = "{self.ids[other]}"
"""
            (folder / f"{name}.toml").write_text(text)

    def start(self, name: str, *options: str | Path) -> NodeProcess:
        """Starts a station."""
        config, data = self.folder / f"{name}.toml", self.folder / name
        return NodeProcess("station", "--config", config, "--data", data, *options)

    def start_mobile(self, venue: str, name: str, *options: str | Path) -> NodeProcess:
        """Starts a mobile node in the venue of a station."""
        return NodeProcess(
            *("node", "--world", "hall", "--substrate", "infra", "--group", self.group[venue]),
            *("--data", self.folder / name, *options),
        )
