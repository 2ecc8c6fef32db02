"""A station with its pages in this process: status, metrics, events, a full disk (I3, I28, I29)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession

from tests.daemon.pages import a_node
from tests.live.stations import StationFiles
from thyme.api.remote import NodeUnreachableError, fetch_any_status, fetch_status
from thyme.cli.station_output import any_status_table
from thyme.daemon.server import start_server
from thyme.daemon.station_daemon import StationDaemon
from thyme.daemon.station_events import PopularTagsFile, StationEventExport
from thyme.events.event import decode_event
from thyme.events.popular_tags import PopularTag, PopularTags
from thyme.live.sockets import NetworkConfig, NetworkError
from thyme.live.station.open_station import LiveStation, StationOptions, open_station
from thyme.live.status import StationStatus
from thyme.model.errors import ThymeError
from thyme.model.ids import Key, ObjectId
from thyme.model.tags import Tag
from thyme.model.worlds import INFRA, named_world_id
from thyme.protocol.app_interface import AppEvent
from thyme.protocol.messages.common import Unpublish
from thyme.protocol.messages.requests import DeleteObject
from thyme.storage.sqlite.disk_reserve import DiskReserve
from thyme.substrates.infra.config_file import parse_station_config
from thyme.substrates.infra.station.settings import StationConfigError

SOON_S = 30.0


class Listener:
    """A station has no application."""

    def on_event(self, event: AppEvent) -> None: ...

    def on_node_failed(self, error: ThymeError) -> None:
        raise error


class RunningStation:
    def __init__(self, live: LiveStation, daemon: StationDaemon, url: str) -> None:
        self.live = live
        self.daemon = daemon
        self.url = url


@asynccontextmanager
async def a_station(
    files: StationFiles, events: Path | None = None
) -> AsyncIterator[RunningStation]:
    text = (files.folder / "north.toml").read_text()
    options = StationOptions(config=parse_station_config(text), data=files.folder / "north")
    export = None if events is None else StationEventExport(events)

    def on_download(world: int, key: Key, cache: str | None) -> None:
        if export is not None:
            export.on_download(world, key, cache, host.now_us())

    live = await open_station(options, on_download)
    host = await live.start(Listener())
    if export is not None:
        export.start(live, host.now_us())
    daemon = StationDaemon(live, host, export)
    runner, url = await start_server(daemon.make_app(), "127.0.0.1", 0)
    try:
        yield RunningStation(live, daemon, url)
    finally:
        if export is not None:
            export.stop(host.now_us())
        await live.close()
        host.close()
        await runner.cleanup()


@asynccontextmanager
async def a_mobile(files: StationFiles) -> AsyncIterator[Any]:
    host, port = files.group["north"].split(":")
    network = NetworkConfig(group=host, group_port=int(port))
    async with a_node(
        world="hall", world_id=None, substrate="infra", create=False, network=network
    ) as node:
        yield node


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    end_s = time.monotonic() + SOON_S
    while not await condition():
        assert time.monotonic() < end_s, "it takes too long"
        await asyncio.sleep(0.1)


def test_i3_i29_a_station_shows_its_worlds_caches_and_nodes_and_exports_events(
    tmp_path: Path,
) -> None:
    files = StationFiles(tmp_path, ["north"])

    async def story() -> None:
        async with (
            a_station(files, tmp_path / "events") as station,
            a_mobile(files) as ann,
            a_mobile(files) as bob,
            ClientSession() as session,
        ):

            async def both_use_it() -> bool:
                station.daemon.poll()
                found = [(await each.ask("GET", "/v1/status"))[1] for each in (ann, bob)]
                return all(each["base_station"] == files.ids["north"] for each in found)

            await until(both_use_it)
            _, made = await ann.ask("POST", "/v1/objects?tags=goal", data=b"photo")
            await until_found(bob, made["key"])
            assert (await bob.ask("GET", f"/v1/objects/{made['key']}"))[1] == b"photo"
            station.daemon.poll()
            check_popular_tags(station.live, tmp_path / "popular_tags.json")
            status = await fetch_any_status(session, station.url)
            assert isinstance(status, StationStatus)
            assert [(world.name, world.mobiles) for world in status.worlds] == [("hall", 2)]
            assert status.counts["downloads missed"] == 1
            assert status.caches["local_popularity"].misses == 1
            assert any_status_table(status).row_count > 10
            async with session.get(f"{station.url}/metrics") as response:
                metrics = await response.text()
            assert 'thyme_station_cache_misses_total{cache="local_popularity"} 1' in metrics
            async with session.get(f"{station.url}/v1/objects") as response:
                assert response.status == 404
                assert "not a node" in (await response.json())["message"]
            with pytest.raises(NodeUnreachableError, match="base station 'north', not a node"):
                await fetch_status(session, station.url)

    asyncio.run(story())
    files_written = sorted((tmp_path / "events").glob("*.jsonl"))
    lines = [line for file in files_written for line in file.read_bytes().splitlines()]
    events = [decode_event(line) for line in lines]
    looks = [(each.cache, each.code) for each in events if each.kind == "cache"]
    assert looks == [("local_popularity", "miss"), ("global", "miss"), ("prefetch", "miss")]
    assert {"node", "neighbour", "load", "cache"} == {each.kind for each in events}


def check_popular_tags(live: LiveStation, file: Path) -> None:
    """P9, I9: the station needs the tags that the analytics found popular in its worlds."""
    now_us, wait_us = 10**12, 20 * 10**6
    hall = named_world_id(INFRA, "hall")
    uses = {"score": 5.0, "inserts": 0.0, "notifications": 0.0, "retrieves": 5.0}
    tags = tuple(
        PopularTag(world=world, tag=tag, **uses)
        for world, tag in ((hall, "eder"), ("another", "goal"), (hall, "not a tag!"))
    )
    popular = PopularTags(version=1, as_of_us=now_us, half_life_us=1, tags=tags)

    def needed(number: int) -> set[str]:
        reader.update(live, now_us + number * wait_us)
        message = live.node.needs.as_message(50)
        found = () if message is None else message.worlds
        return {need.tag for world in found for need in world.needs} - {"goal"}

    reader = PopularTagsFile(file)
    assert needed(0) == set()  # the analytics have not started yet
    file.write_bytes(msgspec.json.encode(popular))
    assert needed(1) == {"eder"}
    file.write_bytes(b"{")
    assert needed(2) == set()
    file.write_bytes(msgspec.json.encode(popular))
    assert needed(3) == {"eder"}
    assert needed(100) == set()  # the analytics ended long ago


async def until_found(node: Any, key: str) -> None:
    async def is_found() -> bool:
        _, found = await node.ask("GET", "/v1/objects?query=goal")
        return key in json.dumps(found)

    await until(is_found)


def test_m24_a_station_on_a_full_disk_goes_on_and_keeps_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = StationFiles(tmp_path, ["north"])
    monkeypatch.setattr(DiskReserve, "fits", lambda *_: False)

    async def story() -> None:
        async with a_station(files) as station:
            node = station.live.node
            key = Key(ObjectId("photo"), node.node_id)
            node.operations.unpublish(
                Unpublish(1, 7, (Tag("goal"),), DeleteObject(1, key)), 1, from_station=True
            )
            station.live.store.commit()
            assert station.daemon.status.full
            station.daemon.poll()
        monkeypatch.undo()
        async with a_station(files) as station:
            assert station.live.node.context.is_unpublished(7, key)
            assert not station.daemon.status.full

    asyncio.run(story())


@pytest.mark.parametrize("ahead_s", [-3600, 3600])
def test_m36_a_station_whose_clock_is_corrected_goes_on_without_a_restart(
    tmp_path: Path, ahead_s: int
) -> None:
    files = StationFiles(tmp_path, ["north"])

    async def story() -> None:
        async with a_station(files) as station, a_mobile(files) as ann, a_mobile(files) as bob:

            async def both_use_it() -> bool:
                found = [(await each.ask("GET", "/v1/status"))[1] for each in (ann, bob)]
                mobiles = [world.mobiles for world in station.daemon.status.worlds]
                both = all(each["base_station"] == files.ids["north"] for each in found)
                return both and mobiles == [2]

            await until(both_use_it)
            wrong, host = station.live.node, station.daemon._host
            # The clock was read before the wall clock was corrected.
            host._clock._origin_us += ahead_s * 1_000_000
            host._clock_watch.begin_again()

            async def is_corrected() -> bool:
                return station.live.node is not wrong

            await until(is_corrected)
            assert abs(host.now_us() - time.time_ns() // 1_000) < 1_000_000
            assert station.daemon.status.up_us < SOON_S * 1e6
            await until(both_use_it)
            _, made = await ann.ask("POST", "/v1/objects?tags=goal", data=b"photo")
            await until_found(bob, made["key"])
            assert (await bob.ask("GET", f"/v1/objects/{made['key']}"))[1] == b"photo"

    asyncio.run(story())


def test_a_station_whose_port_is_taken_or_whose_list_names_itself_says_so(tmp_path: Path) -> None:
    files = StationFiles(tmp_path, ["north"])

    async def story() -> None:
        async with a_station(files):
            options = StationOptions(
                config=parse_station_config((tmp_path / "north.toml").read_text())
            )
            with pytest.raises(NetworkError, match="in use"):
                await open_station(options)
        text = (tmp_path / "north.toml").read_text() + OTHER.format(files.ids["north"])
        options = StationOptions(config=parse_station_config(text), data=tmp_path / "north")
        with pytest.raises(StationConfigError, match="is the id of this station"):
            await open_station(options)

    asyncio.run(story())


OTHER = """
[[others]]
name = "south"
address = "127.0.0.1"
port = 9
id = "{}"
"""
