"""The wires between stations: reconnected when they break, closed to strangers (B5, B8)."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from thyme.lab.supervisor import free_ports
from thyme.live.keys.identity import Identity
from thyme.live.station.wire_queue import MESSAGES_MAX, WAIT_US_MAX, WireQueue
from thyme.live.station.wires import StationWires
from thyme.live.status import OtherStationStatus
from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import Message, ToStation
from thyme.protocol.messages.stations import WorldProbe
from thyme.substrates.infra.config_file import Endpoint, OtherStation
from thyme.transport.link_config import MessageReceived, MessageUndelivered

NORTH, SOUTH, STRANGER = (Identity(bytes([number]) * 32) for number in (1, 2, 3))
SOON_S = 20.0


def now_us() -> int:
    return time.time_ns() // 1_000


class Stations:
    """Stations on loopback, and the messages they received."""

    def __init__(self) -> None:
        names = {"north": NORTH, "south": SOUTH, "stranger": STRANGER}
        ports = free_ports(len(names), socket.SOCK_STREAM)
        self.identities = names
        self.endpoints = {
            name: Endpoint("127.0.0.1", port) for name, port in zip(names, ports, strict=True)
        }
        self.open: list[StationWires] = []

    async def start(
        self, name: str, *others: str, window_us: int = 1, clock: Callable[[], int] = now_us
    ) -> StationWires:
        known = {
            other: OtherStation(self.endpoints[other], self.identities[other].node_id)
            for other in others
        }
        wires = StationWires(
            name, self.identities[name], self.endpoints[name], known, window_us, clock
        )
        await wires.open()
        self.open.append(wires)
        return wires

    async def close(self) -> None:
        for wires in self.open:
            await wires.close()


def run(story: Callable[[Stations], Awaitable[None]]) -> None:
    async def tell() -> None:
        stations = Stations()
        try:
            await asyncio.wait_for(story(stations), 3 * SOON_S)
        finally:
            await stations.close()

    asyncio.run(tell())


async def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + SOON_S
    while not condition():
        assert time.monotonic() < end_s, "it takes too long"
        await asyncio.sleep(0.02)


async def received(wires: StationWires) -> tuple[NodeId, Message]:
    found: list[MessageReceived] = []

    def has_message() -> bool:
        found.extend(e for e in wires.drain_events() if isinstance(e, MessageReceived))
        return bool(found)

    await until(has_message)
    return found[0].sender, found[0].message


def wire_of(wires: StationWires) -> OtherStationStatus:
    return wires.describe()[0]


def test_b8_messages_wait_for_a_station_that_starts_and_for_one_that_comes_back() -> None:
    async def story(stations: Stations) -> None:
        north = await stations.start("north", "south")
        north.send(SOUTH.node_id, WorldProbe(1))
        south = await stations.start("south", "north")
        assert await received(south) == (NORTH.node_id, WorldProbe(1))
        await south.close()
        await until(lambda: not wire_of(north).connected)
        north.send(SOUTH.node_id, WorldProbe(2))
        south = await stations.start("south", "north")
        assert await received(south) == (NORTH.node_id, WorldProbe(2))
        await until(lambda: wire_of(south).connected and wire_of(south).receiving)
        south.send(NORTH.node_id, WorldProbe(3))
        assert await received(north) == (SOUTH.node_id, WorldProbe(3))
        assert wire_of(north).connects == 2

    run(story)


def test_b5_a_station_that_is_not_in_the_list_is_refused_and_counted() -> None:
    async def story(stations: Stations) -> None:
        north = await stations.start("north", "south")
        stranger = await stations.start("stranger", "north")
        stranger.send(NORTH.node_id, WorldProbe(1))
        await until(lambda: north.dropped["not a station of the list"] >= 2)
        assert not wire_of(stranger).connected
        assert north.drain_events() == []

    run(story)


def test_b5_a_station_at_the_address_of_another_is_not_taken_for_it() -> None:
    async def story(stations: Stations) -> None:
        stations.endpoints["south"] = stations.endpoints["stranger"]
        await stations.start("stranger", "north")
        north = await stations.start("north", "south")
        await until(lambda: any("refused south" in reason for reason in north.dropped))
        assert not wire_of(north).connected

    run(story)


def test_b5_bytes_that_are_no_handshake_and_messages_of_mobile_nodes_are_dropped() -> None:
    async def story(stations: Stations) -> None:
        north = await stations.start("north", "south")
        endpoint = stations.endpoints["north"]
        for garbage in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x03abc", b""):
            reader, writer = await asyncio.open_connection(endpoint.address, endpoint.port)
            writer.write(garbage)
            writer.write_eof()
            with suppress(ConnectionError):
                await reader.read()  # until the station has closed the connection
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        await until(lambda: north.dropped["oversized"] == 1 and north.dropped["malformed"] == 1)
        south = await stations.start("south", "north")
        south.send(NORTH.node_id, ToStation(1, CellId(1), WorldProbe(1)))
        await until(lambda: north.dropped["of a mobile node"] == 1)

    run(story)


def test_i20_stations_that_disagree_say_so() -> None:
    """Different windows, lists of stations or clocks: time slots would overlap."""

    async def story(stations: Stations) -> None:
        north = await stations.start("north", "south", window_us=5 * SECOND_US)
        south = await stations.start(
            "south",
            *("north", "stranger"),
            window_us=9 * SECOND_US,
            clock=lambda: now_us() + 60 * SECOND_US,
        )
        await until(lambda: wire_of(north).connected and wire_of(south).connected)
        window, lists, clock = wire_of(north).differences
        assert window == "sharing.reply_window_ms: 5000 here, 9000 there"
        assert "different stations" in lists
        assert clock == "clock: +60 s there"
        assert len(wire_of(south).differences) == 3

    run(story)


def test_a_queue_is_bounded_and_old_messages_leave_it() -> None:
    async def story(stations: Stations) -> None:
        queue = WireQueue()
        assert all(queue.put(b"m", 0) for _ in range(MESSAGES_MAX))
        assert not queue.put(b"one too many", 0)
        assert queue.put(b"late", WAIT_US_MAX + 1)
        assert queue.expired == MESSAGES_MAX
        assert await queue.get(lambda: WAIT_US_MAX + 1, 0.01) == b"late"
        assert await queue.get(lambda: 0, 0.01) == b"", "none came in time"
        north = await stations.start("north", "south")
        for number in range(MESSAGES_MAX + 1):
            north.send(SOUTH.node_id, WorldProbe(number))
        assert north.drain_events() == [MessageUndelivered(SOUTH.node_id, WorldProbe(MESSAGES_MAX))]
        assert north.dropped["queue full"] == 1

    run(story)
