"""A node with its HTTP API in this process, and a client for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import ClientSession, web

from tests.live.nodes import free_group
from thyme.daemon.server import make_app, start_server
from thyme.live.host import Host
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import LiveNode, open_node
from thyme.live.shared_node import SharedNode
from thyme.live.sockets import NetworkConfig
from thyme.map.live_map import LiveMap
from thyme.model.errors import ClosedError
from thyme.transport.link_config import LinkConfig

BRISK = LinkConfig(hello_every_us=100_000)
"""Hellos more often than in production, so that tests wait less."""


def a_place(group: str | None = None) -> NetworkConfig:
    """A multicast group on loopback that nobody else uses."""
    host, port = (group or free_group()).split(":")
    return NetworkConfig(group=host, group_port=int(port))


class Pages:
    """An HTTP client of a node."""

    def __init__(
        self,
        url: str,
        app: web.Application,
        session: ClientSession,
        live: LiveNode,
        host: Host,
    ) -> None:
        self.url = url
        self.app = app
        self.session = session
        self.live = live
        self.host = host

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """Sends a request; returns the status and the body of the response."""
        async with self.session.request(method, self.url + path, **options) as response:
            if response.content_type == "application/json":
                return response.status, await response.json()
            return response.status, await response.read()


@asynccontextmanager
async def a_node(
    http_port: int = 0, token: str | None = None, **wanted: Any
) -> AsyncIterator[Pages]:
    """Starts a node in a world of its own."""
    options = {
        "world": "lisbon",
        "create": True,
        "world_id": "w",
        "network": a_place(),
        "link": BRISK,
    }
    options |= wanted
    live = await open_node(NodeOptions(**options))
    live_map = LiveMap(live, options.get("position"))
    board = SharedNode(live.start)
    app = make_app(live, board, live_map, token=token)
    runner, url = await start_server(app, "127.0.0.1", http_port)
    assert isinstance(board.node, Host)
    async with ClientSession() as session:
        try:
            yield Pages(url, app, session, live, board.node)
        finally:
            board.close_all(ClosedError("the node left its world"))
            live_map.hub.close()
            await runner.cleanup()
            board.node.close()
