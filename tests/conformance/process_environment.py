"""Process environments: the node of each user is a process started by `thyme node`.

A crash is kill -9. Too slow for every run: pytest tests/conformance -m slow -k processes
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from tests.conformance.environment import Environment
from tests.live.nodes import NodeProcess, free_group
from thyme.api.remote import open_remote
from thyme.api.session import NodeSession
from thyme.model.ids import Key

SECOND_US = 1_000_000
CONNECTED_S_MAX = 180.0
"""How long nodes may take to find each other; on a busy machine, processes start slowly."""
SERVER = "server"
PLACES = {
    "resident 1": (20, 20),
    "resident 2": (60, 20),
    "resident 3": (20, 60),
    "resident 4": (60, 60),
    "alice": (25, 25),
    "bob": (55, 55),
    "carol": (55, 25),
}


class ProcessEnvironment(Environment):
    """Node processes on loopback, with stores on disk, in real time."""

    moment_us = SECOND_US // 2
    skew = 10
    clock_error_us = SECOND_US
    many = True
    durable = True

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._directory = directory
        self._group = free_group()
        self._loop = asyncio.new_event_loop()
        self._nodes: dict[str, NodeProcess] = {}
        self._askers: dict[str, NodeSession] = {}

    def _options(self, name: str) -> tuple[str, ...]:
        return ("--world", "lisbon", "--create", "--wid", "w")

    def _start(self, name: str) -> NodeProcess:
        command = "server" if name == SERVER else "node"
        where = ("--group", self._group, "--data", str(self._directory / name))
        node = self._nodes[name] = NodeProcess(command, *self._options(name), *where)
        return node

    def open(self, name: str) -> NodeSession:
        node = self._start(name)

        async def connect() -> NodeSession:
            _, make_port = await open_remote(node.url, "lisbon")
            return NodeSession(make_port)

        asker = self._askers[name] = self._loop.run_until_complete(connect())
        self._wait_until_connected()
        self.elapse(3)
        return asker

    def _wait_until_connected(self) -> None:
        """Waits until every node has all others as neighbours, and serves in its cell."""
        until_s = time.monotonic() + CONNECTED_S_MAX
        others = len(self._nodes) - 1
        for name, node in self._nodes.items():
            while True:
                status = read_status(node)
                if len(status["neighbours"]) >= others and status["serving"]:
                    break
                assert time.monotonic() < until_s, f"{name} is not connected: {status}"
                self.elapse(0.5)

    def crash(self, name: str) -> None:
        self._nodes.pop(name).kill()
        self._loop.run_until_complete(self._askers.pop(name).leave())

    def elapse(self, moments: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(self.us(moments) / SECOND_US))

    def tamper(self, key: Key, data: bytes) -> None:
        """Changes an object in the stores; a short one is not in their tables yet."""
        for file in self._directory.glob("*/*.thyme"):
            with sqlite3.connect(file) as db:
                db.execute("UPDATE data SET value = ? WHERE key = ?", (data, str(key)))
            db.close()

    def standing(self) -> int:
        return max(
            int(read_status(node)["subscriptions_standing"]) for node in self._nodes.values()
        )

    def close(self) -> None:
        for asker in self._askers.values():
            self._loop.run_until_complete(asker.leave())
        for node in self._nodes.values():
            node.kill()
        self._loop.close()


class EsProcesses(ProcessEnvironment):
    """A server and its clients."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._start(SERVER)

    def _options(self, name: str) -> tuple[str, ...]:
        return ("--world", "lisbon", *(("--wid", "w") if name == SERVER else ()))


class LsProcesses(ProcessEnvironment):
    """Nodes of Thyme-LS."""

    outlives_owner = False
    total_at_once = False


class DcsProcesses(ProcessEnvironment):
    """Four cells, each with a node that started earlier."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        for name in PLACES:
            if name.startswith("resident"):
                self._start(name)
        self._wait_until_connected()
        self.elapse(2)

    def _options(self, name: str) -> tuple[str, ...]:
        x, y = PLACES[name]
        area = ("--area", "80x80", "--cell", "40", "--position", f"{x},{y}")
        return (*super()._options(name), *area)

    def open(self, name: str) -> NodeSession:
        asker = super().open(name)
        self.elapse(2)  # for the routes of the others to the new node
        return asker


def read_status(node: NodeProcess) -> dict[str, Any]:
    """The status of a node, as its daemon tells it."""
    with urlopen(f"{node.url}/v1/status") as answer:
        return dict(json.load(answer))
