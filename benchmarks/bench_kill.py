"""Live nodes under kill -9: what is acknowledged stays, what is deleted stays deleted (M14, M24).

usage: python benchmarks/bench_kill.py [--substrate dcs] [--nodes 6] [--seconds 600] [--seed 1]

Real processes on loopback, each with its store on disk. All the while every node's user inserts,
reads what others inserted, and deletes some of its own; every few seconds a random node is killed
without warning, and comes back a little later. In DCS two nodes share a cell, and only one of them
is down at a time. Operations may fail meanwhile, and what nobody knows the end of does not count.

When all is calm again, every object that was acknowledged is read at a node that is not its
owner's, and every object whose delete was acknowledged must be gone, for every node. The exit
status says whether it was so. The last line of output is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import thyme
from thyme.lab.supervisor import free_ports
from thyme.model.errors import InputError, ThymeError
from thyme.model.ids import Key

CELL_M = 40
OBJECT_BYTES = 300
PAUSE_S = 0.25
UP_S_MAX = 600.0
KILL_EVERY_S, DOWN_S = (3.0, 8.0), (0.5, 6.0)
CALM_S = 40.0
JUDGED_AT_ONCE = 16
TRIES = 6
OPERATION_S_MAX = 60.0
Figures = dict[str, Any]


@dataclass(slots=True)
class Thing:
    """An object that was acknowledged."""

    tag: str
    owner: int
    key: Key
    data: bytes
    delete_begun: bool = False
    deleted_s: float | None = None
    """When the delete was acknowledged."""


class Process:
    """One node, through all its lives."""

    def __init__(self, number: int, words: list[str], log: Path, port: int) -> None:
        self.number = number
        self._words = words
        self._log = log
        self.url = f"http://127.0.0.1:{port}"
        self.lives = 0
        self._child: subprocess.Popen[bytes] | None = None
        self.user: thyme.World | None = None
        self._reaching = asyncio.Lock()

    def start(self) -> None:
        self.lives += 1
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(self._words, stdout=log, stderr=log)

    @property
    def up(self) -> bool:
        return self._child is not None and self._child.poll() is None

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    async def reach(self, world: str) -> thyme.World:
        """The node as its user sees it; waits until it answers."""
        until = time.monotonic() + UP_S_MAX
        async with self._reaching:
            while self.user is None:
                try:
                    self.user = await thyme.connect(self.url, world=world)
                except InputError:
                    if time.monotonic() > until:
                        raise
                    await asyncio.sleep(0.2)
            return self.user

    async def hang_up(self) -> None:
        user, self.user = self.user, None
        if user is not None:
            with suppress(ThymeError, OSError, asyncio.TimeoutError):
                await asyncio.wait_for(user.leave(), 5)


@dataclass
class Soak:
    """A world, its users, and whoever kills."""

    nodes: list[Process]
    world: str
    substrate: str
    rng: Random
    things: list[Thing] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    came_back: list[str] = field(default_factory=list)
    over: bool = False
    down: set[int] = field(default_factory=set)

    async def run(self, seconds: float) -> Figures:
        for node in self.nodes:
            await node.reach(self.world)
        await asyncio.sleep(5)
        users = [asyncio.create_task(self._use(node)) for node in self.nodes]
        killer = asyncio.create_task(self._kill())
        started = time.monotonic()
        while time.monotonic() < started + seconds:
            await asyncio.sleep(min(30.0, seconds))
            deleted = sum(thing.deleted_s is not None for thing in self.things)
            print(
                f"{time.monotonic() - started:4.0f} s: {len(self.things)} acknowledged, {deleted} "
                f"deleted, {self.kills} kills, {dict(self.ended)}",
                file=sys.stderr,
                flush=True,
            )
        self.over = True
        await asyncio.gather(killer, *users)
        print("calm", file=sys.stderr, flush=True)
        await asyncio.sleep(CALM_S)
        lost, undead = await self._judge()
        return {
            "substrate": self.substrate,
            "nodes": len(self.nodes),
            "seconds": seconds,
            "kills": self.kills,
            "acknowledged": len(self.things),
            "deleted": sum(thing.deleted_s is not None for thing in self.things),
            "operations": dict(self.ended),
            "lost": lost,
            "came_back": undead,
            "seen_after_delete": self.came_back,
        }

    # While it goes on

    async def _use(self, node: Process) -> None:
        """A user that does one thing after the other, whatever happens to its node."""
        rng = Random(self.rng.random())
        while not self.over:
            draw = rng.random()
            own = [
                thing
                for thing in self.things
                if thing.owner == node.number and not thing.delete_begun
            ]
            if draw < 0.4:
                await self._tried(node, "insert", self._insert)
            elif draw < 0.55 and own:
                await self._tried(node, "delete", self._delete, rng.choice(own))
            elif self.things:
                await self._tried(node, "read", self._read, rng.choice(self.things))
            await asyncio.sleep(rng.uniform(0.5, 1.5) * PAUSE_S)

    async def _tried(self, node: Process, what: str, do: Any, *more: Any) -> Any:
        lives = node.lives
        try:
            user = await node.reach(self.world)
            result = await asyncio.wait_for(do(node, user, *more), OPERATION_S_MAX)
        except (TimeoutError, ThymeError, OSError) as error:
            code = error.code if isinstance(error, ThymeError) else type(error).__name__
            self.ended[f"{what} {code}"] += 1
            if lives != node.lives or not node.up or code == "ended":
                await node.hang_up()
            return None
        self.ended[what] += 1
        return result

    async def _insert(self, node: Process, user: thyme.World) -> None:
        data, tag = secrets.token_bytes(OBJECT_BYTES), f"thing{secrets.token_hex(8)}"
        key = await user.insert(data, tags=["thing", tag])
        self.things.append(Thing(tag, node.number, key, data))

    async def _delete(self, node: Process, user: thyme.World, thing: Thing) -> None:
        thing.delete_begun = True
        await user.delete(thing.key)
        thing.deleted_s = time.monotonic()

    async def _read(self, node: Process, user: thyme.World, thing: Thing) -> None:
        gone = thing.deleted_s is not None
        found = await user.search(thing.tag)
        if gone and found.notifications:
            assert thing.deleted_s is not None
            age_s = time.monotonic() - thing.deleted_s
            self.came_back.append(f"{thing.key} at node {node.number}, {age_s:.1f} s after")
        elif not thing.delete_begun and not found.notifications:
            self.ended["read, and not there just now"] += 1

    async def _kill(self) -> None:
        """Ends a node every few seconds, and starts it again a little later."""
        back: list[asyncio.Task[None]] = []
        while not self.over:
            await asyncio.sleep(self.rng.uniform(*KILL_EVERY_S))
            able = [node for node in self.nodes if self._may_go(node)]
            if able and not self.over:
                node = self.rng.choice(able)
                self.down.add(node.number)
                node.kill()
                self.kills += 1
                back.append(asyncio.create_task(self._bring_back(node)))
        await asyncio.gather(*back)

    def _may_go(self, node: Process) -> bool:
        """In DCS the other of the cell must be there, and have been for a while."""
        if node.number in self.down:
            return False
        return self.substrate != "dcs" or node.number ^ 1 not in self.down

    async def _bring_back(self, node: Process) -> None:
        await asyncio.sleep(self.rng.uniform(*DOWN_S))
        node.start()
        await node.hang_up()
        await node.reach(self.world)
        await asyncio.sleep(8)  # to hear from its neighbours what it has missed
        self.down.discard(node.number)

    # The end

    async def _judge(self) -> tuple[list[str], list[str]]:
        """What was lost, and what came back."""
        lost: list[str] = []
        undead: list[str] = []
        waiting = list(self.things)

        async def judge_next() -> None:
            while waiting:
                await self._judge_thing(waiting.pop(), lost, undead)

        # A search of LS takes a second, however few objects there are.
        await asyncio.gather(*(judge_next() for _ in range(JUDGED_AT_ONCE)))
        return lost, undead

    async def _judge_thing(self, thing: Thing, lost: list[str], undead: list[str]) -> None:
        others = [node for node in self.nodes if node.number != thing.owner]
        if not thing.delete_begun:
            faults = await self._missing(thing, self.rng.choice(others))
            if faults:
                lost.append(f"{thing.key} of node {thing.owner}: {faults}")
        elif thing.deleted_s is not None:
            node = self.rng.choice(self.nodes)
            user = await node.reach(self.world)
            found = await user.search(thing.tag)
            if found.notifications:
                undead.append(f"{thing.key} of node {thing.owner}, at node {node.number}")

    async def _missing(self, thing: Thing, node: Process) -> str:
        """Why an object cannot be had; a lost datagram is no reason."""
        why = ""
        for _ in range(TRIES):
            try:
                user = await node.reach(self.world)
                found = await user.search(thing.tag)
                if not found.notifications:
                    why = "not found"
                elif await user.retrieve(found.notifications[0]) == thing.data:
                    return ""
                else:
                    return "other bytes"
            except (TimeoutError, ThymeError, OSError) as error:
                why = f"{type(error).__name__}: {error}"
            await asyncio.sleep(1)
        return why


def processes(directory: Path, substrate: str, count: int, world: str) -> list[Process]:
    """The nodes, not started yet; two to a cell."""
    group = f"239.84.{secrets.randbelow(250) + 1}.{secrets.randbelow(250) + 1}"
    [port] = free_ports(1, socket.SOCK_DGRAM)
    found = []
    for number, http in enumerate(free_ports(count, socket.SOCK_STREAM)):
        command = "server" if substrate == "es" and not number else "node"
        words = [sys.executable, "-m", "thyme.cli", command, "--world", world]
        words += ["--data", str(directory / f"node-{number}"), "--http", f"127.0.0.1:{http}"]
        words += ["--interface", "127.0.0.1", "--group", f"{group}:{port}"]
        if command == "node" and not number:
            words += ["--create", "--substrate", substrate]
            if substrate == "dcs":
                words += ["--area", f"{CELL_M * (count // 2)}x{CELL_M}", "--cell", str(CELL_M)]
        if substrate == "dcs":
            words += ["--position", f"{CELL_M * (number // 2) + CELL_M / 2},{CELL_M / 2}"]
        found.append(Process(number, words, directory / f"node-{number}.log", http))
    return found


async def soak(args: argparse.Namespace, directory: Path) -> Figures:
    world = f"kill-{secrets.token_hex(3)}"
    nodes = processes(directory, args.substrate, args.nodes, world)
    try:
        for node in nodes:
            node.start()
            await node.reach(world)
        return await Soak(nodes, world, args.substrate, Random(args.seed)).run(args.seconds)
    finally:
        for node in nodes:
            await node.hang_up()
            node.kill()


def main() -> int:
    """Runs it and says how it went."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--substrate", choices=("dcs", "es", "ls"), default="dcs")
    parser.add_argument("--nodes", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="a directory for stores and logs, kept")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as usual:
        directory = args.keep or Path(usual)
        directory.mkdir(parents=True, exist_ok=True)
        figures = asyncio.run(soak(args, directory))
    print(json.dumps(figures))
    return 1 if figures["lost"] or figures["came_back"] else 0


if __name__ == "__main__":
    sys.exit(main())
