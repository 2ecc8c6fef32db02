"""Many nodes: a lab of real processes over several hops, used as an application uses it."""

from __future__ import annotations

import asyncio
import secrets
import time
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import thyme
from thyme.api.subscription import Subscription
from thyme.api.world import World
from thyme.lab.lab import down, up
from thyme.lab.plan import LabPlan
from thyme.lab.supervisor import LabState
from thyme.model.errors import OperationError
from thyme.model.subscriptions import Notification

OBJECT_BYTES, LARGE_BYTES = 300, 5_000_000
PATIENCE_S = 30.0
SETTLE_S = 10.0
RETRIEVES = 3


class Listener:
    """A node's user, who is told of what is for this node."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.tag = f"for{number}"
        self._notes: asyncio.Queue[tuple[float, Notification]] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        self.subscription: Subscription = await self.world.subscribe(self.tag)
        self._reader = asyncio.create_task(self._read())

    async def next_note(self) -> tuple[float, Notification]:
        return await asyncio.wait_for(self._notes.get(), PATIENCE_S)

    async def end(self) -> None:
        if self._reader is not None:
            self._reader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reader
        await self.world.leave()

    async def _read(self) -> None:
        async for note in self.subscription:
            self._notes.put_nowait((time.perf_counter(), note))


class Score:
    """How operations ended."""

    def __init__(self) -> None:
        self.done = 0
        self.failed: list[str] = []

    async def of(self, what: str, operation: Any) -> Any:
        try:
            result = await operation
        except (OperationError, TimeoutError) as error:
            self.failed.append(f"{what}: {error or type(error).__name__}")
            return None
        self.done += 1
        return result


def measure(directory: Path, plan: LabPlan, publishes: int) -> dict[str, Any]:
    """Brings a lab up, uses it, and takes it down."""
    started = time.perf_counter()
    state = up(directory, plan, lambda _: None)
    up_s = time.perf_counter() - started
    try:
        time.sleep(SETTLE_S)
        resident = [resident_mb(node.pid) for node in state.nodes]
        used = asyncio.run(_use(state, publishes))
        return {"up_s": up_s, "resident_mb": max(resident)} | used
    finally:
        down(directory)


async def _use(state: LabState, publishes: int) -> dict[str, Any]:
    listeners = [
        Listener(await thyme.connect(node.url, world=state.plan.world), node.number)
        for node in state.nodes
    ]
    score, rng = Score(), Random(1)
    for listener in listeners:
        await score.of("subscribe", listener.begin())
    await asyncio.sleep(1)
    waits_ms = []
    for number in range(publishes):
        sender = listeners[number % len(listeners)]
        receiver = rng.choice([other for other in listeners if other is not sender])
        waits_ms += await _publish(score, sender, receiver)
    large = [await _retrieve(score, listeners, state) for _ in range(RETRIEVES)]
    for listener in listeners:
        await score.of("unsubscribe", listener.subscription.cancel())
        await listener.end()
    taken_s = [seconds for seconds in large if seconds is not None]
    return {
        "notify_ms": median(waits_ms) if waits_ms else None,
        "notify_p95_ms": sorted(waits_ms)[int(0.95 * len(waits_ms))] if waits_ms else None,
        "retrieve_s": median(taken_s) if taken_s else None,
        "operations": score.done,
        "failed": score.failed,
    }


async def _publish(score: Score, sender: Listener, receiver: Listener) -> list[float]:
    started = time.perf_counter()
    data = secrets.token_bytes(OBJECT_BYTES)
    key = await score.of("insert", sender.world.insert(data, tags=[receiver.tag]))
    note = await score.of("notification", receiver.next_note())
    if key is None or note is None:
        return []
    got = await score.of("retrieve", receiver.world.retrieve(note[1]))
    if got is not None and got != data:
        score.failed.append("retrieve: other bytes")
    await score.of("delete", sender.world.delete(key))
    return [1e3 * (note[0] - started)]


async def _retrieve(score: Score, listeners: list[Listener], state: LabState) -> float | None:
    """How long a large object takes from a node to another two hops away."""
    sender, receiver = (listeners[number - 1] for number in two_hops(state))
    data = secrets.token_bytes(LARGE_BYTES)
    key = await score.of("insert of 5 MB", sender.world.insert(data, tags=[receiver.tag]))
    note = await score.of("notification", receiver.next_note())
    if key is None or note is None:
        return None
    started = time.perf_counter()
    got = await score.of("retrieve of 5 MB", receiver.world.retrieve(note[1]))
    taken_s = time.perf_counter() - started
    await score.of("delete", sender.world.delete(key))
    return taken_s if got == data else None


def two_hops(state: LabState) -> tuple[int, int]:
    """The first pair of nodes that only a third connects."""
    reach = {node.number: set(node.reaches) for node in state.nodes}
    for one in reach:
        for other in reach:
            if other != one and other not in reach[one] and reach[one] & reach[other]:
                return one, other
    raise ValueError("every node reaches every other")


def resident_mb(pid: int) -> float:
    """The memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1_024
    raise ValueError(f"process {pid} has no memory")
