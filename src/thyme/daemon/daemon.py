"""Daemon process: runs a live node with its HTTP API until a signal stops it.

The daemon starts with the data in its store, logs its events, and leaves the world gracefully on
SIGTERM or SIGINT. After a crash it restarts with the committed data (M24).
Entry point: `run`. The HTTP API is up to `server`, the node to `thyme.live`.
"""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from thyme.daemon.access_token import load_or_create_token
from thyme.daemon.event_export import EventExport
from thyme.daemon.logs import log_event, log_warning
from thyme.daemon.server import HTTP_PORT, make_app, start_server
from thyme.daemon.status.collect_status import (
    describe_world,
    namesake_warning,
    reach_warning,
    version_warning,
)
from thyme.live.auto.node import open_live_node
from thyme.live.gps import RECONNECT_S, to_local_position, wait_for_fix, watch_fixes
from thyme.live.host import Host
from thyme.live.node_factory import current_station, unwrap_node
from thyme.live.node_options import NodeOptions
from thyme.live.open_node import LiveNode
from thyme.live.shared_node import SharedNode
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.map.live_map import LiveMap
from thyme.model.errors import ClosedError, OptionError
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo

POLL_S = 1.0
_COPIED = "another device runs with a copy of this data directory: stop one, and remove its copy"


class DaemonOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the daemon."""

    node: NodeOptions
    http: tuple[str, int] = ("127.0.0.1", HTTP_PORT)
    gps: tuple[str, int] | None = None
    """Address of the gpsd that gives the device's position."""
    events: Path | None = None
    """Folder for exported events; None to export none (P9)."""
    token_file: Path | None = None
    """File with the token that applications need; None if they need none (B5)."""


async def run(
    options: DaemonOptions,
    on_ready: Callable[[str], None] = lambda url: None,
    open_sockets: Callable[[NetworkConfig], Sockets] = Sockets,
) -> None:
    """Runs a node until a signal stops it; raises the error if the node stops by itself."""
    node_options = options.node
    token = None if options.token_file is None else load_or_create_token(options.token_file)
    if options.gps is not None:
        node_options = replace(node_options, gps_fix=await wait_for_fix(*options.gps))
    live = await open_live_node(node_options, open_sockets)
    try:
        export = None if options.events is None else EventExport(live, options.events)
    except BaseException:
        live.close()
        raise
    position = node_options.position
    if node_options.gps_fix is not None:
        position = to_local_position(live.world, node_options.gps_fix)
    live_map = LiveMap(live, position)
    shared_node = SharedNode(live.start, export)
    host = shared_node.node
    assert isinstance(host, Host)
    try:
        runner, url = await start_server(
            make_app(live, shared_node, live_map, export, token), *options.http
        )
    except BaseException:
        host.close()
        raise
    if export is not None:
        export.start(host.now_us())
    try:
        _log_ready(live, host, url)
        on_ready(url)
        following = None
        if options.gps is not None:
            following = asyncio.create_task(_follow_gps(live.world, host, options.gps))
        try:
            await _wait_until_stopped(live, shared_node, export, live_map)
        finally:
            if following is not None:
                following.cancel()
    finally:
        await _leave(shared_node, host, live_map, export)
        await runner.cleanup()
        log_event("left", node=host.node_id.hex())
    if shared_node.failure is not None:
        raise shared_node.failure


def _log_ready(live: LiveNode, host: Host, url: str) -> None:
    world = describe_world(live.world)
    log_event(
        "ready",
        node=host.node_id.hex(),
        http=url,
        world=world.name,
        substrate=world.substrate,
        wid=world.wid,
        server=world.server,
    )


async def _leave(
    shared_node: SharedNode, host: Host, live_map: LiveMap, export: EventExport | None
) -> None:
    """Leaves the world, and ends the streams of the applications."""
    log_event("leaving", node=host.node_id.hex())
    await host.leave()
    live_map.hub.close()
    if export is not None:
        await asyncio.to_thread(export.stop, host.now_us())
    shared_node.close_all(ClosedError("the node left its world"))


class _Pause:
    """Waits about a second, until the node wakes up by itself anyway: a poll of its own would wake
    the device twice as often."""

    def __init__(self) -> None:
        self.stopped = False
        self._over = asyncio.Event()
        self._began_s = 0.0

    def stop(self) -> None:
        """Ends this pause; no other begins."""
        self.stopped = True
        self._over.set()

    def on_alarm(self) -> None:
        """Ends the pause if it was long enough."""
        if time.monotonic() - self._began_s >= POLL_S / 2:
            self._over.set()

    async def wait(self) -> None:
        """Waits until the pause is over."""
        self._began_s = time.monotonic()
        if not self.stopped:
            self._over.clear()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), 2 * POLL_S)


async def _wait_until_stopped(
    live: LiveNode, shared_node: SharedNode, export: EventExport | None, live_map: LiveMap
) -> None:
    """Waits for a signal; meanwhile logs changes of neighbours, worlds and disk space, and exports
    neighbours and load."""
    pause = _Pause()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, pause.stop)
    host = shared_node.node
    assert isinstance(host, Host)
    host.on_alarm = pause.on_alarm
    changes = _ChangeLog(live)
    while not pause.stopped and shared_node.failure is None:
        changes.log(host.now_us())
        live_map.sample(host.now_us())
        if export is not None:
            export.sample(host.now_us())
            changes.warn_dropped(export.read_stats().dropped)
        await pause.wait()
    if shared_node.failure is not None:
        log_warning("broken", why=str(shared_node.failure))


class _ChangeLog:
    """Logs what changed around a node since the last look."""

    def __init__(self, live: LiveNode) -> None:
        self._live = live
        self._neighbours: list[NodeId] = []
        self._station: NodeId | None = None
        self._worlds: set[str] = {live.world.world_id}
        self._warnings: dict[str, str | None] = {}
        self._is_full = self._has_dropped = False

    def log(self, now_us: int) -> None:
        """Logs the changes of neighbours, station, worlds, warnings and disk space."""
        live, link = self._live, self._live.link
        self._neighbours = _log_neighbour_changes(self._neighbours, link.neighbours)
        self._station = _log_station_change(self._station, current_station(live.node))
        for wid, world in link.hellos.worlds.items():
            if wid not in self._worlds:
                self._worlds.add(wid)
                log_event("world_heard", world=world.name, wid=wid)
        if why := self._find_new("secret", link.decryption_warning):
            log_warning("not_understood", why=why)
        if why := self._find_new("copy", _COPIED if link.has_copy else None):
            log_warning("identity_copied", why=why)
        if why := self._find_new("version", version_warning(link)):
            log_warning("version_unknown", why=why)
        if why := self._find_new("name", namesake_warning(live.world, link.hellos.worlds)):
            log_warning("world_namesake", why=why)
        if why := self._find_new("reach", reach_warning(unwrap_node(live.node), now_us)):
            log_warning("cells_too_large", why=why)
        if self._is_full != (is_full := not live.store.has_space(0)):
            self._is_full = is_full
            log_warning("disk_full") if is_full else log_event("disk_has_room")

    def warn_dropped(self, count: int) -> None:
        """Warns once that events were not exported."""
        if count and not self._has_dropped:
            self._has_dropped = True
            log_warning("events_dropped", count=count)

    def _find_new(self, subject: str, warning: str | None) -> str | None:
        """A warning, if it began or changed since the last look."""
        is_new = warning != self._warnings.get(subject)
        self._warnings[subject] = warning
        return warning if is_new else None


def _log_station_change(before: NodeId | None, now: NodeId | None) -> NodeId | None:
    """Logs that a node of an infra world found a base station, or lost it (I2)."""
    if now is not None and now != before:
        log_event("station_found", station=now.hex())
    elif now is None and before is not None:
        log_warning("station_lost", station=before.hex())
    return now


async def _follow_gps(world: WorldInfo, host: Host, gps: tuple[str, int]) -> None:
    """Updates the node's position from the fixes of a gpsd. They fluctuate: whether the device has
    moved, the node decides (D20)."""
    lost = False
    while True:
        try:
            async for fix in watch_fixes(*gps):
                if lost:
                    log_event("gps_is_back")
                lost = False
                host.move_to(to_local_position(world, fix))
        except OptionError as error:
            if not lost:
                log_warning("gps_lost", why=str(error))
            lost = True
        await asyncio.sleep(RECONNECT_S)


def _log_neighbour_changes(before: list[NodeId], now: list[NodeId]) -> list[NodeId]:
    for node_id in now:
        if node_id not in before:
            log_event("neighbour_came", node=node_id.hex())
    for node_id in before:
        if node_id not in now:
            log_event("neighbour_gone", node=node_id.hex())
    return now
