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
from thyme.model.worlds import GeoPoint, WorldInfo

HOST, PORT = "127.0.0.1", 2_947
EARTH_RADIUS_M = 6_371_000.0
FIRST_FIX_S_MAX = 30.0
"""Maximum time to wait for the first fix."""
RECONNECT_S = 5.0
_WATCH = b'?WATCH={"enable":true,"json":true}\n'
_LINE_BYTES_MAX = 2**16


class _GpsdReport(msgspec.Struct, rename={"kind": "class"}):
    """The fields of a gpsd object that are used; a mode below 2 means no fix."""

    kind: str
    mode: int = 0
    lat: float | None = None
    lon: float | None = None


_report_decoder = msgspec.json.Decoder(_GpsdReport)


def parse_fix(line: bytes) -> GeoPoint | None:
    """Latitude and longitude in a line of gpsd; None if the line is not a fix."""
    try:
        report = _report_decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    if report.kind != "TPV" or report.mode < 2 or report.lat is None or report.lon is None:
        return None
    try:
        return GeoPoint(report.lat, report.lon)
    except WorldError:
        return None


def to_local_position(world: WorldInfo, fix: GeoPoint) -> tuple[float, float]:
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


async def watch_fixes(host: str, port: int) -> AsyncIterator[GeoPoint]:
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
            if (fix := parse_fix(line)) is not None:
                yield fix
    except (OSError, ValueError):
        return  # gpsd closed the connection, or sent an oversized line
    finally:
        writer.close()


async def wait_for_fix(host: str, port: int, timeout_s: float = FIRST_FIX_S_MAX) -> GeoPoint:
    """Waits for the first fix of a gpsd; raises `OptionError` if there is none in time."""

    async def first() -> GeoPoint:
        async for fix in watch_fixes(host, port):
            return fix
        raise OptionError(f"the gpsd at {host}:{port} closed the connection")

    try:
        return await asyncio.wait_for(first(), timeout_s)
    except TimeoutError:
        raise OptionError(
            f"the gpsd at {host}:{port} has no fix after {timeout_s:g} s: is the sky in view?"
        ) from None
