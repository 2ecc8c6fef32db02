"""Lab supervisor: the process that runs a lab's virtual radio and starts and stops its nodes.

`thyme lab up` starts the process, `thyme lab down` stops it with a signal; the nodes end with it in
any case. While it runs, it holds a lock on the lab's directory and writes `state.json` there.
Entry point: `main`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from thyme.lab.lab_map import LabMap
from thyme.lab.namespaces import NetworkNamespace, PortForwarder, die_with_parent
from thyme.lab.plan import (
    NAMESPACE_HTTP_PORT,
    LabPlan,
    Walkers,
    choose_positions,
    start_order,
)
from thyme.lab.station_configs import write_station_configs
from thyme.lab.virtual_radio import DelayLine, LoopbackRadio, TunRadio, VirtualRadio
from thyme.model.errors import ThymeError
from thyme.model.positions import Position
from thyme.transport.link_config import Address

PLAN_FILE, STATE_FILE, LOCK_FILE, LOG_FILE = "plan.json", "state.json", "lock", "lab.log"
POLL_S = 0.5
"""Interval at which the nodes are polled and, in a lab with a speed, moved."""
START_S_MAX = 300.0
"""Maximum time from the start of a node until it accepts connections. A node that fails ends and is
noticed at once; the limit is for one that hangs, and long enough for a busy machine."""
STOP_S_MAX = 8.0
"""Maximum time for a node to leave the world and exit."""


class LabNode(msgspec.Struct, kw_only=True):
    """State of one node of a lab."""

    number: int
    position: Position = msgspec.field(name="place")
    url: str
    log: str
    pid: int = 0
    reaches: list[int] = []
    state: str = "waiting"
    """waiting, starting, up, or ended."""


class LabState(msgspec.Struct, kw_only=True):
    """State of a lab, as written to `state.json`."""

    pid: int
    plan: LabPlan
    nodes: list[LabNode]
    stations: list[LabNode] = []
    ready: bool = False
    error: str = msgspec.field(default="", name="trouble")
    delivered: int = msgspec.field(default=0, name="carried")
    lost: int = 0
    map_url: str = ""
    """URL of the live map; empty if there is none."""


def main(directory: Path) -> int:
    """Runs a lab until a signal stops it; returns the exit status."""
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 1  # another supervisor is running
    plan = msgspec.json.decode((directory / PLAN_FILE).read_bytes(), type=LabPlan)
    supervisor = LabSupervisor(directory, plan)
    try:
        asyncio.run(supervisor.run())
    except ThymeError as error:
        supervisor.fail(str(error))
        return 1
    return 0


class LabSupervisor:
    """Starts the nodes of a lab, forwards their datagrams, and stops them."""

    def __init__(self, directory: Path, plan: LabPlan) -> None:
        self._directory = directory
        self._plan = plan
        self._positions = choose_positions(plan)
        self._walkers = Walkers(plan, self._positions)
        self._radio = VirtualRadio(
            self._positions, plan.effective_range_m, plan.loss, Random(plan.seed)
        )
        devices = plan.nodes + plan.stations
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * devices
        self._namespaces: list[NetworkNamespace] = []
        self._proxy_addresses: list[Address] = []
        self._udp_ports = free_ports(devices, socket.SOCK_DGRAM)
        self._wired_ports = free_ports(plan.stations, socket.SOCK_STREAM)
        self._stop_requested = asyncio.Event()
        self._map: LabMap | None = None
        http_ports = free_ports(devices, socket.SOCK_STREAM)
        made = [self._describe(number, port) for number, port in enumerate(http_ports)]
        self._state = LabState(
            pid=os.getpid(), plan=plan, nodes=made[: plan.nodes], stations=made[plan.nodes :]
        )

    def _describe(self, number: int, http_port: int) -> LabNode:
        """The state of a node, or of a station: those have the last numbers of the radio."""
        nodes = self._plan.nodes
        kind, shown = ("node", number + 1) if number < nodes else ("station", number + 1 - nodes)
        return LabNode(
            number=shown,
            position=self._positions[number],
            url=f"http://127.0.0.1:{http_port}",
            log=str(self._directory / f"{kind}-{shown:02}.log"),
            reaches=[other + 1 for other in self._radio.neighbours[number] if other < nodes],
        )

    @property
    def _devices(self) -> list[LabNode]:
        return [*self._state.nodes, *self._state.stations]

    async def run(self) -> None:
        """Runs the lab until a signal, then stops all nodes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop_requested.set)
        radio = await self._open_radio()
        await self._open_map()
        starting = asyncio.create_task(self._start_all())
        try:
            while not self._stop_requested.is_set():
                self._poll_nodes()
                self._move_nodes()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop_requested.wait(), POLL_S)
        finally:
            starting.cancel()
            if self._map is not None:
                await self._map.stop()
            await self._stop_all()
            radio.close()

    async def _open_map(self) -> None:
        if self._plan.map_port is not None:
            from thyme.lab.lab_map import LabMap

            urls = [node.url for node in self._state.nodes]
            self._map = LabMap(self._plan, self._positions, urls)
            self._state.map_url = await self._map.start(self._plan.map_port)

    def _move_nodes(self) -> None:
        """Moves the nodes of a lab with a speed; `thyme lab status` shows where they are."""
        if not self._plan.speed_m_s or not self._state.ready:
            return
        self._walkers.walk(POLL_S)
        self._radio.move_to(self._walkers.positions)
        if self._map is not None:
            self._map.move_nodes(self._walkers.positions)
        for node, (x, y), reached in zip(
            self._state.nodes, self._walkers.positions, self._radio.neighbours, strict=True
        ):
            node.position = round(x, 1), round(y, 1)
            node.reaches = [other + 1 for other in reached]
        self._write_state()

    def fail(self, error: str) -> None:
        """Writes an error into the state of the lab."""
        self._state.error = error
        self._write_state()

    async def _open_radio(self) -> LoopbackRadio | TunRadio:
        delay = DelayLine(self._plan.delay_ms / 1e3)
        if not self._plan.namespaces:
            loopback = LoopbackRadio(self._radio, self._udp_ports, delay)
            self._proxy_addresses = loopback.addresses
            loopback.open()
            return loopback
        self._namespaces = [NetworkNamespace(number) for number in range(self._plan.nodes)]
        forwarder = PortForwarder()
        for namespace, node in zip(self._namespaces, self._state.nodes, strict=True):
            await forwarder.forward(namespace, parse_port(node.url), NAMESPACE_HTTP_PORT)
        devices = [namespace.tun_fd for namespace in self._namespaces]
        addresses = [namespace.address for namespace in self._namespaces]
        tun_radio = TunRadio(self._radio, delay, devices, addresses)
        tun_radio.open()
        return tun_radio

    async def _start_all(self) -> None:
        """Starts nodes by hops from the first, so that each finds a neighbour in the world."""
        if self._plan.stations:
            ids = await self._station_ids()
            udp_ports = self._udp_ports[self._plan.nodes :]
            write_station_configs(self._directory, udp_ports, self._wired_ports, ids)
            if self._map is not None:
                self._map.add_stations(ids)
        for group in self._start_groups():
            for number in group:
                self._start_node(number)
            self._write_state()
            for number in group:
                if not await self._wait_until_up(number):
                    return
                self._devices[number].state = "up"
                self._write_state()
        self._state.ready = True
        self._write_state()

    async def _station_ids(self) -> list[str]:
        """The ids of all stations, whose keys are made by this."""
        ids = []
        for number in range(1, self._plan.stations + 1):
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "thyme.cli", "station", "--print-id"),
                *("--data", str(self._directory / f"station-{number:02}")),
                stdout=subprocess.PIPE,
            )
            ids.append((await process.communicate())[0].decode().strip())
        return ids

    def _start_groups(self) -> list[list[int]]:
        if self._plan.has_named_world:
            stations = range(self._plan.nodes, len(self._positions))
            return [[*stations, *range(self._plan.nodes)]]
        return start_order(self._positions, self._plan.effective_range_m)

    def _start_node(self, number: int) -> None:
        node = self._devices[number]
        with open(node.log, "ab") as log:
            if self._namespaces:
                with self._namespaces[number].entered():
                    process = self._spawn(number, log.fileno())
            else:
                process = self._spawn(number, log.fileno())
        self._processes[number] = process
        node.pid, node.state = process.pid, "starting"

    def _spawn(self, number: int, log: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command(number),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    def _command(self, number: int) -> list[str]:
        """The command line that runs a node, as a user would type it."""
        plan, (x, y) = self._plan, self._positions[number]
        if number >= plan.nodes:
            return self._station_command(number)
        command = [sys.executable, "-m", "thyme.cli", "node", "--world", plan.world]
        command += ["--data", str(self._directory / f"node-{number + 1:02}")]
        if plan.has_named_world:
            command += ["--substrate", plan.substrate]
            command += ["--position", f"{x:g},{y:g}"] if plan.has_encounters else []
        elif number == 0:
            command += ["--create", "--substrate", plan.substrate]
            if plan.substrate == "dcs":
                command += ["--area", f"{plan.width_m:g}x{plan.height_m:g}"]
                command += ["--cell", f"{plan.cell_m:g}"]
        if plan.substrate == "dcs":
            command += ["--position", f"{x:g},{y:g}"]
        if self._namespaces:
            http = f"127.0.0.1:{NAMESPACE_HTTP_PORT}"
            return [*command, "--interface", self._namespaces[number].address, "--http", http]
        host, port = self._proxy_addresses[number]
        command += ["--port", str(self._udp_ports[number]), "--interface", host]
        command += ["--group", f"{host}:{port}"]
        return [*command, "--http", self._state.nodes[number].url.removeprefix("http://")]

    def _station_command(self, number: int) -> list[str]:
        """The command line that runs a station."""
        host, port = self._proxy_addresses[number]
        name = f"station-{number + 1 - self._plan.nodes:02}"
        command = [sys.executable, "-m", "thyme.cli", "station"]
        command += ["--config", str(self._directory / f"{name}.toml")]
        command += ["--data", str(self._directory / name), "--group", f"{host}:{port}"]
        return [*command, "--http", self._devices[number].url.removeprefix("http://")]

    async def _wait_until_up(self, number: int) -> bool:
        """Waits until a node accepts connections; returns False if it does not in time."""
        process, node = self._processes[number], self._devices[number]
        assert process is not None
        deadline = time.monotonic() + START_S_MAX
        while process.poll() is None:
            if self._accepts_connections(number):
                return True
            if time.monotonic() > deadline:
                name = Path(node.log).stem
                self.fail(f"{name} does not answer after {START_S_MAX:g} s: {node.log}")
                return False
            await asyncio.sleep(0.1)
        self.fail(f"{Path(node.log).stem} ended: {last_log_line(Path(node.log))}")
        return False

    def _accepts_connections(self, number: int) -> bool:
        if self._namespaces:
            with self._namespaces[number].entered():
                probe = socket.socket()
            address = ("127.0.0.1", NAMESPACE_HTTP_PORT)
        else:
            probe = socket.socket()
            address = ("127.0.0.1", parse_port(self._devices[number].url))
        with probe:
            return probe.connect_ex(address) == 0

    def _poll_nodes(self) -> None:
        """Updates the states of the nodes and the radio counters."""
        for process, node in zip(self._processes, self._devices, strict=True):
            if process is not None and process.poll() is not None:
                node.state = "ended"
        self._state.delivered, self._state.lost = self._radio.delivered, self._radio.lost
        self._write_state()

    async def _stop_all(self) -> None:
        """Terminates the nodes, forwards their last messages, and kills those that do not exit."""
        processes = [process for process in self._processes if process is not None]
        for process in processes:
            process.terminate()
        for _ in range(round(STOP_S_MAX / 0.05)):
            if all(process.poll() is not None for process in processes):
                break
            await asyncio.sleep(0.05)
        for process in processes:
            process.kill()
            process.wait()
        for namespace in self._namespaces:
            namespace.close()

    def _write_state(self) -> None:
        draft = self._directory / f"{STATE_FILE}.new"
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(self._state)))
        os.replace(draft, self._directory / STATE_FILE)


def free_ports(count: int, kind: socket.SocketKind) -> list[int]:
    """Loopback ports that are free at the moment."""
    sockets = [socket.socket(socket.AF_INET, kind) for _ in range(count)]
    try:
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def parse_port(url: str) -> int:
    """The port number in a URL."""
    return int(url.rpartition(":")[2])


def last_log_line(log: Path) -> str:
    """The last line of a log file."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "its log is empty"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
