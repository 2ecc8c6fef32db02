"""Live worlds: from what somebody asks for to a node that runs in it.

A node that was in the world before goes on as who it was, with what its store holds. Else it
listens for a world of this name and joins it, or makes it when asked to.
Clauses: M21, M24, E5.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from thyme.live.discovery import LISTEN_S, Worlds, hear_worlds, not_found, pick
from thyme.live.host import Host
from thyme.live.link import Link, LinkConfig
from thyme.live.making import check_world, make_node
from thyme.live.sockets import Place, Sockets
from thyme.model.errors import OptionError, WorldError, shown
from thyme.model.ids import NodeId, draw_name
from thyme.model.worlds import LIVE_SUBSTRATES, Area, WorldInfo, check_world_name
from thyme.protocol.node import Node
from thyme.protocol.port import Listener
from thyme.storage.home import NODE_ID_BYTES, Home, file_of, keep_home, load_home
from thyme.storage.sqlite import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.dcs.ground import Point

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
    data: Path | None = None
    """The directory to keep everything in; None for memory."""
    network: Place = Place()
    patience_s: float = PATIENCE_S
    """How long to listen for a world to join."""
    link: LinkConfig = LinkConfig()


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
        home = load_home(store) or await _new_home(wanted, sockets, rng)
        _agree(wanted, home.world)
        node = make_node(home.world, home.node_id, store, rng, wanted.at)
        keep_home(store, home)
    except BaseException:
        sockets.close()
        store.close()
        raise
    link = Link(home.node_id, home.world, rng.randbytes(8), wanted.link)
    return LiveNode(home, node, store, link, sockets, file)


def _check(wanted: Wanted) -> None:
    check_world_name(wanted.world)
    if wanted.substrate is not None and wanted.substrate not in LIVE_SUBSTRATES:
        known = ", ".join(LIVE_SUBSTRATES)
        raise OptionError(f"a substrate is one of {known}, not {shown(wanted.substrate)}")
    made = (wanted.area, wanted.cell_m, wanted.wid, wanted.ends_us)
    if not wanted.create and any(option is not None for option in made):
        raise OptionError("area, cell, identifier and end are those of a new world: use --create")


async def _new_home(wanted: Wanted, sockets: Sockets, rng: Random) -> Home:
    """A node that was never here: joins the world, or makes it."""
    node_id = NodeId(rng.randbytes(NODE_ID_BYTES))
    if not wanted.create:
        return Home(await _find(wanted, sockets), node_id)
    if wanted.wid is None:
        heard = await hear_worlds(sockets, LISTEN_S, lambda worlds: _is_there(worlds, wanted.world))
        if _is_there(heard, wanted.world):
            raise WorldError(
                f"there is a world {shown(wanted.world)} here already: join it without --create"
            )
    return Home(_new_world(wanted, node_id, rng), node_id)


def _is_there(worlds: Worlds, name: str) -> bool:
    return any(world.name == name for world in worlds.values())


async def _find(wanted: Wanted, sockets: Sockets) -> WorldInfo:
    name = wanted.world
    # A second world of the same name may greet a moment after the first.
    worlds = await hear_worlds(
        sockets, wanted.patience_s, lambda worlds: pick(worlds, name) is not None
    )
    found = pick(worlds, name)
    if found is None:
        raise not_found(worlds, name)
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
    )
    check_world(world)
    return world


def _agree(wanted: Wanted, world: WorldInfo) -> None:
    """What is asked for and what there is."""
    if wanted.substrate not in (None, world.substrate):
        raise WorldError(
            f"the world {shown(world.name)} is one of {world.substrate}, not {wanted.substrate}"
        )
