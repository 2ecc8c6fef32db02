"""Live worlds: from what somebody asks for to a node that runs in it.

A node that was in the world before goes on as who it was, with what its store holds. Else it
listens for a world of this name and joins it, or makes it when asked to.
Clauses: M21, M24, E5, B5.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from thyme.live.datagrams import LIFE_BYTES, tag_of
from thyme.live.discovery import LISTEN_S, Heard, hear_worlds, not_found, pick
from thyme.live.gps import place_of
from thyme.live.host import Host
from thyme.live.identity import SEED_BYTES, Identity, Passport, keep_identity
from thyme.live.link import Link
from thyme.live.making import QUOTA, check_world, make_node
from thyme.live.notary import KeyNotary
from thyme.live.seal import Seal, check_secret, world_key
from thyme.live.sockets import Place, Sockets
from thyme.live.terms import LinkConfig
from thyme.model.errors import OptionError, StoreError, WorldError, shown
from thyme.model.ids import NodeId, draw_name
from thyme.model.worlds import LIVE_SUBSTRATES, Area, Origin, WorldInfo, check_world_name
from thyme.protocol.node import Node
from thyme.protocol.port import Listener
from thyme.storage.home import Home, file_of, keep_home, load_home
from thyme.storage.sqlite import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.dcs.ground import Point
from thyme.substrates.quotas import Quota

PATIENCE_S = 10.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which world, and how to be in it."""

    world: str
    """Its name; or, to join, its identifier."""
    substrate: str | None = None
    """One of `LIVE_SUBSTRATES`; None for that of the world, and for a new one DCS where it has an
    area, else LS."""
    create: bool = False
    """Whether to make the world where there is none."""
    area: Area | None = None
    cell_m: float | None = None
    ends_us: int | None = None
    wid: str | None = None
    """The identifier of a world to make, where it must be known before; else it is drawn."""
    at: Point | None = None
    """Where the device is, in metres; None for the middle of the area."""
    fix: Origin | None = None
    """Where the device is on the Earth, instead."""
    origin: Origin | None = None
    """Where the corner of a new world's area is."""
    secret: str | None = None
    """What opens a closed world, and closes a new one (B5)."""
    data: Path | None = None
    """The directory to keep everything in; None for memory."""
    network: Place = Place()
    patience_s: float = PATIENCE_S
    """How long to listen for a world to join."""
    link: LinkConfig = LinkConfig()
    quota: Quota = QUOTA
    """What the node keeps for each of the others (B5)."""


class LiveNode:
    """A node that is ready to run: `start` it, with somebody who hears what it tells."""

    def __init__(
        self,
        home: Home,
        node: Node,
        store: Store,
        link: Link,
        sockets: Sockets,
        file: Path | None,
    ) -> None:
        self.home = home
        self.node = node
        self.store = store
        self.file = file
        """Where the store is; None for memory."""
        self.link = link
        self.sockets = sockets

    @property
    def world(self) -> WorldInfo:
        """The world that it is in."""
        return self.home.world

    def start(self, listener: Listener) -> Host:
        """Runs it on the running asyncio loop."""
        return Host(self.node, self.store, self.link, self.sockets, listener)


async def open_node(wanted: Wanted, open_sockets: Callable[[Place], Sockets] = Sockets) -> LiveNode:
    """Finds or makes the world, and a node in it; raises an `InputError` or a `StoreError` that
    says what is wrong."""
    _check(wanted)
    rng = Random(secrets.randbits(256))
    store: Store = MemoryStore()
    file = None
    sockets = open_sockets(wanted.network)
    try:
        if wanted.data is not None:
            file = file_of(wanted.data, wanted.world)
            store = SqliteStore(file)
        await sockets.open()
        identity = _identity(wanted)
        home = load_home(store) or await _new_home(wanted, identity.node_id, sockets, rng)
        _agree(wanted, home, identity)
        notary = KeyNotary(identity, home.world.wid)
        at = wanted.at if wanted.fix is None else place_of(home.world, wanted.fix)
        node = make_node(
            home.world, home.node_id, store, rng, at, notary=notary, quota=wanted.quota
        )
        keep_home(store, home)
    except BaseException:
        sockets.close()
        store.close()
        raise
    return LiveNode(home, node, store, _link(wanted, home, identity), sockets, file)


def _identity(wanted: Wanted) -> Identity:
    """Who the node is: kept beside its data, or drawn where nothing is kept."""
    if wanted.data is None:
        return Identity(secrets.token_bytes(SEED_BYTES))
    return keep_identity(wanted.data)


def _link(wanted: Wanted, home: Home, identity: Identity) -> Link:
    """The link of a new life."""
    life = secrets.token_bytes(LIFE_BYTES)
    seal = None
    if wanted.secret is not None:
        seal = Seal(world_key(wanted.secret, home.world), home.world, secrets.token_bytes)
    passport = Passport(identity, tag_of(home.world), life, time.time_ns() // 1_000)
    return Link(home.node_id, home.world, life, wanted.link, seal=seal, passport=passport)


def _check(wanted: Wanted) -> None:
    check_world_name(wanted.world)
    if wanted.substrate is not None and wanted.substrate not in LIVE_SUBSTRATES:
        known = ", ".join(LIVE_SUBSTRATES)
        raise OptionError(f"a substrate is one of {known}, not {shown(wanted.substrate)}")
    if wanted.secret is not None:
        check_secret(wanted.secret)
    made = (wanted.area, wanted.cell_m, wanted.wid, wanted.ends_us, wanted.origin)
    if not wanted.create and any(option is not None for option in made):
        raise OptionError(
            "area, cell, origin, identifier and end are those of a new world: use --create"
        )


async def _new_home(wanted: Wanted, node_id: NodeId, sockets: Sockets, rng: Random) -> Home:
    """A node that was never here: joins the world, or makes it."""
    if not wanted.create:
        return Home(await _find(wanted, sockets), node_id)
    if wanted.wid is None:
        heard = await hear_worlds(sockets, LISTEN_S, lambda heard: heard.is_there(wanted.world))
        if heard.is_there(wanted.world):
            raise WorldError(
                f"there is a world {shown(wanted.world)} here already: join it without --create"
            )
    return Home(_new_world(wanted, node_id, rng), node_id)


async def _find(wanted: Wanted, sockets: Sockets) -> WorldInfo:
    name = wanted.world

    def enough(heard: Heard) -> bool:
        known = pick(heard.worlds, name) is not None
        return known or (wanted.secret is None and heard.is_there(name))

    heard = await hear_worlds(
        sockets,
        wanted.patience_s,
        enough,
        wanted=name,
        secret=wanted.secret,
    )
    found = pick(heard.worlds, name)
    if found is None:
        raise not_found(heard, name, secret=wanted.secret is not None)
    return found


def _new_world(wanted: Wanted, node_id: NodeId, rng: Random) -> WorldInfo:
    substrate = wanted.substrate or ("ls" if wanted.area is None else "dcs")
    if substrate != "dcs" and wanted.area is not None:
        raise OptionError("only a world of DCS has an area and cells")
    world = WorldInfo(
        wanted.world,
        wanted.wid or draw_name(rng),
        area=wanted.area,
        cell_m=wanted.cell_m,
        ends_us=wanted.ends_us,
        substrate=substrate,
        server=node_id if substrate == "es" else None,
        closed=wanted.secret is not None,
        origin=wanted.origin,
        durable=substrate == "es" and wanted.data is not None,
    )
    check_world(world)
    return world


def _agree(wanted: Wanted, home: Home, identity: Identity) -> None:
    """What is asked for and what there is."""
    world = home.world
    if wanted.substrate not in (None, world.substrate):
        raise WorldError(
            f"the world {shown(world.name)} is one of {world.substrate}, not {wanted.substrate}"
        )
    if world.closed != (wanted.secret is not None):
        words = "closed: it takes its secret" if world.closed else "open: it has no secret"
        raise WorldError(f"the world {shown(world.name)} is {words}")
    if wanted.at is not None and world.area is not None:
        x_m, y_m = wanted.at
        width_m, height_m = world.area.width_m, world.area.height_m
        if not (0 <= x_m <= width_m and 0 <= y_m <= height_m):
            raise OptionError(
                f"the position {x_m:g},{y_m:g} is not in this world, which is "
                f"{width_m:g} by {height_m:g} m"
            )
    if home.node_id != identity.node_id:
        raise StoreError("the key beside the store is not that of its node")
