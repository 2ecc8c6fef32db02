"""Gaps: sleep, no network, overload, large summaries, stalled readers and wrong clocks, with real
processes.

One line per case: the objects due, those notified, doubled and told as lost, how long the last
notification took, and the memory of each node at its highest. M34 to M36 hold if notified + lost =
due and doubled = 0 in every line. While a subscriber sleeps or has no network, another pair of
nodes publishes for some seconds: its throughput is printed as a share of that before.

    ./run bench gaps                                # all cases, about 90 minutes
    ./run bench gaps --only stop --seconds 40 --substrate es
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from live.processes import NodeProcess, free_group

import thyme
from thyme.model.errors import RejectedError, ThymeError

SUBSTRATES = ("es", "ls", "dcs")
QUIET_S = 15.0
"""A case ends when everything arrived, or nothing more arrived for this time."""
SETTLE_S = 120.0
PAIR_S = 5.0
"""How long another pair of nodes publishes."""


@dataclass(slots=True)
class Count:
    """What one subscriber was told."""

    due: set[str] = field(default_factory=set)
    heard: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    last_s: float = 0.0
    note: str = ""

    @property
    def complete(self) -> bool:
        return len(self.due & self.heard.keys()) + self.lost >= len(self.due)

    def hear(self, key: str) -> None:
        self.heard[key] += 1
        self.last_s = time.monotonic()


class Nodes:
    """The processes of one world: a publisher, a subscriber, another subscriber, which has no
    trouble, and, in ES, a server."""

    def __init__(self, substrate: str, directory: Path) -> None:
        group = free_group()
        world = ["--world", "gaps", "--group", group]
        self.processes: dict[str, NodeProcess] = {}
        if substrate == "es":
            self.processes["server"] = NodeProcess("server", directory / "server", *world)
            created: list[str] = []
        else:
            created = ["--create", "--substrate", substrate]
            if substrate == "dcs":
                created += ["--area", "80x40", "--cell", "40", "--position", "20,20"]
        self.processes["publisher"] = NodeProcess("node", directory / "publisher", *world, *created)
        for name in ("subscriber", "other"):
            self.processes[name] = NodeProcess("node", directory / name, *world)

    @property
    def publisher(self) -> NodeProcess:
        return self.processes["publisher"]

    @property
    def subscriber(self) -> NodeProcess:
        return self.processes["subscriber"]

    def memory(self) -> str:
        return " ".join(
            f"{name} {process.memory_mb_max():.0f}" for name, process in self.processes.items()
        )

    def terminate(self) -> None:
        for process in self.processes.values():
            process.terminate()


@asynccontextmanager
async def running(substrate: str) -> AsyncIterator[Nodes]:
    """Starts the processes of a world, and waits until they are in touch."""
    with tempfile.TemporaryDirectory() as directory:
        nodes = Nodes(substrate, Path(directory))
        try:
            await asyncio.sleep(8)
            yield nodes
        finally:
            nodes.terminate()


async def publish(
    world: thyme.World, count: Count, until: Callable[[int], bool], pause_s: float, summary: bytes
) -> None:
    """Inserts objects, one after the other or many at once, until a condition holds."""
    pending: set[asyncio.Task[None]] = set()

    async def insert() -> None:
        try:
            key = await world.insert(b"x", tags=["goal"], summary=summary)
        except ThymeError as error:
            count.refused[error.code] += 1
        else:
            count.due.add(str(key))

    number = 0
    while not until(number):
        task = asyncio.create_task(insert())
        number += 1
        pending.add(task)
        task.add_done_callback(pending.discard)
        if pause_s:
            await asyncio.sleep(pause_s)
        elif len(pending) >= 500:
            await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
    if pending:
        await asyncio.wait(pending)


async def listen(subscription: thyme.Subscription, count: Count, take_s: list[float]) -> None:
    """Takes notifications, each in `take_s[0]` seconds."""
    taken = 0
    async for notification in subscription:
        count.hear(str(notification.key))
        count.lost = subscription.lost
        taken += 1
        if take_s[0] and taken % 20 == 0:
            await asyncio.sleep(20 * take_s[0])


async def settle(count: Count, subscription: thyme.Subscription) -> None:
    """Waits until everything arrived, or nothing more arrives."""
    begun = time.monotonic()
    count.last_s = max(count.last_s, begun)
    while time.monotonic() - begun < SETTLE_S:
        count.lost = subscription.lost
        if count.complete or time.monotonic() - count.last_s > QUIET_S:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)  # for what comes twice


Act = Callable[[Nodes, thyme.World, Count, list[float]], Awaitable[None]]


async def run_case(substrate: str, act: Act) -> tuple[Count, str, float]:
    """Runs one case in a world of its own."""
    async with running(substrate) as nodes:
        count, take_s = Count(), [0.0]
        async with (
            thyme.connect(nodes.publisher.url) as publisher,
            thyme.connect(nodes.subscriber.url) as subscriber,
        ):
            subscription = await subscriber.subscribe("goal", batch=0)
            listening = asyncio.create_task(listen(subscription, count, take_s))
            await asyncio.sleep(3)
            await act(nodes, publisher, count, take_s)
            acted = time.monotonic()
            await settle(count, subscription)
            listening.cancel()
            return count, nodes.memory(), max(0.0, count.last_s - acted)


def stopped(seconds: float) -> Act:
    """The subscriber sleeps while 40 objects are published; then 20 more."""
    return absent(seconds, NodeProcess.stop, NodeProcess.go_on)


def disconnected(seconds: float) -> Act:
    """The subscriber has no network while 40 objects are published; then 20 more."""
    return absent(seconds, NodeProcess.disconnect, NodeProcess.connect)


def absent(
    seconds: float, leave: Callable[[NodeProcess], None], return_: Callable[[NodeProcess], None]
) -> Act:
    """The subscriber is away for some time; the other one must not suffer."""

    async def act(nodes: Nodes, world: thyme.World, count: Count, take_s: list[float]) -> None:
        async with thyme.connect(nodes.processes["other"].url) as other:
            before, _ = await pair_rate(world, other)
            leave(nodes.subscriber)
            meanwhile, refused = await pair_rate(world, other)
        await publish(world, count, lambda number: number >= 40, seconds / 40, b"")
        return_(nodes.subscriber)
        await publish_more(world, count, 20)
        count.note = f"the other pair {meanwhile / before:.0%} of {before:.0f} objects/s"
        count.note += f", of its inserts {refused} refused" if refused else ""

    return act


async def pair_rate(publisher: thyme.World, subscriber: thyme.World) -> tuple[float, int]:
    """How many objects a second another subscriber is notified of, at full speed, and how many
    inserts were refused."""
    subscription = await subscriber.subscribe("other", batch=0)
    count = Count()
    listening = asyncio.create_task(listen(subscription, count, [0.0]))
    await asyncio.sleep(2)
    begun = time.monotonic()

    async def insert_many() -> None:
        while time.monotonic() < begun + PAIR_S:
            try:
                count.due.add(str(await publisher.insert(b"x", tags=["other"])))
            except RejectedError as error:
                count.refused[error.code] += 1
                await asyncio.sleep(0.1)

    await asyncio.gather(*(insert_many() for _ in range(64)))
    await settle(count, subscription)
    listening.cancel()
    await subscription.cancel()
    return len(count.heard) / (count.last_s - begun), count.refused.total()


async def publish_more(world: thyme.World, count: Count, number: int) -> None:
    for serial in range(number):
        key = await world.insert(b"x", tags=["goal"], oid=f"more-{serial}")
        count.due.add(str(key))


def overloaded(seconds: float) -> Act:
    """Publishes as fast as possible; the subscriber takes a tenth of it, until the end."""

    async def act(nodes: Nodes, world: thyme.World, count: Count, take_s: list[float]) -> None:
        begun = time.monotonic()
        await publish(world, count, lambda _: time.monotonic() - begun > 2, 0, b"")
        rate = len(count.due) / 2
        take_s[0] = 10 / rate
        await asyncio.sleep(2)
        begun = time.monotonic()
        before = len(count.due)
        await publish(world, count, lambda _: time.monotonic() - begun > seconds, 0, b"")
        count.note = f"{(len(count.due) - before) / seconds:.0f} objects/s"
        take_s[0] = 0.0

    return act


def large_summaries(objects: int) -> Act:
    """Publishes summaries of 60 kB as fast as possible."""

    async def act(nodes: Nodes, world: thyme.World, count: Count, take_s: list[float]) -> None:
        begun = time.monotonic()
        await publish(world, count, lambda number: number >= objects, 0, bytes(60_000))
        count.note = f"{len(count.due) * 0.06 / (time.monotonic() - begun):.1f} MB/s"

    return act


def wrong_clock(who: str, ahead_s: float) -> Act:
    """The clock of one node jumps, is corrected after a while, and everything goes on."""

    async def act(nodes: Nodes, world: thyme.World, count: Count, take_s: list[float]) -> None:
        await publish(world, count, lambda number: number >= 10, 0.1, b"")
        nodes.processes[who].set_clock(ahead_s)
        await asyncio.sleep(10)
        await publish_named(world, count, "wrong", 10)
        nodes.processes[who].set_clock(0)
        corrected = time.monotonic()
        count.note = "never"
        for attempt in range(60):
            before = len(count.due)
            await publish_named(world, count, f"right{attempt}", 1)
            if len(count.due) > before:
                count.note = f"works after {time.monotonic() - corrected:.1f} s"
                break
            await asyncio.sleep(0.5)
        await publish_named(world, count, "after", 10)

    return act


async def publish_named(world: thyme.World, count: Count, name: str, number: int) -> None:
    for serial in range(number):
        try:
            key = await world.insert(b"x", tags=["goal"], oid=f"{name}-{serial}")
            count.due.add(str(key))
        except ThymeError as error:
            count.refused[error.code] += 1


async def run_stalled_events(substrate: str, seconds: float) -> tuple[Count, str, float]:
    """A reader of server-sent events stalls, is cut off, and resumes with `Last-Event-ID`."""
    async with running(substrate) as nodes:
        count = Count()
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        async with (
            thyme.connect(nodes.publisher.url) as publisher,
            aiohttp.ClientSession(timeout=timeout, read_bufsize=2**12) as http,
        ):
            body = {"query": "goal", "batch": 0}
            async with http.post(f"{nodes.subscriber.url}/v1/subscriptions", json=body) as reply:
                sid = (await reply.json())["sid"]
            await asyncio.sleep(3)
            url = f"{nodes.subscriber.url}/v1/subscriptions/{sid}/events"
            last = ""
            async with http.get(url) as response:
                rate = 6_000 / seconds
                await publish(publisher, count, lambda n: n >= 6_000, 1 / rate, bytes(300))
                for _ in range(500):
                    last = await read_event(response, count)
            begun = time.monotonic()
            await asyncio.sleep(0.5)
            async with http.get(url, headers={"Last-Event-ID": last}) as response:
                try:
                    while not count.complete:
                        await asyncio.wait_for(read_event(response, count), QUIET_S)
                    await asyncio.wait_for(read_event(response, count), 1)
                except TimeoutError:
                    pass
            return count, nodes.memory(), count.last_s - begun


async def read_event(response: aiohttp.ClientResponse, count: Count) -> str:
    """Reads the next notification; returns its id."""
    event_id = name = ""
    while True:
        line = (await response.content.readline()).decode().rstrip("\n")
        if line.startswith("id: "):
            event_id = line[4:]
        elif line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: ") and name == "note":
            count.hear(event_id)
            return event_id
        elif line.startswith("data: ") and name == "lost":
            count.lost += json.loads(line[6:])["count"]


def cases(options: argparse.Namespace, substrate: str) -> list[tuple[str, Act | None]]:
    """The cases by name; None is the case with server-sent events."""
    found: list[tuple[str, Act | None]] = []
    stops = [options.seconds] if options.seconds else [40.0, 100.0, 600.0]
    found += [(f"stop {seconds:.0f} s", stopped(seconds)) for seconds in stops]
    off_s = options.seconds or 120.0
    found.append((f"no network {off_s:.0f} s", disconnected(off_s)))
    found.append(("overload", overloaded(options.seconds or 60)))
    found.append(("large summaries", large_summaries(options.objects)))
    found.append(("events stalled", None))
    for who in (*(["server"] if substrate == "es" else []), "publisher", "subscriber"):
        found.append((f"clock {who} +600 s", wrong_clock(who, 600)))
        found.append((f"clock {who} -600 s", wrong_clock(who, -600)))
    return [case for case in found if not options.only or case[0].startswith(options.only)]


async def main(options: argparse.Namespace) -> int:
    head = ("substrate", "case", "due", "notified", "doubled", "lost", "after s", "MB at most")
    print("{:9} {:24} {:>7} {:>8} {:>7} {:>6} {:>7}  {}".format(*head), flush=True)
    good = True
    for substrate in options.substrate or SUBSTRATES:
        for name, act in cases(options, substrate):
            if act is None:
                result = await run_stalled_events(substrate, options.seconds or 180)
            else:
                result = await run_case(substrate, act)
            count, memory, after_s = result
            heard = len(count.due & count.heard.keys())
            doubled = sum(times - 1 for times in count.heard.values())
            good = good and doubled == 0 and heard + count.lost == len(count.due)
            refused = " ".join(f"{code}: {times}" for code, times in count.refused.items())
            notes = ", ".join(filter(None, (memory, count.note, refused)))
            print(
                f"{substrate:9} {name:24} {len(count.due):7} {heard:8} {doubled:7} "
                f"{count.lost:6} {after_s:7.1f}  {notes}",
                flush=True,
            )
    return 0 if good else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--substrate", action="append", choices=SUBSTRATES)
    parser.add_argument("--only", help="beginning of the names of cases: stop, overload, …")
    parser.add_argument("--seconds", type=float, help="length of a stop, overload or stall")
    parser.add_argument("--objects", type=int, default=3_000, help="number of large summaries")
    sys.exit(asyncio.run(main(parser.parse_args())))
