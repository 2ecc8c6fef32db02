"""One half of a pair of nodes under attack: publishes objects, or receives their notifications.

Run by bench_attack as `python -m live.victim JSON`. The process prints a line of JSON every half
second: how many objects were notified, their ages, the memory, how long the loop was blocked, and
for how much of that it computed.
It ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from live import rivals

from thyme.api.world import World
from thyme.cli.node import coroutine_runner
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import open_node
from thyme.live.sockets import NetworkConfig
from thyme.model.errors import ThymeError
from thyme.model.worlds import Area

REPORT_S = 0.5
PROBE_S = 0.005
IN_FLIGHT_MAX = 200
"""Unfinished inserts of a publisher; those beyond are left out, as a device would."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Meter:
    """Counts between two reports."""

    def __init__(self) -> None:
        self.ages_ms: list[float] = []
        self.acknowledged = self.failed = 0
        self.blocked_ms = self.busy_ms = self.collector_ms = 0.0
        self._collector_from_s = 0.0
        gc.callbacks.append(self._on_collector)

    def _on_collector(self, phase: str, _: dict[str, int]) -> None:
        """Measures how long the garbage collector of Python takes at most."""
        if phase == "start":
            self._collector_from_s = time.thread_time()
        else:
            took_ms = (time.thread_time() - self._collector_from_s) * 1_000
            self.collector_ms = max(self.collector_ms, took_ms)

    def report(self, link_dropped: dict[str, int]) -> str:
        """A line of JSON; starts the next count."""
        ages_ms, self.ages_ms = self.ages_ms, []
        blocked_ms, self.blocked_ms = self.blocked_ms, 0.0
        busy_ms, self.busy_ms = self.busy_ms, 0.0
        collector_ms, self.collector_ms = self.collector_ms, 0.0
        return json.dumps(
            {
                "at_s": time.time(),
                "notified": len(ages_ms),
                "median_ms": median(ages_ms) if ages_ms else None,
                "acknowledged": self.acknowledged,
                "failed": self.failed,
                "rss_mb": _rss_mb(),
                "blocked_ms": blocked_ms,
                "busy_ms": busy_ms,
                "collector_ms": collector_ms,
                "dropped": link_dropped,
            }
        )


async def run(options: dict[str, Any]) -> None:
    """Runs one node until standard input is closed."""
    substrate, creates = options["substrate"], options["creates"]
    in_cells = creates and substrate == "dcs"
    node = await open_node(
        NodeOptions(
            world="attack",
            create=creates,
            substrate=substrate if creates else None,
            area=Area(40, 40) if in_cells else None,
            cell_m=40.0 if in_cells else None,
            world_id="attack" if creates else None,
            secret=options["secret"],
            data=Path(options["data"]) if options["data"] else None,
            network=NetworkConfig(group_port=options["port"]),
        )
    )
    world = await World(lambda: (node.world, node.start))
    meter = Meter()
    tasks = [asyncio.create_task(_probe(meter))]
    if options["role"] == "subscriber":
        tasks.append(asyncio.create_task(_subscribe(world, options["tag"], meter)))
    elif options["role"] == "publisher":
        await asyncio.sleep(4)
        tasks.append(asyncio.create_task(_publish(world, options["tag"], options["rate"], meter)))
    print(json.dumps({"ready": node.world.world_id, "address": node.sockets.address}), flush=True)
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
    while not ended.done():
        await asyncio.wait([ended], timeout=REPORT_S)
        print(meter.report(dict(node.link.dropped)), flush=True)
    for task in tasks:
        task.cancel()
    os._exit(0)  # a hostile neighbour must not delay the end of a run


async def _subscribe(world: World, tag: str, meter: Meter) -> None:
    notes = await world.subscribe(tag, buffer=100_000)
    async for note in notes:
        meter.ages_ms.append(rivals.age_us(note.metadata.summary) / 1_000)


async def _publish(world: World, tag: str, rate: float, meter: Meter) -> None:
    under_way: set[asyncio.Task[None]] = set()
    due_s = time.monotonic()

    async def insert() -> None:
        message = rivals.stamped()
        try:
            await world.insert(message, tags=[tag], summary=message)
        except ThymeError:
            meter.failed += 1
        else:
            meter.acknowledged += 1

    while True:
        if len(under_way) < IN_FLIGHT_MAX:
            task = asyncio.create_task(insert())
            under_way.add(task)
            task.add_done_callback(under_way.discard)
        due_s = max(due_s + 1 / rate, time.monotonic() - 0.1)
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))


async def _probe(meter: Meter) -> None:
    """Measures how late the loop wakes this task, and how much of that time it computed: the rest
    it waited for a processor."""
    while True:
        before_s, used_s = time.monotonic(), time.thread_time()
        await asyncio.sleep(PROBE_S)
        late_ms = (time.monotonic() - before_s - PROBE_S) * 1_000
        meter.blocked_ms = max(meter.blocked_ms, late_ms)
        busy_ms = min(late_ms, (time.thread_time() - used_s) * 1_000)
        meter.busy_ms = max(meter.busy_ms, busy_ms)


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * PAGE_BYTES / 2**20


if __name__ == "__main__":
    coroutine_runner()(run(json.loads(sys.argv[1])))
