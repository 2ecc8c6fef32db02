"""One hop: a publisher and a subscriber, each a process with a node in it.

Run by bench_peers as `python -m live.hop ROLE JSON`. The publisher first sends one message at a
time, with pauses, then as many as it can for some seconds. The subscriber prints "ready", reads how
many were published from standard input, and prints what it measured once all have arrived.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from typing import Any

from live import rivals

from thyme.api.world import World
from thyme.cli.node import coroutine_runner
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import open_node
from thyme.live.sockets import NetworkConfig
from thyme.model.worlds import Area

SUBSTRATES = ("dcs", "ls", "es")
IN_FLIGHT = 256
"""Number of inserts under way at full speed."""
BETWEEN_S = 0.5
"""Pause between the two phases."""
SETTLE_S = 5.0
"""For a node of LS to find that it is alone: while it looks, it tells nobody what it knows."""
QUIET_S = 10.0
"""A subscriber that receives nothing for so long has lost what is missing."""


class Meter:
    """Measures what a subscriber receives: ages in the first phase, the rate in the second."""

    def __init__(self) -> None:
        self.ages_us: list[float] = []
        self.count = 0
        self.first_s = self.last_s = 0.0
        self._cpu_s = 0.0

    def receive(self, message: bytes) -> None:
        if not rivals.is_hurried(message):
            self.ages_us.append(rivals.age_us(message))
            self.last_s = time.monotonic()
            return
        self.last_s = time.monotonic()
        if not self.count:
            self.first_s, self._cpu_s = self.last_s, cpu_s()
        self.count += 1

    async def until_complete(self) -> None:
        """Waits for all messages; their number is on standard input once the publisher is done."""
        published = int(await asyncio.to_thread(sys.stdin.readline))
        told_s = time.monotonic()
        while self.count < published:
            await asyncio.sleep(0.05)
            if time.monotonic() > max(told_s, self.last_s) + QUIET_S:
                return

    def report(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "seconds": self.last_s - self.first_s,
            "cpu_s": cpu_s() - self._cpu_s,
            "ages_us": self.ages_us,
        }


def cpu_s() -> float:
    """The processor time that this process has used."""
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def a_world(options: dict[str, Any], *, serves: bool) -> World:
    """Thyme with a node in this process; the subscriber makes the world, and serves it in ES."""
    substrate = options["system"]
    wanted = NodeOptions(
        world="bench",
        create=serves,
        substrate=substrate if serves else None,
        area=Area(40, 40) if serves and substrate == "dcs" else None,
        cell_m=40.0 if serves and substrate == "dcs" else None,
        world_id="bench" if serves else None,
        data=Path(options["data"]) / ("sub" if serves else "pub") if options["data"] else None,
        network=NetworkConfig(group_port=options["port"]),
    )
    node = await open_node(wanted)
    return await World(lambda: (node.world, node.start))


async def subscriber(options: dict[str, Any]) -> None:
    """Receives, and prints what it measured."""
    meter = Meter()
    if options["system"] in SUBSTRATES:
        world = await a_world(options, serves=True)
        await asyncio.sleep(SETTLE_S)
        notes = await world.subscribe("goal", buffer=100_000)

        async def read() -> None:
            async for note in notes:
                meter.receive(note.metadata.summary)

        reader = asyncio.create_task(read())
        print("ready", flush=True)
        await meter.until_complete()
        reader.cancel()
        with suppress(asyncio.CancelledError):
            await reader
        await world.leave()
    else:
        async with rivals.SUBSCRIBERS[options["system"]](options["port"], meter.receive):
            print("ready", flush=True)
            await meter.until_complete()
    print(json.dumps(meter.report()), flush=True)


async def publisher(options: dict[str, Any]) -> None:
    """Publishes one message at a time, then as many as it can."""
    if options["system"] in SUBSTRATES:
        world = await a_world(options, serves=False)

        async def publish(message: bytes) -> None:
            # The whole message is the summary, which notifications carry, and the object.
            await world.insert(message, tags=["goal"], summary=message)

        await asyncio.sleep(3)  # for routes, and for a node of DCS to join its cell
        await _publish(publish, options, side_by_side=IN_FLIGHT)
        await asyncio.to_thread(sys.stdin.read)  # in LS, its objects leave with it
        await world.leave()
    else:
        async with rivals.PUBLISHERS[options["system"]](options["port"]) as publish_to:
            await _publish(publish_to, options, side_by_side=1)


async def _publish(
    publish: Callable[[bytes], Awaitable[None]], options: dict[str, Any], *, side_by_side: int
) -> None:
    for _ in range(options["count"]):
        await publish(rivals.stamped())
        await asyncio.sleep(options["gap_s"])
    await asyncio.sleep(BETWEEN_S)
    started_s, cpu_before_s, sent = time.monotonic(), cpu_s(), 0
    until_s = started_s + options["seconds"]

    async def hurry() -> None:
        nonlocal sent
        while time.monotonic() < until_s:
            await publish(rivals.stamped(hurried=True))
            sent += 1
            if side_by_side == 1 and sent % 32 == 0:
                await asyncio.sleep(0)

    await asyncio.gather(*(hurry() for _ in range(side_by_side)))
    report = {"count": sent, "seconds": time.monotonic() - started_s}
    print(json.dumps(report | {"cpu_s": cpu_s() - cpu_before_s}), flush=True)


async def echo(options: dict[str, Any]) -> None:
    """Sends datagrams back until it is ended."""
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(rivals.Echo, local_addr=("127.0.0.1", options["port"]))
    print("ready", flush=True)
    await asyncio.Event().wait()


ROLES = {"subscriber": subscriber, "publisher": publisher, "echo": echo}


def main() -> None:
    """Plays one role."""
    options = json.loads(sys.argv[2])
    # As `thyme node` does; the bare round trip and the rivals that are asyncio run on asyncio.
    thymes = sys.argv[1] != "echo" and options["system"] in SUBSTRATES
    run: Callable[..., Any] = coroutine_runner() if thymes else asyncio.run
    if options.get("profile"):
        import cProfile

        with cProfile.Profile() as profile:
            run(ROLES[sys.argv[1]](options))
        profile.dump_stats(options["profile"] + "." + sys.argv[1])
        return
    run(ROLES[sys.argv[1]](options))


if __name__ == "__main__":
    main()
