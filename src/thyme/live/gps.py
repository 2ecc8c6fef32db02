"""GPS: where the device is, from a gpsd on this machine.

gpsd speaks JSON, one object a line, on TCP port 2947; a TPV object is a fix. Degrees become metres
from the world's origin, the south-west corner of its area, on a plane that touches the Earth there:
over ten kilometres that is wrong by a few metres, less than GPS itself.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator

import msgspec

from thyme.model.errors import OptionError, WorldError
from thyme.model.worlds import Origin, WorldInfo

HOST, PORT = "127.0.0.1", 2_947
EARTH_RADIUS_M = 6_371_000.0
FIRST_S_MAX = 30.0
"""How long to wait for the first fix."""
AGAIN_S = 5.0
_WATCH = b'?WATCH={"enable":true,"json":true}\n'
_LINE_BYTES_MAX = 2**16


class _Report(msgspec.Struct, rename={"kind": "class"}):
    """What we read of an object of gpsd; a mode below 2 is no fix."""

    kind: str
    mode: int = 0
    lat: float | None = None
    lon: float | None = None


_reports = msgspec.json.Decoder(_Report)


def fix_in(line: bytes) -> Origin | None:
    """The latitude and longitude that a line of gpsd tells of, if it does."""
    try:
        report = _reports.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if report.kind != "TPV" or report.mode < 2 or report.lat is None or report.lon is None:
        return None
    try:
        return Origin(report.lat, report.lon)
    except WorldError:
        return None


def place_of(world: WorldInfo, fix: Origin) -> tuple[float, float]:
    """Where a fix lies in a world, in metres east and north of its origin; at its edge if it is
    outside."""
    if world.origin is None or world.area is None:
        raise WorldError(
            "this world has no place on the Earth: it is made with --area and --origin LAT,LON"
        )
    metres = math.radians(1) * EARTH_RADIUS_M
    turn = (fix.longitude - world.origin.longitude + 180) % 360 - 180
    x_m = turn * metres * math.cos(math.radians(world.origin.latitude))
    y_m = (fix.latitude - world.origin.latitude) * metres
    width_m, height_m = world.area.width_m, world.area.height_m
    return min(max(0.0, x_m), width_m), min(max(0.0, y_m), height_m)


async def fixes(host: str, port: int) -> AsyncIterator[Origin]:
    """The fixes of a gpsd, until it hangs up."""
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=_LINE_BYTES_MAX)
    except OSError as error:
        raise OptionError(
            f"no gpsd answers at {host}:{port}; is it installed, and running? Without it, say "
            "where the device is with --position X,Y"
        ) from error
    try:
        writer.write(_WATCH)
        while line := await reader.readline():
            if (fix := fix_in(line)) is not None:
                yield fix
    except (OSError, ValueError):
        return  # it hung up, or says what is no line
    finally:
        writer.close()


async def first_fix(host: str, port: int, wait_s: float = FIRST_S_MAX) -> Origin:
    """Where the device is now."""

    async def first() -> Origin:
        async for fix in fixes(host, port):
            return fix
        raise OptionError(f"the gpsd at {host}:{port} hung up")

    try:
        return await asyncio.wait_for(first(), wait_s)
    except TimeoutError:
        raise OptionError(
            f"the gpsd at {host}:{port} has no fix after {wait_s:g} s: is the sky in view?"
        ) from None
