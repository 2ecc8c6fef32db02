"""HTTP server: serves the HTTP API of a node on loopback.

Entry points: `make_app` (with the list of all routes), `start_server`.
"""

from __future__ import annotations

import asyncio
import errno
from typing import Any

from aiohttp import web

from thyme.api.session import NodeSession
from thyme.daemon import metrics, openapi
from thyme.daemon.access_token import require_token
from thyme.daemon.event_export import EventExport
from thyme.daemon.json_schemas import PositionBody, parse_json
from thyme.daemon.object_routes import ObjectRoutes
from thyme.daemon.responses import (
    Handler,
    error_middleware,
    is_loopback,
    json_response,
    loopback_only,
)
from thyme.daemon.status.collect_shares import collect_shares
from thyme.daemon.status.collect_status import collect_status, describe_world
from thyme.daemon.subscription_routes import SubscriptionRoutes
from thyme.daemon.websocket import serve_websocket
from thyme.live.host import Host
from thyme.live.open_node import LiveNode
from thyme.live.shared_node import SharedNode
from thyme.live.sockets import NetworkError
from thyme.live.status import NodeStatus
from thyme.map.live_map import LiveMap
from thyme.map.routes import MapRoutes
from thyme.model.errors import OptionError, safe_repr

HTTP_PORT = 8473
HEADER_S_MAX = 10.0
WAITING_MAX = 128
"""Maximum number of connections that have not sent the header of a request yet; the oldest one is
closed for a new one."""
HEADER_BYTES_MAX = 8_190


class StatusRoutes:
    """HTTP handlers of the node's status, metrics, worlds, position and WebSocket."""

    def __init__(
        self, live_node: LiveNode, shared_node: SharedNode, export: EventExport | None
    ) -> None:
        self._live_node = live_node
        self._shared_node = shared_node
        self._export = export
        self._started_us = shared_node.node.now_us()

    @property
    def status(self) -> NodeStatus:
        """The current status of the node."""
        events = None if self._export is None else self._export.read_stats()
        return collect_status(self._live_node, self._shared_node, self._started_us, events)

    async def show_status(self, request: web.Request) -> web.StreamResponse:
        return json_response(self.status)

    async def show_shares(self, request: web.Request) -> web.StreamResponse:
        return json_response(collect_shares(self._live_node, self._shared_node.node.now_us()))

    async def show_metrics(self, request: web.Request) -> web.StreamResponse:
        text = metrics.render(self.status, self._shared_node.stats, self._live_node.sockets)
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    async def show_worlds(self, request: web.Request) -> web.StreamResponse:
        link = self._live_node.link
        worlds_by_id = {**link.hellos.closed_worlds, **link.hellos.worlds}
        discovered = sorted(worlds_by_id.values(), key=lambda world: (world.name, world.world_id))
        own = self._live_node.world
        worlds = [own, *(world for world in discovered if world.world_id != own.world_id)]
        return json_response([describe_world(world) for world in worlds])

    async def move(self, request: web.Request) -> web.StreamResponse:
        position = parse_json(await request.read(), PositionBody)
        assert isinstance(self._shared_node.node, Host)
        self._shared_node.node.move_to((position.x_m, position.y_m))
        return web.Response(status=204)

    async def open_websocket(self, request: web.Request) -> web.StreamResponse:
        return await serve_websocket(request, self._shared_node)


async def show_openapi(request: web.Request) -> web.StreamResponse:
    """Responds with the OpenAPI document."""
    return json_response(openapi.build_document())


def make_app(
    live_node: LiveNode,
    shared_node: SharedNode,
    live_map: LiveMap,
    export: EventExport | None = None,
    token: str | None = None,
) -> web.Application:
    """Makes the aiohttp application with all routes; with a token, requests need it."""
    app = web.Application(middlewares=[error_middleware, loopback_only])
    if token is not None:
        app.middlewares.append(require_token(token))
    session = NodeSession(shared_node.open_session)
    status_routes = StatusRoutes(live_node, shared_node, export)
    object_routes = ObjectRoutes(session, shared_node.was_notified)
    subscription_routes = SubscriptionRoutes(session)
    for method, path, handler in (
        ("GET", "/v1/status", status_routes.show_status),
        ("GET", "/v1/peers", status_routes.show_shares),
        ("GET", "/v1/worlds", status_routes.show_worlds),
        ("PUT", "/v1/position", status_routes.move),
        ("GET", "/v1/line", status_routes.open_websocket),
        ("GET", "/metrics", status_routes.show_metrics),
        ("GET", "/openapi.json", show_openapi),
        ("POST", "/v1/objects", object_routes.insert),
        ("GET", "/v1/objects", object_routes.search),
        ("GET", "/v1/objects/{key}", object_routes.retrieve),
        ("DELETE", "/v1/objects/{key}", object_routes.delete),
        ("GET", "/v1/objects/{key}/metadata", object_routes.look_up),
        ("GET", "/v1/objects/{key}/versions", object_routes.list_versions),
        ("POST", "/v1/subscriptions", subscription_routes.subscribe),
        ("GET", "/v1/subscriptions", subscription_routes.list_all),
        ("DELETE", "/v1/subscriptions/{sid}", subscription_routes.unsubscribe),
        ("POST", "/v1/subscriptions/{sid}/more", subscription_routes.more),
        ("GET", "/v1/subscriptions/{sid}/events", subscription_routes.events),
    ):
        app.router.add_route(method, path, handler)
    map_routes = MapRoutes(lambda request: live_map.watch(shared_node.node.now_us))
    for path, show in map_routes.by_path.items():
        app.router.add_route("GET", path, show)
    app.on_shutdown.append(subscription_routes.close)
    return app


class LimitedRunner(web.AppRunner):
    """Runs an application, and closes connections that never send a request: each has ten seconds
    for the header of its first one, and few may wait at a time (B5)."""

    def __init__(self, app: web.Application) -> None:
        app.middlewares.insert(0, self._on_request)
        # Handlers of closed connections are cancelled, so that their feeds can be read again.
        super().__init__(
            app,
            access_log=None,
            shutdown_timeout=2.0,
            handler_cancellation=True,
            max_line_size=HEADER_BYTES_MAX,
            max_field_size=HEADER_BYTES_MAX,
        )
        self._waiting: dict[Any, None] = {}

    @property
    def server(self) -> Any:
        """The function that makes the protocol of each connection."""
        return None if super().server is None else self._connect

    def _connect(self) -> Any:
        made = super().server
        assert made is not None
        connection = made()
        self._waiting[connection] = None
        asyncio.get_running_loop().call_later(HEADER_S_MAX, self._close, connection)
        if len(self._waiting) > WAITING_MAX:
            self._close(next(iter(self._waiting)))
        return connection

    def _close(self, connection: Any) -> None:
        if connection in self._waiting:
            del self._waiting[connection]
            connection.force_close()

    @property
    def _on_request(self) -> Any:
        @web.middleware
        async def count_request(request: web.Request, handler: Handler) -> web.StreamResponse:
            self._waiting.pop(request.protocol, None)
            return await handler(request)

        return count_request


async def start_server(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, str]:
    """Starts the server; returns its runner and URL. Raises an `InputError` if it cannot listen."""
    if not is_loopback(host):
        raise OptionError(
            f"the HTTP API has no password, so it is served on loopback only: "
            f"use 127.0.0.1, not {safe_repr(host)}"
        )
    runner = LimitedRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        await runner.cleanup()
        raise NetworkError(_error_text(error, host, port)) from error
    host, port = runner.addresses[0][:2]
    return runner, f"http://{host}:{port}"


def _error_text(error: OSError, host: str, port: int) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {port} is in use on {host}: choose another with --http {host}:PORT"
        case errno.EACCES:
            return f"no permission for port {port}: choose one above 1023"
    return f"cannot listen on {host}, port {port}: {error.strerror or error}"
