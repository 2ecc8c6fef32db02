"""Joining: opens a local world, a world of the network, or the world of a running node (M21).

A local world has one node and no network; it is stored in memory, or in a directory (`data`) with
one SQLite file per world. A world of the network is reached by a node in this process
(`thyme.live`) or in another (`remote`); only these two need the packages of the extra `live`, and
import them when they are called.
Entry points: `join`, `join_network`, `connect`, `worlds`, `live_worlds`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from thyme.api.arguments import Instant, make_settings
from thyme.api.world import OpenedWorld, World
from thyme.distribution import install_hint
from thyme.live.host import Host
from thyme.model.errors import OptionError, safe_repr
from thyme.model.ids import NodeId, random_id
from thyme.model.metadata import Limits
from thyme.model.object_chunks import LARGE_BYTES_MAX
from thyme.model.time_frames import as_instant_us
from thyme.model.worlds import AUTO, LIVE_SUBSTRATES, Area, WorldInfo, check_world_name
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


def join(
    name: str,
    *,
    data: str | Path | None = None,
    ends: Instant | None = None,
    limits: Limits | None = None,
    retention: Retention | None = None,
) -> World:
    """Joins a local world: `async with thyme.join("lisbon") as world`.

    A local world has one node, in this process, and no network; it is created if it does not exist.
    `data` is the directory to store it in; without, it is in memory. `ends` is the end of a new
    world. `limits` and `retention` bound the stored objects (M2, M29).
    """
    check_world_name(name)
    return World(lambda: _open_solo(name, data, ends, limits, retention))


def join_network(
    name: str,
    *,
    substrate: str | None = None,
    create: bool = False,
    area: tuple[float, float] | None = None,
    cell_m: float | None = None,
    cells: int | None = None,
    position: tuple[float, float] | None = None,
    secret: str | None = None,
    interface: str | Sequence[str] | None = None,
    data: str | Path | None = None,
    ends: Instant | None = None,
    retention: Retention | None = None,
    profile: str | None = None,
    key_choice: str | None = None,
    replicas: int | str | None = None,
) -> World:
    """Joins a world of the network with a node in this process.

    The node looks for the world on `interface`, one or more names or addresses, or "all" (default:
    that of the default route), or creates it
    if `create` is true: with `substrate` "es", "ls" or "dcs", an end at `ends`, and for DCS an
    `area` and a `cell_m` in metres. Without `substrate`, an existing world determines it; a new
    world is DCS if it has an area, else LS. With `substrate` "infra" or "mobuser", the world is
    that of all devices that use its name, and nobody creates it; `ends`, and for infra `cells`, the
    number of cells without a station, are then the same on all devices. With "auto", the node
    chooses the substrate and changes it with the situation (B7). `position` is
    the place of the device in the area and `secret` the secret of a closed world. `data` is the
    directory of the node's key and store; without, both are in memory. `retention` bounds the
    objects that the node stores (M29). A new world may have the `profile` "paper" instead of
    "robust", and a DCS world another `key_choice` (D16) and number of `replicas`, or "all" (D14).
    Needs the packages of the extra `live`.
    """
    check_world_name(name)
    _check_live_substrate(substrate)
    return _join_live(
        interface,
        world=name,
        substrate=substrate,
        create=create,
        area=None if area is None else Area(*area),
        cell_m=cell_m,
        cells=cells,
        ends_us=None if ends is None else as_instant_us(ends, time.time_ns() // 1_000),
        position=position,
        secret=secret,
        data=None if data is None else Path(data),
        retention=retention or Retention(),
        settings=make_settings(profile, key_choice, replicas),
    )


def _join_live(interface: str | Sequence[str] | None, **options: Any) -> World:
    """Joins with a node of the given `NodeOptions`, on the given interfaces."""
    try:
        from thyme.live.auto.node import open_live_node
        from thyme.live.interfaces import resolve_addresses
        from thyme.live.node_options import NodeOptions
        from thyme.live.sockets import NetworkConfig
    except ImportError as error:
        raise _missing_packages_error() from error

    async def open_world() -> OpenedWorld:
        network = NetworkConfig(interfaces=resolve_addresses(interface))
        live = await open_live_node(NodeOptions(network=network, **options))
        return live.joined, live.start

    return World(open_world)


def _check_live_substrate(substrate: str | None) -> None:
    if substrate not in (None, AUTO, *LIVE_SUBSTRATES):
        known = ", ".join((*LIVE_SUBSTRATES, AUTO))
        raise OptionError(
            f"the substrate must be one of {known}, not {safe_repr(substrate)}; "
            "for a local world, use thyme.join"
        )


def connect(url: str, *, world: str | None = None) -> World:
    """Connects to a running node: `async with thyme.connect("http://127.0.0.1:8473") as world`.

    The node is in another process on this machine (`thyme node`) and determines the world. If
    `world`, a name or id, is given, the node must be in this world. Needs the packages of the extra
    `live`.
    """
    if world is not None:
        check_world_name(world)
    try:
        from thyme.api.remote import normalise_url, open_remote
    except ImportError as error:
        raise _missing_packages_error() from error
    node_url = normalise_url(url)
    return World(lambda: open_remote(node_url, world))


_DISK_LIMITS = Limits(data_bytes_max=LARGE_BYTES_MAX)
"""Limits of a local world that is stored on disk."""


def worlds(data: str | Path) -> list[WorldInfo]:
    """The local worlds stored in a directory, by name; `live_worlds` lists those of the network."""
    return list_worlds(Path(data))


async def live_worlds(
    seconds: float = 2.5, *, interface: str | Sequence[str] | None = None
) -> list[WorldInfo]:
    """The worlds of the nodes in range, by name (M21): listens on `interface` (default: that of the
    default route) for `seconds`. Needs the packages of the extra `live`."""
    try:
        from thyme.live.discovery import list_worlds
        from thyme.live.interfaces import resolve_addresses
        from thyme.live.sockets import NetworkConfig
    except ImportError as error:
        raise _missing_packages_error() from error
    return await list_worlds(NetworkConfig(interfaces=resolve_addresses(interface)), seconds)


def _missing_packages_error() -> OptionError:
    return OptionError(f"worlds of the network need more packages: {install_hint('live')}")


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
            limits=limits or (Limits() if data is None else _DISK_LIMITS),
            retention=retention or Retention(),
            world_ends_us=profile.world.ends_us,
        )
        node = make_solo_node(profile.node_id, store, rng, config)
    except BaseException:
        store.close()
        raise
    return profile.world, lambda listener: Host(node, store, listener)


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
