"""Connections that never send a request do not keep others from the node (B5)."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from thyme.daemon import server
from thyme.daemon.server import start_server


async def hello(request: web.Request) -> web.StreamResponse:
    return web.Response(text="here")


def test_b5_half_a_request_is_closed_and_whole_ones_are_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "WAITING_MAX", 20)
    monkeypatch.setattr(server, "HEADER_S_MAX", 0.2)

    async def story() -> None:
        app = web.Application()
        app.router.add_get("/", hello)
        runner, url = await start_server(app, "127.0.0.1", 0)
        port = int(url.rpartition(":")[2])
        halves = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _, writer in halves:
            writer.write(b"GET / HTTP/1.1\r\nHost: lo")
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            assert await response.text() == "here"
        for reader, writer in halves:
            assert await asyncio.wait_for(reader.read(), 30) == b"", "closed without an answer"
            writer.close()
        await runner.cleanup()

    asyncio.run(story())
