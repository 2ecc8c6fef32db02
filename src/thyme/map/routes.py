"""Map routes: serves the page of the map, its files, and the events of live nodes.

Entry points: `MapRoutes`, and `read_stream` for programs that read the events of a node.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
from aiohttp import web

from thyme.map.page import ASSET_TYPES, LIVE_POLICY, live_page, read_asset

PAGE_PATH, EVENTS_PATH = "/map", "/map/events"
_LINE_BYTES_MAX = 2**20
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Watch = Callable[[web.Request], AsyncIterator[list[bytes]]]
"""Opens a stream of batches of lines for a request, as `MapHub.watch` does."""


class MapRoutes:
    """HTTP handlers of the map."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    @property
    def by_path(self) -> dict[str, Handler]:
        """The handlers, all for GET, by their paths."""
        return {
            PAGE_PATH: self.show_page,
            EVENTS_PATH: self.stream_events,
            "/map/{name}": self.show_asset,
        }

    async def show_page(self, request: web.Request) -> web.StreamResponse:
        headers = {
            "Content-Security-Policy": LIVE_POLICY,
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        return web.Response(
            body=live_page(), content_type="text/html", charset="utf-8", headers=headers
        )

    async def show_asset(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        if name not in ASSET_TYPES:
            raise web.HTTPNotFound
        headers = {"Cache-Control": "no-cache", "X-Content-Type-Options": "nosniff"}
        response = web.Response(
            body=read_asset(name), content_type=ASSET_TYPES[name], charset="utf-8", headers=headers
        )
        response.enable_compression()
        return response

    async def stream_events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        async for lines in self._watch(request):
            text = b"".join(b"data: %s\n" % line for line in lines)
            await response.write((text or b":\n") + b"\n")
        return response


async def read_stream(session: aiohttp.ClientSession, url: str) -> AsyncIterator[list[bytes]]:
    """Yields batches of lines from the map of a node, until its stream ends."""
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5.0, sock_read=60.0)
    async with session.get(url + EVENTS_PATH, timeout=timeout) as response:
        response.raise_for_status()
        pending = b""
        async for piece in response.content.iter_any():
            *events, pending = (pending + piece).split(b"\n\n")
            if len(pending) > _LINE_BYTES_MAX * 64:
                raise ValueError("an event of the map is too large")
            for event in events:
                lines = [
                    line.removeprefix(b"data: ")
                    for line in event.split(b"\n")
                    if line.startswith(b"data: ")
                ]
                yield lines
