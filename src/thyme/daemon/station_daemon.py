"""Station daemon: runs a base station with its status pages until a signal stops it.

The pages are on loopback, like those of a node: `/v1/status`, `/metrics`. A station stores nothing
for applications; those use a node. After a crash it restarts with what it has confirmed (B8).
Entry point: `run_station`. The station itself is up to `thyme.live.station`.
Clauses: I28, I29, B8.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from aiohttp import web

from thyme.daemon import metrics
from thyme.daemon.logs import log_event, log_warning
from thyme.daemon.responses import (
    Handler,
    error_middleware,
    json_response,
    loopback_only,
    problem_response,
)
from thyme.daemon.server import start_server
from thyme.daemon.station_events import PopularTagsFile, StationEventExport
from thyme.daemon.station_status import collect_station_status, render_station
from thyme.live.host import Host
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.live.station.open_station import LiveStation, StationOptions, open_station
from thyme.live.status import StationStatus
from thyme.model.errors import ThymeError
from thyme.model.ids import Key
from thyme.protocol.app_interface import AppEvent

POLL_S = 1.0
STATION_HTTP_PORT = 8483


class StationDaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the daemon."""

    station: StationOptions
    http: tuple[str, int] = ("127.0.0.1", STATION_HTTP_PORT)
    events: Path | None = None
    """Folder for exported events; None to export none (I29)."""
    popular_tags: Path | None = None
    """File of popular tags, which live analytics keep; None for none (P9)."""


class _FailureListener:
    """Notes why a station stopped; a station has no application."""

    def __init__(self) -> None:
        self.failure: ThymeError | None = None

    def on_event(self, event: AppEvent) -> None:
        pass

    def on_node_failed(self, error: ThymeError) -> None:
        self.failure = error


class StationDaemon:
    """A running station with its pages."""

    def __init__(
        self,
        live: LiveStation,
        host: Host,
        export: StationEventExport | None,
        popular_tags: PopularTagsFile | None = None,
    ) -> None:
        self._live = live
        self._host = host
        self._export = export
        self._popular_tags = popular_tags
        self._started_s = time.monotonic()
        self._connected: set[str] = set()
        self._differences: dict[str, tuple[str, ...]] = {}
        self._mobiles = -1
        self._full = False

    @property
    def status(self) -> StationStatus:
        """The current status of the station."""
        events = None if self._export is None else self._export.read_stats()
        up_us = int((time.monotonic() - self._started_s) * 1e6)
        return collect_station_status(self._live, self._host.now_us(), up_us, events)

    def make_app(self) -> web.Application:
        """The aiohttp application with all pages."""
        app = web.Application(middlewares=[error_middleware, loopback_only, _say_station])
        app.router.add_get("/v1/status", self._show_status)
        app.router.add_get("/metrics", self._show_metrics)
        return app

    async def _show_status(self, request: web.Request) -> web.StreamResponse:
        return json_response(self.status)

    async def _show_metrics(self, request: web.Request) -> web.StreamResponse:
        text = render_station(self.status, self._live)
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})

    def poll(self) -> None:
        """Announces worlds and logs changes of stations, mobile nodes and disk space."""
        self._live.announce_worlds()
        for wire in self._live.links.wires.describe():
            self._log_wire(wire.name, wire.connected, wire.differences)
        mobiles = len(self._live.links.mobiles.neighbours)
        if mobiles != self._mobiles:
            self._mobiles = mobiles
            log_event("mobiles", count=mobiles)
        if self._full != (full := not self._live.store.has_space(0)):
            self._full = full
            log_warning("disk_full") if full else log_event("disk_has_room")
        if self._export is not None:
            self._export.sample(self._host.now_us())
        if self._popular_tags is not None:
            self._popular_tags.update(self._live, self._host.now_us())

    def _log_wire(self, name: str, connected: bool, differences: tuple[str, ...]) -> None:
        if connected and name not in self._connected:
            self._connected.add(name)
            log_event("station_connected", station=name)
        elif not connected and name in self._connected:
            self._connected.discard(name)
            log_warning("station_lost", station=name)
        if differences != self._differences.get(name, ()):
            self._differences[name] = differences
            for difference in differences:
                log_warning("station_differs", station=name, what=difference)


@web.middleware
async def _say_station(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers requests of applications: a station serves none."""
    if request.match_info.http_exception is not None:
        message = "this is a base station, not a node: use the URL of a node"
        return problem_response("not_a_node", message, 404)
    return await handler(request)


async def run_station(
    options: StationDaemonOptions,
    on_ready: Callable[[str], None] = lambda url: None,
    open_sockets: Callable[[NetworkConfig], Sockets] = Sockets,
) -> None:
    """Runs a station until a signal stops it; raises the error if the station stops by itself."""
    export = None if options.events is None else StationEventExport(options.events)
    started: list[Host] = []

    def on_download(world: int, key: Key, cache: str | None) -> None:
        if export is not None and started:
            export.on_download(world, key, cache, started[0].now_us())

    live = await open_station(options.station, on_download, open_sockets)
    listener = _FailureListener()
    try:
        host = await live.start(listener)
    except BaseException:
        await live.close()
        raise
    started.append(host)
    tags = None if options.popular_tags is None else PopularTagsFile(options.popular_tags)
    daemon = StationDaemon(live, host, export, tags)
    try:
        if export is not None:
            export.start(live, host.now_us())
        runner, url = await start_server(daemon.make_app(), *options.http)
    except BaseException:
        host.close()
        await live.close()
        raise
    try:
        log_event(
            "ready", station=live.config.name, node=host.node_id.hex(), http=url,
            mobiles="{}:{}".format(*live.sockets.address),
        )  # fmt: skip
        on_ready(url)
        await _wait_until_stopped(daemon, listener)
    finally:
        log_event("leaving", station=live.config.name)
        if export is not None:
            await asyncio.to_thread(export.stop, host.now_us())
        await live.close()
        host.close()
        await runner.cleanup()
        log_event("left", station=live.config.name)
    if listener.failure is not None:
        raise listener.failure


async def _wait_until_stopped(daemon: StationDaemon, listener: _FailureListener) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    while not stopped.is_set() and listener.failure is None:
        daemon.poll()
        try:
            await asyncio.wait_for(stopped.wait(), POLL_S)
        except TimeoutError:
            continue
    if listener.failure is not None:
        log_warning("broken", why=str(listener.failure))
