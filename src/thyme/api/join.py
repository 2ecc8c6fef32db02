"""Joining: opens a local world, a live world, or the world of a running node (M21).

A local world has one node and no network; it is stored in memory, or in a directory (`data`) with
one SQLite file per world. A live world is on the network, reached by a node in this process
(`thyme.live`) or in another (`remote`).
Entry points: `join`, `worlds`.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from random import Random
from typing import Any

from thyme.api.arguments import Instant
from thyme.api.world import OpenedWorld, World
from thyme.live.host import Host
from thyme.model.errors import OptionError
from thyme.model.ids import NodeId, random_id
from thyme.model.metadata import Limits
from thyme.model.time_frames import as_instant_us
from thyme.model.worlds import LIVE_SUBSTRATES, Area, WorldInfo, check_world_name
from thyme.storage.node_profile import (
    NODE_ID_BYTES,
    NodeProfile,
    list_worlds,
    load_profile,
    save_profile,
    world_file,
)
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.solo import SoloConfig, make_solo_node

LOCAL_SUBSTRATES = ("solo",)


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
    """Opens the world of this name: `async with thyme.join("lisbon") as world`.

    A local world (`solo`) is created if it does not exist. `data` is the directory to store it in;
    without, it is in memory. `ends` is the end of a new world. `limits` and `retention` bound the
    stored objects (M2, M29).

    With `substrate` "dcs", "ls" or "es", a live node runs in this process: it looks for the world
    on `interface`, or creates it if `create` is true, for DCS with an `area` and a `cell_m` and
    the device at `position`; `secret` is the secret of a closed world. With `node`, the URL of a
    running node like "http://127.0.0.1:8473", that node is used.
    """
    check_world_name(name)
    live = (create or None, area, cell_m, position, secret, interface)
    if node is not None:
        if any(option is not None for option in (*live, data, ends, limits, retention)):
            raise OptionError(
                "with node=, the running node determines all other options: leave them out"
            )
        return World(lambda: _open_remote(node, name))
    if substrate not in (*LOCAL_SUBSTRATES, *LIVE_SUBSTRATES):
        known = ", ".join((*LOCAL_SUBSTRATES, *LIVE_SUBSTRATES))
        raise OptionError(f"the substrate must be one of {known}, not {substrate!r}")
    if substrate in LIVE_SUBSTRATES:
        if limits is not None or retention is not None:
            raise OptionError("limits and retention are only for a local world (solo)")
        options = {
            "world": name,
            "substrate": substrate,
            "create": create,
            "area": None if area is None else Area(*area),
            "cell_m": cell_m,
            "ends_us": None if ends is None else as_instant_us(ends, time.time_ns() // 1_000),
            "position": position,
            "secret": secret,
            "data": None if data is None else Path(data),
        }
        return World(lambda: _open_live(interface, options))
    if any(option is not None for option in live):
        raise OptionError(
            "a local world (solo) has no network, area or position: choose a substrate"
        )
    return World(lambda: _open_solo(name, data, ends, limits, retention))


def _open_solo(
    name: str,
    data: str | Path | None,
    ends: Instant | None,
    limits: Limits | None,
    retention: Retention | None,
) -> OpenedWorld:
    rng = Random(secrets.randbits(128))
    store: Store = MemoryStore() if data is None else SqliteStore(world_file(Path(data), name))
    try:
        profile = _load_or_create_profile(store, name, ends, rng)
        config = SoloConfig(
            limits=limits or Limits(),
            retention=retention or Retention(),
            world_ends_us=profile.world.ends_us,
        )
        node = make_solo_node(profile.node_id, store, rng, config)
    except BaseException:
        store.close()
        raise
    return profile.world, lambda listener: Host(node, store, listener)


async def _open_live(interface: str | None, options: dict[str, Any]) -> OpenedWorld:
    # A local world needs neither the import nor the installation of the live packages.
    try:
        from thyme.live.interfaces import resolve_address
        from thyme.live.open_node import NodeOptions, open_node
        from thyme.live.sockets import NetworkConfig
    except ImportError as error:
        raise OptionError("live worlds need more packages: pip install 'thyme[live]'") from error
    live = await open_node(
        NodeOptions(network=NetworkConfig(interface=resolve_address(interface)), **options)
    )
    return live.world, live.start


async def _open_remote(url: str, name: str) -> OpenedWorld:
    try:
        from thyme.api.remote import open_remote
    except ImportError as error:
        raise OptionError("live worlds need more packages: pip install 'thyme[live]'") from error
    return await open_remote(url, name)


def worlds(data: str | Path) -> list[WorldInfo]:
    """The local worlds stored in a directory, by name."""
    return list_worlds(Path(data))


def _load_or_create_profile(
    store: Store, name: str, ends: Instant | None, rng: Random
) -> NodeProfile:
    """Loads the node's profile from the store, or creates a new one."""
    profile = load_profile(store)
    if profile is None:
        ends_us = None if ends is None else as_instant_us(ends, time.time_ns() // 1_000)
        world = WorldInfo(name, random_id(rng), ends_us=ends_us)
        profile = NodeProfile(world, NodeId(rng.randbytes(NODE_ID_BYTES)))
        save_profile(store, profile)
    return profile
