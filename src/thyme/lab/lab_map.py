"""Lab map: collects what the nodes of a lab tell about themselves, and serves one map of all.

Entry point: `LabMap`. The nodes serve their events on loopback; `thyme.map` joins and draws them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import suppress

import aiohttp
from aiohttp import web

from thyme.lab.plan import LabPlan
from thyme.map.hub import MapAbout, MapHub
from thyme.map.routes import Handler, MapRoutes, read_stream
from thyme.map.stream_merger import StreamMerger
from thyme.model.errors import InputError
from thyme.model.positions import Position

FLUSH_S = 0.05
AGAIN_S = 1.0
"""Time after which a stream that ended is opened again."""


class LabMap:
    """The map of one lab."""

    def __init__(self, plan: LabPlan, positions: list[Position], urls: list[str]) -> None:
        """`urls` are those of the nodes; the positions of stations follow those of nodes."""
        self._hub = MapHub(_describe_lab(plan, positions))
        self._merger = StreamMerger(self._hub)
        self._urls = urls
        self._stations = positions[len(urls) :]
        for number, position in enumerate(positions[: len(urls)]):
            self._merger.add_device(number, position)
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None

    async def start(self, port: int) -> str:
        """Serves the map on loopback; returns its URL."""
        app = web.Application(middlewares=[_own_page_only])
        for path, handler in MapRoutes(self._watch).by_path.items():
            app.router.add_get(path, handler)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.5, handler_cancellation=True
        )
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, "127.0.0.1", port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise InputError(f"the map cannot use port {port}: {error.strerror}") from error
        jobs = [self._flush(), *(self._collect(number) for number in range(len(self._urls)))]
        self._tasks = [asyncio.create_task(job) for job in jobs]
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/map"

    def add_stations(self, node_ids: list[str]) -> None:
        """Shows the base stations, whose ids are known once they have keys."""
        for node_id, position in zip(node_ids, self._stations, strict=True):
            self._merger.add_node(node_id, position, "station", _now_us())

    def move_nodes(self, positions: list[Position]) -> None:
        """Shows the nodes at new positions."""
        for number, position in enumerate(positions):
            self._merger.move_device(number, position, _now_us())

    async def stop(self) -> None:
        """Ends the server and all streams."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._hub.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _watch(self, request: web.Request) -> AsyncIterator[list[bytes]]:
        async for lines in self._hub.watch(_now_us()):
            yield lines

    async def _flush(self) -> None:
        while True:
            self._merger.flush(_now_us())
            await asyncio.sleep(FLUSH_S)

    async def _collect(self, number: int) -> None:
        """Reads the events of one node, again and again if it restarts."""
        async with aiohttp.ClientSession() as session:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError, InputError, ValueError):
                    async for lines in read_stream(session, self._urls[number]):
                        for line in lines:
                            self._merger.add_line(number, line)
                self._merger.end_stream(number, _now_us())
                await asyncio.sleep(AGAIN_S)


def _describe_lab(plan: LabPlan, positions: list[Position]) -> MapAbout:
    grid = None
    if plan.substrate == "dcs":
        columns, rows = (math.ceil(side / plan.cell_m) for side in (plan.width_m, plan.height_m))
        grid = columns, rows, plan.cell_m
    width_m = max(plan.width_m, *(x for x, _ in positions))
    stations = f", {plan.stations} stations" if plan.stations else ""
    return MapAbout(
        title=f"{plan.world}: {plan.substrate}, {plan.nodes} nodes{stations}",
        range_m=plan.effective_range_m,
        area=(width_m, plan.height_m),
        grid=grid,
    )


@web.middleware
async def _own_page_only(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuses requests that name another host, and those of pages of another origin, which must
    neither read the map nor hold its streams; a link to it may be followed."""
    if request.url.host not in ("127.0.0.1", "localhost"):
        raise web.HTTPMisdirectedRequest
    own = f"http://{request.host}"
    from_own_page = request.headers.get("Sec-Fetch-Site", "none") in ("same-origin", "none")
    followed_link = request.headers.get("Sec-Fetch-Mode") == "navigate"
    if request.headers.get("Origin", own) != own or not (from_own_page or followed_link):
        raise web.HTTPForbidden(text="a page of another origin may not read this map")
    return await handler(request)


def _now_us() -> int:
    return time.time_ns() // 1_000
