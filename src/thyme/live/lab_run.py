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

import msgspec

from thyme.live.lab_air import Air, Delay, Tunnels, Voices
from thyme.live.lab_plan import HTTP_PORT, LabPlan, Point, places_of, waves_of
from thyme.live.lab_spaces import Doors, Space, die_with_parent
from thyme.live.terms import Address
from thyme.model.errors import ThymeError

PLAN, STATE, LOCK, LOG = "plan.json", "state.json", "lock", "lab.log"
START_S_MAX = 60.0
"""Maximum time from the start of a node until it accepts connections."""
STOP_S_MAX = 8.0
"""Maximum time for a node to leave the world and exit."""


class LabNode(msgspec.Struct, kw_only=True):
    """State of one node of a lab."""

    number: int
    place: Point = msgspec.field(name="place")
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
    ready: bool = False
    trouble: str = msgspec.field(default="", name="trouble")
    carried: int = msgspec.field(default=0, name="carried")
    lost: int = 0


def main(directory: Path) -> int:
    """Runs a lab until a signal stops it; returns the exit status."""
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return 1  # another supervisor is running
    plan = msgspec.json.decode((directory / PLAN).read_bytes(), type=LabPlan)
    keeper = Keeper(directory, plan)
    try:
        asyncio.run(keeper.run())
    except ThymeError as error:
        keeper.fail(str(error))
        return 1
    return 0


class Keeper:
    """Starts the nodes of a lab, forwards their datagrams, and stops them."""

    def __init__(self, directory: Path, plan: LabPlan) -> None:
        self._directory = directory
        self._plan = plan
        self._places = places_of(plan)
        self._air = Air(self._places, plan.reach_m, plan.loss, Random(plan.seed))
        self._children: list[subprocess.Popen[bytes] | None] = [None] * plan.nodes
        self._spaces: list[Space] = []
        self._voices: list[Address] = []
        self._ports = free_ports(plan.nodes, socket.SOCK_DGRAM)
        self._stop = asyncio.Event()
        self._state = LabState(
            pid=os.getpid(),
            plan=plan,
            nodes=[
                LabNode(
                    number=number + 1,
                    place=place,
                    url=f"http://127.0.0.1:{port}",
                    log=str(directory / f"node-{number + 1:02}.log"),
                    reaches=[other + 1 for other in self._air.reached[number]],
                )
                for number, (place, port) in enumerate(
                    zip(self._places, free_ports(plan.nodes, socket.SOCK_STREAM), strict=True)
                )
            ],
        )

    async def run(self) -> None:
        """Runs the lab until a signal, then stops all nodes."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._stop.set)
        radio = await self._open_air()
        starting = asyncio.create_task(self._start_all())
        try:
            while not self._stop.is_set():
                self._look_after()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), 0.5)
        finally:
            starting.cancel()
            await self._end_all()
            radio.close()

    def fail(self, trouble: str) -> None:
        """Writes an error into the state of the lab."""
        self._state.trouble = trouble
        self._write()

    async def _open_air(self) -> Voices | Tunnels:
        delay = Delay(self._plan.delay_ms / 1e3)
        if not self._plan.namespaces:
            voices = Voices(self._air, self._ports, delay)
            self._voices = voices.addresses
            voices.open()
            return voices
        self._spaces = [Space(number) for number in range(self._plan.nodes)]
        doors = Doors()
        for space, node in zip(self._spaces, self._state.nodes, strict=True):
            await doors.open(space, port_of(node.url), HTTP_PORT)
        devices = [space.device for space in self._spaces]
        addresses = [space.address for space in self._spaces]
        tunnels = Tunnels(self._air, delay, devices, addresses)
        tunnels.open()
        return tunnels

    async def _start_all(self) -> None:
        """Starts nodes by hops from the first, so that each finds a neighbour in the world."""
        for wave in waves_of(self._places, self._plan.reach_m):
            for number in wave:
                self._start(number)
            self._write()
            for number in wave:
                if not await self._is_up(number):
                    return
                self._state.nodes[number].state = "up"
                self._write()
        self._state.ready = True
        self._write()

    def _start(self, number: int) -> None:
        node = self._state.nodes[number]
        with open(node.log, "ab") as log:
            if self._spaces:
                with self._spaces[number].inside():
                    child = self._spawn(number, log.fileno())
            else:
                child = self._spawn(number, log.fileno())
        self._children[number] = child
        node.pid, node.state = child.pid, "starting"

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
        plan, (x, y) = self._plan, self._places[number]
        command = [sys.executable, "-m", "thyme.cli", "node", "--world", plan.world]
        command += ["--data", str(self._directory / f"node-{number + 1:02}")]
        if number == 0:
            command += ["--create", "--substrate", plan.substrate]
            if plan.substrate == "dcs":
                command += ["--area", f"{plan.width_m:g}x{plan.height_m:g}"]
                command += ["--cell", f"{plan.cell_m:g}"]
        if plan.substrate == "dcs":
            command += ["--position", f"{x:g},{y:g}"]
        if self._spaces:
            http = f"127.0.0.1:{HTTP_PORT}"
            return [*command, "--interface", self._spaces[number].address, "--http", http]
        host, port = self._voices[number]
        command += ["--port", str(self._ports[number]), "--interface", host]
        command += ["--group", f"{host}:{port}"]
        return [*command, "--http", self._state.nodes[number].url.removeprefix("http://")]

    async def _is_up(self, number: int) -> bool:
        """Waits until a node accepts connections; returns False if it does not in time."""
        child, node = self._children[number], self._state.nodes[number]
        assert child is not None
        deadline = time.monotonic() + START_S_MAX
        while child.poll() is None:
            if self._answers(number):
                return True
            if time.monotonic() > deadline:
                self.fail(f"node {node.number} does not answer after {START_S_MAX:g} s: {node.log}")
                return False
            await asyncio.sleep(0.1)
        self.fail(f"node {node.number} ended: {last_words(Path(node.log))}")
        return False

    def _answers(self, number: int) -> bool:
        if self._spaces:
            with self._spaces[number].inside():
                probe = socket.socket()
            address = ("127.0.0.1", HTTP_PORT)
        else:
            probe = socket.socket()
            address = ("127.0.0.1", port_of(self._state.nodes[number].url))
        with probe:
            return probe.connect_ex(address) == 0

    def _look_after(self) -> None:
        """Updates the states of the nodes and the radio counters."""
        for child, node in zip(self._children, self._state.nodes, strict=True):
            if child is not None and child.poll() is not None:
                node.state = "ended"
        self._state.carried, self._state.lost = self._air.carried, self._air.lost
        self._write()

    async def _end_all(self) -> None:
        """Terminates the nodes, forwards their last messages, and kills those that do not exit."""
        children = [child for child in self._children if child is not None]
        for child in children:
            child.terminate()
        for _ in range(round(STOP_S_MAX / 0.05)):
            if all(child.poll() is not None for child in children):
                break
            await asyncio.sleep(0.05)
        for child in children:
            child.kill()
            child.wait()
        for space in self._spaces:
            space.close()

    def _write(self) -> None:
        draft = self._directory / f"{STATE}.new"
        draft.write_bytes(msgspec.json.format(msgspec.json.encode(self._state)))
        os.replace(draft, self._directory / STATE)


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


def port_of(url: str) -> int:
    """The port number in a URL."""
    return int(url.rpartition(":")[2])


def last_words(log: Path) -> str:
    """The last line of a log file."""
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "its log is empty"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
