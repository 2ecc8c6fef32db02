"""Positions from gpsd: parsing a fix, converting it to metres, and errors (D1)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from aiohttp import ClientSession
from hypothesis import given
from hypothesis import strategies as st

from tests.live.nodes import free_group, running
from thyme.api.remote import fetch_status
from thyme.live.gps import parse_fix, to_local_position, wait_for_fix
from thyme.model.errors import OptionError, WorldError
from thyme.model.worlds import Area, GeoPoint, WorldInfo

LISBON = GeoPoint(38.7, -9.2)
WORLD = WorldInfo("w", "w", area=Area(400, 200), cell_m=40, origin=LISBON)
FIRST, LAST = 7, 27
"""The cells of (300, 20) and (300, 100), ten in a row."""
HELLO = b'{"class":"VERSION","release":"3.25","proto_major":3}\r\n'


def tpv(latitude: float, longitude: float, mode: int = 3) -> bytes:
    return b'{"class":"TPV","device":"/dev/x","mode":%d,"lat":%f,"lon":%f,"alt":9.1}\r\n' % (
        mode, latitude, longitude,
    )  # fmt: skip


@contextmanager
def a_gpsd(*lines: bytes) -> Iterator[str]:
    """A gpsd that sends the first line to the first client, and so on, and then waits."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for line in lines:
            try:
                caller, _ = server.accept()
            except OSError:
                return
            callers.append(caller)
            caller.sendall(HELLO)
            if caller.recv(1_000).startswith(b"?WATCH="):
                caller.sendall(line)

    callers: list[socket.socket] = []
    Thread(target=serve, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for caller in callers:
            caller.close()


@pytest.mark.parametrize(
    ("line", "fix"),
    [
        (tpv(38.7, -9.2), LISBON),
        (tpv(38.7, -9.2, mode=2), LISBON),
        (tpv(38.7, -9.2, mode=1), None),
        (HELLO, None),
        (b'{"class":"TPV","mode":3}', None),
        (b'{"class":"TPV","mode":3,"lat":98.0,"lon":1.0}', None),
        (b"GPSD,O=?", None),
        (b"\xff\n", None),
    ],
)
def test_d1_a_fix_is_read_and_nothing_else(line: bytes, fix: GeoPoint | None) -> None:
    assert parse_fix(line) == fix


@given(st.floats(0, 400), st.floats(0, 200))
def test_d1_degrees_become_metres_east_and_north_of_the_origin(x_m: float, y_m: float) -> None:
    """A degree of latitude is 111.195 km; of longitude, at 38.7 degrees north, 86.78 km."""
    fix = GeoPoint(38.7 + y_m / 111_195, -9.2 + x_m / 86_780)

    assert to_local_position(WORLD, fix) == pytest.approx((x_m, y_m), abs=0.05)


def test_d1_who_is_outside_is_at_the_edge() -> None:
    assert to_local_position(WORLD, GeoPoint(38.6, -9.3)) == (0, 0)
    assert to_local_position(WORLD, GeoPoint(38.8, -9.1)) == (400, 200)


def test_a_world_without_an_origin_takes_no_fix() -> None:
    with pytest.raises(WorldError, match="--origin LAT,LON"):
        to_local_position(WorldInfo("w", "w", area=Area(400, 200), cell_m=40), LISBON)


@pytest.mark.parametrize(("latitude", "longitude"), [(90.0, 0.0), (0.0, 181.0), (float("nan"), 0)])
def test_an_origin_is_a_point_on_the_earth(latitude: float, longitude: float) -> None:
    with pytest.raises(WorldError):
        GeoPoint(latitude, longitude)


def test_where_no_gpsd_is_the_user_is_told_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]

    with pytest.raises(OptionError, match=r"no gpsd answers .* --position"):
        asyncio.run(wait_for_fix("127.0.0.1", port))


def test_a_gpsd_without_a_fix_is_not_waited_for_for_ever() -> None:
    with a_gpsd(tpv(1, 1, mode=1)) as address, pytest.raises(OptionError, match="has no fix"):
        asyncio.run(wait_for_fix("127.0.0.1", int(address.split(":")[1]), timeout_s=0.1))


def test_d1_a_node_with_gps_is_in_the_cell_where_it_is(tmp_path: Path) -> None:
    """The node starts in the cell of the first fix, and moves to that of the next."""
    first = tpv(38.7 + 20 / 111_195, -9.2 + 300 / 86_780)
    then = tpv(38.7 + 100 / 111_195, -9.2 + 300 / 86_780)
    make = ("--world", "w", "--create", "--area", "400x200", "--cell", "40", "--memory")
    options = (*make, "--origin", "38.7,-9.2", "--group", free_group())

    async def cells_of(url: str) -> list[int | None]:
        """The cells the node is in, until it is in the last."""
        cells: list[int | None] = []
        async with ClientSession() as session:
            while not cells or cells[-1] != LAST:
                cells.append((await fetch_status(session, url)).cell)
                await asyncio.sleep(0.05)
        return cells

    with a_gpsd(first, then) as gps, running("node", *options, "--gps", gps) as node:
        cells = asyncio.run(asyncio.wait_for(cells_of(node.url), 20))

    assert set(cells) <= {FIRST, LAST}
