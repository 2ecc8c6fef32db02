"""Joining: which worlds there are, and the way into one (M21).

A world of one is kept in memory, or in a directory (`data`), one SQLite file a world. Live worlds
are on the network around, reached by a node in this process or in another.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from random import Random
from typing import Any

from thyme.app.inputs import Instant
from thyme.app.pacing import PacedPort
from thyme.app.world import Opened, World
from thyme.model.errors import OptionError
from thyme.model.frames import as_instant_us
from thyme.model.ids import NodeId, draw_name
from thyme.model.metadata import Limits
from thyme.model.worlds import LIVE_SUBSTRATES, Area, WorldInfo, check_world_name
from thyme.storage.home import NODE_ID_BYTES, Home, file_of, keep_home, load_home, worlds_in
from thyme.storage.sqlite import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.catalogue import Retention
from thyme.substrates.solo import SoloConfig, solo_node

SUBSTRATES = ("solo",)


def join(
    name: str,
    *,
    substrate: str = "solo",
    node: str | None = None,
    data: str | Path | None = None,
    ends: Instant | None = None,
    limits: Limits | None = None,
    retention: Retention | None = None,
    create: bool = False,
    area: tuple[float, float] | None = None,
    cell_m: float | None = None,
    position: tuple[float, float] | None = None,
    secret: str | None = None,
    interface: str | None = None,
) -> World:
    """The world of this name: `async with thyme.join("lisbon") as world`.

    A world of one (`solo`) is made if there is none. `data` is a directory to keep it in; without,
    it lives in memory. `ends` gives a new world a life span. `limits` and `retention` bound what is
    stored (M2, M29).

    With `substrate` "dcs", "ls" or "es" a node runs in this process, on real sockets: it looks for
    the world on `interface`, or makes it if `create` is true, with an `area` and a `cell_m` for DCS
    (where the device is at `position`); `secret` is that of a closed world. With `node`, the
    address of a node that runs already, like "http://127.0.0.1:8473", that one is used.
    """
    check_world_name(name)
    live = (create or None, area, cell_m, position, secret, interface)
    if node is not None:
        if any(option is not None for option in (*live, data, ends, limits, retention)):
            raise OptionError("a node that runs already has its world, its data and its limits")
        return World(lambda: _open_remote(node, name))
    if substrate not in (*SUBSTRATES, *LIVE_SUBSTRATES):
        known = ", ".join((*SUBSTRATES, *LIVE_SUBSTRATES))
        raise OptionError(f"a substrate is one of {known}, not {substrate!r}")
    if substrate in LIVE_SUBSTRATES:
        if limits is not None or retention is not None:
            raise OptionError("limits and retention are for a world of one")
        options = {
            "world": name,
            "substrate": substrate,
            "create": create,
            "area": None if area is None else Area(*area),
            "cell_m": cell_m,
            "ends_us": None if ends is None else as_instant_us(ends, time.time_ns() // 1_000),
            "at": position,
            "secret": secret,
            "data": None if data is None else Path(data),
        }
        return World(lambda: _open_live(interface, options))
    if any(option is not None for option in live):
        raise OptionError("a world of one has no network, no area and no places")
    return World(lambda: _open_solo(name, data, ends, limits, retention))


def _open_solo(
    name: str,
    data: str | Path | None,
    ends: Instant | None,
    limits: Limits | None,
    retention: Retention | None,
) -> Opened:
    rng = Random(secrets.randbits(128))
    store: Store = MemoryStore() if data is None else SqliteStore(file_of(Path(data), name))
    home = _settle_in(store, name, ends, rng)
    config = SoloConfig(
        limits=limits or Limits(),
        retention=retention or Retention(),
        world_ends_us=home.world.ends_us,
    )
    return home.world, lambda listener: PacedPort(
        solo_node(home.node_id, store, rng, config), store, listener
    )


async def _open_live(interface: str | None, options: dict[str, Any]) -> Opened:
    # Who lives in a world of one need not load, nor have, what many need.
    try:
        from thyme.live.interfaces import address_of
        from thyme.live.sockets import Place
        from thyme.live.world import Wanted, open_node
    except ImportError as error:
        raise OptionError("this needs some more packages: pip install 'thyme[live]'") from error
    live = await open_node(Wanted(network=Place(interface=address_of(interface)), **options))
    return live.world, live.start


async def _open_remote(url: str, name: str) -> Opened:
    try:
        from thyme.app.remote import open_remote
    except ImportError as error:
        raise OptionError("this needs some more packages: pip install 'thyme[live]'") from error
    return await open_remote(url, name)


def worlds(data: str | Path) -> list[WorldInfo]:
    """The worlds kept in a directory, by name."""
    return worlds_in(Path(data))


def _settle_in(store: Store, name: str, ends: Instant | None, rng: Random) -> Home:
    """Who we are in this world: as the store says, or anew."""
    home = load_home(store)
    if home is None:
        ends_us = None if ends is None else as_instant_us(ends, time.time_ns() // 1_000)
        world = WorldInfo(name, draw_name(rng), ends_us=ends_us)
        home = Home(world, NodeId(rng.randbytes(NODE_ID_BYTES)))
        keep_home(store, home)
    return home
