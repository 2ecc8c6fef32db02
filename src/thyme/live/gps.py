"""GPS: reads the device's position from gpsd and converts it to metres in the world's area.

gpsd sends JSON, one object per line, on TCP port 2947; a TPV object is a fix. Degrees become metres
from the world's origin, the south-west corner of its area, on the tangent plane at the origin: over
ten kilometres the error is a few metres, less than that of GPS itself.
Entry points: `wait_for_fix`, `watch_fixes`, `to_local_position`.
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
"""Maximum time to wait for the first fix."""
AGAIN_S = 5.0
_WATCH = b'?WATCH={"enable":true,"json":true}\n'
_LINE_BYTES_MAX = 2**16


class _Report(msgspec.Struct, rename={"kind": "class"}):
    """The fields of a gpsd object that are used; a mode below 2 means no fix."""

    kind: str
    mode: int = 0
    lat: float | None = None
    lon: float | None = None


_reports = msgspec.json.Decoder(_Report)


def fix_in(line: bytes) -> Origin | None:
    """Latitude and longitude in a line of gpsd; None if the line is not a fix."""
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
    """Converts a fix to metres east and north of the world's origin; a fix outside the area is
    moved to its edge."""
    if world.origin is None or world.area is None:
        raise WorldError(
            "this world has no geographic origin: create it with --area and --origin LAT,LON"
        )
    degree_m = math.radians(1) * EARTH_RADIUS_M
    longitude_difference = (fix.longitude - world.origin.longitude + 180) % 360 - 180
    x_m = longitude_difference * degree_m * math.cos(math.radians(world.origin.latitude))
    y_m = (fix.latitude - world.origin.latitude) * degree_m
    width_m, height_m = world.area.width_m, world.area.height_m
    return min(max(0.0, x_m), width_m), min(max(0.0, y_m), height_m)


async def fixes(host: str, port: int) -> AsyncIterator[Origin]:
    """Yields the fixes of a gpsd until it closes the connection."""
    try:
        reader, writer = await asyncio.open_connection(host, port, limit=_LINE_BYTES_MAX)
    except OSError as error:
        raise OptionError(
            f"no gpsd answers at {host}:{port}; is it installed and running? Without gpsd, give "
            "the device's position with --position X,Y"
        ) from error
    try:
        writer.write(_WATCH)
        while line := await reader.readline():
            if (fix := fix_in(line)) is not None:
                yield fix
    except (OSError, ValueError):
        return  # gpsd closed the connection, or sent an oversized line
    finally:
        writer.close()


async def first_fix(host: str, port: int, wait_s: float = FIRST_S_MAX) -> Origin:
    """Waits for the first fix of a gpsd; raises `OptionError` if there is none in time."""

    async def first() -> Origin:
        async for fix in fixes(host, port):
            return fix
        raise OptionError(f"the gpsd at {host}:{port} closed the connection")

    try:
        return await asyncio.wait_for(first(), wait_s)
    except TimeoutError:
        raise OptionError(
            f"the gpsd at {host}:{port} has no fix after {wait_s:g} s: is the sky in view?"
        ) from None
