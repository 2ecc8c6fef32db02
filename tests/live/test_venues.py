"""Two venues as real processes: stations, mobile nodes, kill -9 of a station (I2, I17–I23, B8)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

import thyme
from tests.live.nodes import NodeProcess
from tests.live.stations import StationFiles

SOON_S = 60.0
FIRST, SECOND = b"first photo" * 100, b"second photo" * 100
NORTH, SOUTH = ("ann", "bob", "cleo"), ("eve", "fay", "gus")


def status(process: NodeProcess) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(urlopen(f"{process.url}/v1/status").read())
    return found


async def until_station(process: NodeProcess, station: str | None) -> None:
    end_s = time.monotonic() + SOON_S
    while status(process)["base_station"] != station:
        assert time.monotonic() < end_s, f"{status(process)['base_station']}, not {station}"
        await asyncio.sleep(0.1)


class Listener:
    """A subscription and everything it was told."""

    def __init__(self, world: thyme.World, subscription: thyme.Subscription) -> None:
        self.world = world
        self.notes: list[thyme.Notification] = []
        self._task = asyncio.create_task(self._listen(subscription))

    async def _listen(self, subscription: thyme.Subscription) -> None:
        async for note in subscription:
            self.notes.append(note)

    async def hears(self, key: thyme.Key) -> thyme.Notification:
        end_s = time.monotonic() + SOON_S
        while True:
            for note in self.notes:
                if note.key == key:
                    return note
            assert time.monotonic() < end_s, f"{key} not among {self.notes}"
            await asyncio.sleep(0.05)

    def stop(self) -> None:
        self._task.cancel()


class TwoVenues:
    """The processes, and the applications of the mobile nodes."""

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self.files = StationFiles(folder, ("north", "south"))
        self._stack = stack
        self.processes: dict[str, NodeProcess] = {}
        self.worlds: dict[str, thyme.World] = {}
        self._listeners: list[Listener] = []

    async def start(self) -> None:
        starts = {name: asyncio.to_thread(self.files.start, name) for name in ("north", "south")}
        for venue, names in (("north", NORTH), ("south", SOUTH)):
            for name in names:
                starts[name] = asyncio.to_thread(self.files.start_mobile, venue, name)
        started = await asyncio.gather(*starts.values())
        self.processes.update(zip(starts, started, strict=True))
        for venue, names in (("north", NORTH), ("south", SOUTH)):
            for name in names:
                await until_station(self.processes[name], self.files.ids[venue])
                world = thyme.connect(self.processes[name].url, world="hall")
                self.worlds[name] = await self._stack.enter_async_context(world)

    async def listen(self, name: str, query: str) -> Listener:
        subscription = await self.worlds[name].subscribe(query)
        self._listeners.append(Listener(self.worlds[name], subscription))
        return self._listeners[-1]

    async def find_apart(self) -> tuple[str, str]:
        """Two nodes of the north in different cells: a node of the owner's cell has an object
        already, so its download makes nothing popular. Cells follow from random ids."""
        names = [*NORTH]
        while True:
            cells = {name: status(self.processes[name])["cell"] for name in names}
            for name in names[1:]:
                if cells[name] != cells[names[0]]:
                    return names[0], name
            names.append(f"more-{len(names)}")
            start = asyncio.to_thread(self.files.start_mobile, "north", names[-1])
            self.processes[names[-1]] = await start
            await until_station(self.processes[names[-1]], self.files.ids["north"])
            world = thyme.connect(self.processes[names[-1]].url, world="hall")
            self.worlds[names[-1]] = await self._stack.enter_async_context(world)

    async def download(self, name: str, key: thyme.Key, query: str) -> bytes:
        """A user searches and downloads, which makes the object popular."""
        for found in await self.worlds[name].search(query):
            if found.key == key:
                return await self.worlds[name].retrieve(found)
        raise AssertionError(f"{name} does not find {key}")

    def end(self) -> None:
        for listener in self._listeners:
            listener.stop()
        for process in self.processes.values():
            process.stop()


@asynccontextmanager
async def two_venues(folder: Path) -> AsyncIterator[TwoVenues]:
    async with AsyncExitStack() as stack:
        venues = TwoVenues(folder, stack)
        try:
            await venues.start()
            yield venues
        finally:
            venues.end()


@pytest.mark.slow
def test_b8_two_venues_share_a_world_and_one_station_is_killed_and_comes_back(
    tmp_path: Path,
) -> None:
    """I19, I22, I23, B8: what is popular in one venue comes to the other; while its station is
    dead, a venue goes on alone; afterwards the other venue gets what it missed, each object once,
    and a delete made meanwhile."""

    async def story() -> None:
        async with two_venues(tmp_path) as venues:
            eve = await venues.listen("eve", "goal")
            owner, reader = await venues.find_apart()
            first = await venues.worlds[owner].insert(FIRST, tags=["goal", "eder"])
            assert await venues.download(reader, first, "goal") == FIRST
            assert await eve.world.retrieve(await eve.hears(first)) == FIRST

            venues.processes["north"].kill()
            for name in NORTH:
                await until_station(venues.processes[name], None)
            other = await venues.listen(reader, "goal & late")
            second = await venues.worlds[owner].insert(SECOND, tags=["goal", "late"])
            assert await other.world.retrieve(await other.hears(second)) == SECOND
            await venues.worlds[owner].delete(first)

            venues.processes["north"] = venues.files.start("north")
            assert await eve.world.retrieve(await eve.hears(second)) == SECOND
            for name in NORTH:
                await until_station(venues.processes[name], venues.files.ids["north"])
            await gone(venues, "eve", first)
            assert [note.key for note in eve.notes] == [first, second]
            assert [note.key for note in other.notes] == [second]
            check_stations(venues)

    asyncio.run(story())


async def gone(venues: TwoVenues, name: str, key: thyme.Key) -> None:
    """Waits until a deleted object is not found any more."""
    end_s = time.monotonic() + SOON_S
    while any(found.key == key for found in await venues.worlds[name].search("goal")):
        assert time.monotonic() < end_s, f"{key} is still there"
        await asyncio.sleep(0.2)


def check_stations(venues: TwoVenues) -> None:
    """The stations say what they did."""
    south = status(venues.processes["south"])
    assert [world["name"] for world in south["worlds"]] == ["hall"]
    assert south["stations"][0]["connected"]
    assert south["stations"][0]["connects"] == 2
    assert south["counts"]["items from stations"] >= 2
    metrics = urlopen(f"{venues.processes['south'].url}/metrics").read().decode()
    assert 'thyme_station_cache_hits_total{cache="prefetch_data"}' in metrics
