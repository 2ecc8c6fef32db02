"""Opening a node: finds or creates a world and makes a node that is ready to run in it.

A node whose store holds a profile continues with the same id, world and data. Any other node
listens for a world of the given name and joins it, or creates it if `create` is set.
Entry point: `open_node`. Running the node is up to `host`, making it to `node_factory`.
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
    """Options of a live node: the world to join or create, and the settings of the node."""

    world: str
    """Name of the world; to join an existing one, its id can be used, too."""
    substrate: str | None = None
    """One of `LIVE_SUBSTRATES`; None for that of the existing world. A new world is by default DCS
    if it has an area, else LS."""
    create: bool = False
    """Whether to create the world instead of joining it."""
    area: Area | None = None
    cell_m: float | None = None
    ends_us: int | None = None
    wid: str | None = None
    """Id of a new world; None for a random id."""
    at: Point | None = None
    """Position of the device in metres; None for the centre of the area."""
    fix: Origin | None = None
    """Latitude and longitude of the device, instead of a position in metres."""
    origin: Origin | None = None
    """Latitude and longitude of the south-west corner of a new world's area."""
    secret: str | None = None
    """Secret of a closed world; with a secret, a new world is closed (B5)."""
    data: Path | None = None
    """Directory of the node's key and store; None to keep both in memory."""
    network: Place = Place()
    patience_s: float = PATIENCE_S
    """How long to listen for the world to join."""
    link: LinkConfig = LinkConfig()
    quota: Quota = QUOTA
    """Storage quota for each other node (B5)."""


class LiveNode:
    """A node that is ready to run, with its store, link and sockets."""

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
        """The file of the store; None for a store in memory."""
        self.link = link
        self.sockets = sockets

    @property
    def world(self) -> WorldInfo:
        """The world of the node."""
        return self.home.world

    def start(self, listener: Listener) -> Host:
        """Runs the node on the running asyncio loop; its events go to `listener`."""
        return Host(self.node, self.store, self.link, self.sockets, listener)


async def open_node(wanted: Wanted, open_sockets: Callable[[Place], Sockets] = Sockets) -> LiveNode:
    """Finds or creates the world and makes a node in it; raises `InputError` or `StoreError` if
    the options or the store cannot be used."""
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
    """The node's key: from the data directory, or a random one without a directory."""
    if wanted.data is None:
        return Identity(secrets.token_bytes(SEED_BYTES))
    return keep_identity(wanted.data)


def _link(wanted: Wanted, home: Home, identity: Identity) -> Link:
    """Makes the link for a new incarnation of the node."""
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
        raise OptionError(f"the substrate must be one of {known}, not {shown(wanted.substrate)}")
    if wanted.secret is not None:
        check_secret(wanted.secret)
    made = (wanted.area, wanted.cell_m, wanted.wid, wanted.ends_us, wanted.origin)
    if not wanted.create and any(option is not None for option in made):
        raise OptionError(
            "area, cell, origin, id and end can only be set for a new world: use --create"
        )


async def _new_home(wanted: Wanted, node_id: NodeId, sockets: Sockets, rng: Random) -> Home:
    """Makes the profile of a new node: joins the world, or creates it."""
    if not wanted.create:
        return Home(await _find(wanted, sockets), node_id)
    if wanted.wid is None:
        heard = await hear_worlds(sockets, LISTEN_S, lambda heard: heard.is_there(wanted.world))
        if heard.is_there(wanted.world):
            raise WorldError(
                f"a world {shown(wanted.world)} exists here already: join it without --create"
            )
    return Home(_new_world(wanted, node_id, rng), node_id)


async def _find(wanted: Wanted, sockets: Sockets) -> WorldInfo:
    name = wanted.world

    def is_complete(heard: Heard) -> bool:
        known = pick(heard.worlds, name) is not None
        return known or (wanted.secret is None and heard.is_there(name))

    heard = await hear_worlds(
        sockets,
        wanted.patience_s,
        is_complete,
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
        raise OptionError("only a DCS world has an area and cells: use --substrate dcs")
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
    """Raises an error if the options contradict the world, the store or the key."""
    world = home.world
    if wanted.substrate not in (None, world.substrate):
        raise WorldError(
            f"the world {shown(world.name)} uses {world.substrate}, not {wanted.substrate}"
        )
    if world.closed != (wanted.secret is not None):
        reason = "closed: it needs its secret" if world.closed else "open: it has no secret"
        raise WorldError(f"the world {shown(world.name)} is {reason}")
    if wanted.at is not None and world.area is not None:
        x_m, y_m = wanted.at
        width_m, height_m = world.area.width_m, world.area.height_m
        if not (0 <= x_m <= width_m and 0 <= y_m <= height_m):
            raise OptionError(
                f"the position {x_m:g},{y_m:g} is outside this world, which is "
                f"{width_m:g} by {height_m:g} m"
            )
    if home.node_id != identity.node_id:
        raise StoreError("the key file beside the store belongs to another node")
