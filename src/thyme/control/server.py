"""HTTP server: serves the HTTP API of a node on loopback.

Entry points: `make_app` (with the list of all routes), `start_server`.
"""

from __future__ import annotations

import errno

from aiohttp import web

from thyme.app.asker import Asker
from thyme.control import metrics, openapi
from thyme.control.answers import as_json, from_here, in_words, is_loopback
from thyme.control.bodies import Position, read_json
from thyme.control.lines import serve_line
from thyme.control.objects import Objects
from thyme.control.status import look_at, world_of
from thyme.control.subscriptions import Subscriptions
from thyme.live.host import Host
from thyme.live.sockets import NetworkError
from thyme.live.status import Status
from thyme.live.switchboard import Switchboard
from thyme.live.world import LiveNode
from thyme.model.errors import OptionError, shown

HTTP_PORT = 8473


class Pages:
    """HTTP handlers of the node's status, metrics, worlds, position and WebSocket."""

    def __init__(self, live: LiveNode, board: Switchboard) -> None:
        self._live = live
        self._board = board
        self._started_us = board.node.now_us()

    @property
    def status(self) -> Status:
        """The current status of the node."""
        return look_at(self._live, self._board, self._started_us)

    async def show_status(self, request: web.Request) -> web.StreamResponse:
        return as_json(self.status)

    async def show_metrics(self, request: web.Request) -> web.StreamResponse:
        text = metrics.written(self.status, self._board.tally, self._live.sockets)
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def show_worlds(self, request: web.Request) -> web.StreamResponse:
        link = self._live.link
        both = {**link.closed_worlds, **link.worlds}
        heard = sorted(both.values(), key=lambda world: (world.name, world.wid))
        own = self._live.world
        worlds = [own, *(world for world in heard if world.wid != own.wid)]
        return as_json([world_of(world) for world in worlds])

    async def move(self, request: web.Request) -> web.StreamResponse:
        place = read_json(await request.read(), Position)
        assert isinstance(self._board.node, Host)
        self._board.node.move((place.x_m, place.y_m))
        return web.Response(status=204)

    async def open_line(self, request: web.Request) -> web.StreamResponse:
        return await serve_line(request, self._board)


async def show_openapi(request: web.Request) -> web.StreamResponse:
    """Responds with the OpenAPI document."""
    return as_json(openapi.document())


def application(live: LiveNode, board: Switchboard) -> web.Application:
    """Makes the aiohttp application with all routes."""
    app = web.Application(middlewares=[in_words, from_here])
    asker = Asker(board.line)
    pages = Pages(live, board)
    objects = Objects(asker)
    subscriptions = Subscriptions(asker)
    for method, path, handler in (
        ("GET", "/v1/status", pages.show_status),
        ("GET", "/v1/worlds", pages.show_worlds),
        ("PUT", "/v1/position", pages.move),
        ("GET", "/v1/line", pages.open_line),
        ("GET", "/metrics", pages.show_metrics),
        ("GET", "/openapi.json", show_openapi),
        ("POST", "/v1/objects", objects.insert),
        ("GET", "/v1/objects", objects.search),
        ("GET", "/v1/objects/{key}", objects.retrieve),
        ("DELETE", "/v1/objects/{key}", objects.delete),
        ("GET", "/v1/objects/{key}/metadata", objects.look_up),
        ("POST", "/v1/subscriptions", subscriptions.subscribe),
        ("GET", "/v1/subscriptions", subscriptions.list_all),
        ("DELETE", "/v1/subscriptions/{sid}", subscriptions.unsubscribe),
        ("POST", "/v1/subscriptions/{sid}/more", subscriptions.more),
        ("GET", "/v1/subscriptions/{sid}/events", subscriptions.events),
    ):
        app.router.add_route(method, path, handler)
    app.on_shutdown.append(subscriptions.close)
    return app


async def offer(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, str]:
    """Starts the server; returns its runner and URL. Raises an `InputError` if it cannot listen."""
    if not is_loopback(host):
        raise OptionError(
            f"the HTTP API has no password, so it is served on loopback only: "
            f"use 127.0.0.1, not {shown(host)}"
        )
    # Handlers of closed connections are cancelled, so that their feeds can be read again.
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise NetworkError(_words(error, host, port)) from error
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"


def _words(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use on {host}: choose another with --http {host}:PORT"
        case errno.EACCES:
            return f"no permission for port {port}: choose one above 1023"
    return f"cannot listen on {host}, port {port}: {error.strerror or error}"
