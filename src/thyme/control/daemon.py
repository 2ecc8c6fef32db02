"""Daemon process: runs a live node with its HTTP API until a signal stops it.

The daemon starts with the data in its store, logs its events, and leaves the world gracefully on
SIGTERM or SIGINT. After a crash it restarts with the committed data (M24).
Entry point: `run`. The HTTP API is up to `server`, the node to `thyme.live`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from math import dist

import msgspec
from msgspec.structs import replace

from thyme.control.logs import event, trouble
from thyme.control.server import HTTP_PORT, application, offer
from thyme.control.status import world_of
from thyme.live.gps import AGAIN_S, first_fix, fixes, place_of
from thyme.live.host import Host
from thyme.live.sockets import Place, Sockets
from thyme.live.switchboard import Switchboard
from thyme.live.world import LiveNode, Wanted, open_node
from thyme.model.errors import EndedError, OptionError
from thyme.model.ids import NodeId
from thyme.model.worlds import WorldInfo

WATCH_S = 1.0
MOVE_M_MIN = 1.0
"""Smaller position changes are ignored, since GPS fixes fluctuate."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the daemon."""

    wanted: Wanted
    http: tuple[str, int] = ("127.0.0.1", HTTP_PORT)
    gps: tuple[str, int] | None = None
    """Address of the gpsd that gives the device's position."""


async def run(
    running: Running,
    on_ready: Callable[[str], None] = lambda url: None,
    open_sockets: Callable[[Place], Sockets] = Sockets,
) -> None:
    """Runs a node until a signal stops it; raises the error if the node stops by itself."""
    wanted = running.wanted
    if running.gps is not None:
        wanted = replace(wanted, fix=await first_fix(*running.gps))
    live = await open_node(wanted, open_sockets)
    board = Switchboard(live.start)
    host = board.node
    assert isinstance(host, Host)
    try:
        runner, url = await offer(application(live, board), *running.http)
    except BaseException:
        host.close()
        raise
    try:
        world = world_of(live.world)
        event(
            "ready",
            node=host.node_id.hex(),
            http=url,
            world=world.name,
            substrate=world.substrate,
            wid=world.wid,
            server=world.server,
        )
        on_ready(url)
        if running.gps is None:
            await _until_stopped(live, board)
        else:
            following = asyncio.create_task(_follow(live.world, host, running.gps))
            try:
                await _until_stopped(live, board)
            finally:
                following.cancel()
    finally:
        event("leaving", node=host.node_id.hex())
        await host.leave()
        board.hang_up(EndedError("the node left its world"))
        await runner.cleanup()
        event("left", node=host.node_id.hex())
    if board.broken is not None:
        raise board.broken


async def _until_stopped(live: LiveNode, board: Switchboard) -> None:
    """Waits for a signal; meanwhile logs changes of neighbours, worlds and disk space."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    met: list[NodeId] = []
    hint: str | None = None
    full = False
    worlds: set[str] = {live.world.wid}
    while not stopped.is_set() and board.broken is None:
        met = _tell_neighbours(met, live.link.neighbours)
        for wid, world in live.link.worlds.items():
            if wid not in worlds:
                worlds.add(wid)
                event("world_heard", world=world.name, wid=wid)
        if live.link.hint != hint and (hint := live.link.hint) is not None:
            trouble("not_understood", why=hint)
        if full != (full := not live.store.has_room(0)):
            trouble("disk_full") if full else event("disk_has_room")
        try:
            await asyncio.wait_for(stopped.wait(), WATCH_S)
        except TimeoutError:
            continue
    if board.broken is not None:
        trouble("broken", why=str(board.broken))


async def _follow(world: WorldInfo, host: Host, gps: tuple[str, int]) -> None:
    """Updates the node's position from the fixes of a gpsd."""
    place: tuple[float, float] | None = None
    lost = False
    while True:
        try:
            async for fix in fixes(*gps):
                if lost:
                    event("gps_is_back")
                lost, moved = False, place_of(world, fix)
                if place is None or dist(place, moved) >= MOVE_M_MIN:
                    place = moved
                    host.move(place)
        except OptionError as error:
            if not lost:
                trouble("gps_lost", why=str(error))
            lost = True
        await asyncio.sleep(AGAIN_S)


def _tell_neighbours(before: list[NodeId], now: list[NodeId]) -> list[NodeId]:
    for node_id in now:
        if node_id not in before:
            event("neighbour_came", node=node_id.hex())
    for node_id in before:
        if node_id not in now:
            event("neighbour_gone", node=node_id.hex())
    return now
