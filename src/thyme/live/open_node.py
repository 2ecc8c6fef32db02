"""Opening a node: finds or creates a world and makes a node that is ready to run in it.

A node whose store holds a profile continues with the same id, world and data. Any other node
listens for a world of the given name and joins it, or creates it if `create` is set.
Entry point: `open_node`. Running the node is up to `host`, making it to `node_factory`.
Clauses: M21, M24, E5, B5.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec
from msgspec.structs import replace

from thyme.live.discovery import (
    LISTEN_S,
    DiscoveredWorlds,
    discover_worlds,
    not_found_error,
    select_world,
)
from thyme.live.gps import to_local_position
from thyme.live.host import Host
from thyme.live.keys.identity import SEED_BYTES, Identity, load_or_create_identity
from thyme.live.keys.pair_keys import X25519PairKeys
from thyme.live.keys.peer_authenticator import Ed25519PeerAuthenticator
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.live.link_renewal import LinkWithId, renew_links
from thyme.live.node_factory import QUOTA, check_world, make_node
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.model.errors import OptionError, StoreError, WorldError, safe_repr
from thyme.model.ids import NodeId, random_id
from thyme.model.positions import Position
from thyme.model.worlds import (
    AUTO,
    ENCOUNTERS,
    INFRA,
    LIVE_SUBSTRATES,
    NAMED_SUBSTRATES,
    Area,
    GeoPoint,
    WorldInfo,
    WorldSettings,
    check_world_name,
    named_world_id,
)
from thyme.protocol.node import Node
from thyme.protocol.port import NodeListener
from thyme.routing.routed_node import RoutedNode
from thyme.storage.chunk_files import TemporaryChunkFiles
from thyme.storage.node_profile import NodeProfile, load_profile, save_profile, world_file
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.quotas import Quota
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import LsNode
from thyme.transport.datagrams import INCARNATION_BYTES, digest_world
from thyme.transport.encryption import DatagramCipher, check_secret, derive_world_key
from thyme.transport.link import Link
from thyme.transport.link_config import LinkConfig

DISCOVERY_TIMEOUT_S = 10.0
MESSAGE_BYTES_MAX = {"es": 4 * 2**20, "ls": 4 * 2**20, ENCOUNTERS: 4 * 2**20, "dcs": 64 * 2**20}
"""Maximum size of a message, where large objects are sent in chunks (M37). The state of a cell is
one message."""


class NodeOptions(msgspec.Struct, frozen=True, kw_only=True):
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
    cells: int | None = None
    """Number of cells of an infra world before a station sets it; the same on all devices."""
    ends_us: int | None = None
    """End of a new world; in a world that its name makes, the same on all devices."""
    world_id: str | None = None
    """Id of a new world; None for a random id."""
    position: Position | None = None
    """Position of the device in metres; None for the centre of the area."""
    gps_fix: GeoPoint | None = None
    """Latitude and longitude of the device, instead of a position in metres."""
    origin: GeoPoint | None = None
    """Latitude and longitude of the south-west corner of a new world's area."""
    secret: str | None = None
    """Secret of a closed world; with a secret, a new world is closed (B5)."""
    data: Path | None = None
    """Directory of the node's key and store; None to keep both in memory."""
    network: NetworkConfig = NetworkConfig()
    discovery_timeout_s: float = DISCOVERY_TIMEOUT_S
    """How long to listen for the world to join."""
    link: LinkConfig = LinkConfig()
    quota: Quota = QUOTA
    """Storage quota for each other node (B5)."""
    retention: Retention = Retention()
    """Limits of age, bytes and objects that the node stores (M29)."""
    settings: WorldSettings | None = None
    """Profile, choice of keys and number of replicas of a new world; None for the usual ones."""
    stations: tuple[NodeId, ...] = ()
    """The base stations that a node of an infra world accepts; none named: the first to answer."""


class LiveNode:
    """A node that is ready to run, with its store, link and sockets."""

    def __init__(
        self,
        profile: NodeProfile,
        node: Node,
        store: Store,
        link: LinkWithId,
        sockets: Sockets,
        store_file: Path | None,
        make_link: Callable[[], LinkWithId] | None = None,
        make_again: Callable[[Position | None], tuple[Node, LinkWithId]] | None = None,
        signer: Ed25519RecordSigner | None = None,
    ) -> None:
        """`make_link` makes a link under another random id, in worlds of encounters (U2);
        `make_again` makes a new incarnation of the node, after its clock was corrected (M36)."""
        self.profile = profile
        self.node = node
        self.store = store
        self.store_file = store_file
        """The file of the store; None for a store in memory."""
        self.link, self._link_id = link
        self.sockets = sockets
        self._make_link = make_link
        self._make_again = make_again
        self._signer = signer
        self._renewal: asyncio.Task[None] | None = None
        self.wrap_node: Callable[[Node], Node] = lambda node: node
        """Wraps the node, and each new incarnation of it, for the host that runs it: an observer
        sees its inputs and actions so."""

    @property
    def world(self) -> WorldInfo:
        """The world of the node."""
        return self.profile.world

    @property
    def joined(self) -> WorldInfo:
        """The world as its applications know it."""
        return self.world

    def start(self, listener: NodeListener) -> Host:
        """Runs the node on the running asyncio loop; its events go to `listener`."""
        restart = None if self._make_again is None else self._restart
        host = Host(
            self.wrap_node(self.node),
            self.store,
            listener,
            self.link,
            self.sockets,
            restart,
            None if self._signer is None else self._count_rejected,
        )
        if self._make_link is not None:
            first = self.link, self._link_id
            self._renewal = asyncio.create_task(renew_links(host, first, self._renew_link))
        return host

    def _count_rejected(self) -> int:
        assert self._signer is not None
        return self._signer.rejected

    def _restart(
        self, position: Position | None, *, other_brokers: bool = False
    ) -> tuple[Node, Link]:
        """Replaces the node and its link by a new incarnation, with the same brokers or others."""
        assert self._make_again is not None
        earlier, dropped = _inner_node(self.node), self.link.dropped
        self.node, (self.link, self._link_id) = self._make_again(position)
        self.link.dropped.update(dropped)
        _inner_node(self.node).subscriber.carry_over(
            earlier.subscriber, other_brokers=other_brokers
        )
        return self.wrap_node(self.node), self.link

    def _renew_link(self) -> LinkWithId:
        assert self._make_link is not None
        self.link, self._link_id = self._make_link()
        return self.link, self._link_id

    def close(self) -> None:
        """Closes the sockets and the store of a node that was not started."""
        self.sockets.close()
        self.store.close()


def _inner_node(node: Node) -> EsNode | LsNode | DcsNode:
    inner = node.inner if isinstance(node, RoutedNode) else node
    assert isinstance(inner, EsNode | LsNode | DcsNode)
    return inner


async def open_node(
    options: NodeOptions, open_sockets: Callable[[NetworkConfig], Sockets] = Sockets
) -> LiveNode:
    """Finds or creates the world and makes a node in it; raises `InputError` or `StoreError` if
    the options or the store cannot be used."""
    _check_options(options)
    rng = Random(secrets.randbits(256))
    store: Store = MemoryStore()
    store_file = None
    sockets = open_sockets(options.network)
    try:
        if options.data is None:
            store = MemoryStore(TemporaryChunkFiles())
        else:
            store_file = world_file(options.data, options.world)
            store = SqliteStore(store_file)
        await sockets.open()
        identity = load_identity(options)
        profile = load_profile(store) or await _make_profile(
            options, identity.node_id, sockets, rng
        )
        check_consistent(options, profile, identity)
        signer = Ed25519RecordSigner(identity, profile.world.world_id)
        pair_keys = X25519PairKeys(identity, profile.world.world_id)
        position = (
            options.position
            if options.gps_fix is None
            else to_local_position(profile.world, options.gps_fix)
        )

        def make(position: Position | None) -> Node:
            return make_node(
                profile.world,
                profile.node_id,
                store,
                rng,
                position,
                signer=signer,
                pair_keys=pair_keys,
                quota=options.quota,
                retention=options.retention,
                stations=options.stations,
            )

        node = make(position)
        save_profile(store, profile)
    except BaseException:
        sockets.close()
        store.close()
        raise
    if profile.world.substrate != ENCOUNTERS:

        def make_again(moved_to: Position | None) -> tuple[Node, LinkWithId]:
            return make(moved_to or position), open_link(options, profile.world, identity)

        link = open_link(options, profile.world, identity)
        return LiveNode(
            profile, node, store, link, sockets, store_file, make_again=make_again, signer=signer
        )

    def make_link() -> LinkWithId:
        return open_link(options, profile.world, Identity(secrets.token_bytes(SEED_BYTES)))

    return LiveNode(
        profile, node, store, make_link(), sockets, store_file, make_link, signer=signer
    )


def load_identity(options: NodeOptions) -> Identity:
    """The node's key: from the data directory, or a random one without a directory."""
    if options.data is None:
        return Identity(secrets.token_bytes(SEED_BYTES))
    return load_or_create_identity(options.data)


def open_link(options: NodeOptions, world: WorldInfo, identity: Identity) -> LinkWithId:
    """Makes the link for a new incarnation of the node."""
    incarnation = secrets.token_bytes(INCARNATION_BYTES)
    cipher = None
    if options.secret is not None:
        cipher = DatagramCipher(derive_world_key(options.secret, world), world, secrets.token_bytes)
    authenticator = Ed25519PeerAuthenticator(
        identity, digest_world(world), incarnation, time.time_ns() // 1_000
    )
    longest = MESSAGE_BYTES_MAX.get(world.substrate, options.link.reassembly.message_bytes_max)
    link = Link(
        identity.node_id,
        world,
        incarnation,
        replace(
            options.link, reassembly=replace(options.link.reassembly, message_bytes_max=longest)
        ),
        cipher=cipher,
        authenticator=authenticator,
    )
    return link, identity.node_id


def _check_options(options: NodeOptions) -> None:
    check_world_name(options.world)
    if options.substrate is not None and options.substrate not in LIVE_SUBSTRATES:
        known = ", ".join((*LIVE_SUBSTRATES, AUTO))
        raise OptionError(
            f"the substrate must be one of {known}, not {safe_repr(options.substrate)}"
        )
    if options.secret is not None:
        check_secret(options.secret)
    if options.stations and options.substrate not in (None, INFRA):
        raise OptionError(f"only nodes of {INFRA} worlds use stations: use --substrate {INFRA}")
    if options.cells is not None and options.substrate != INFRA:
        raise OptionError(f"only {INFRA} worlds have a number of cells: use --substrate {INFRA}")
    new_world_options = [
        options.area,
        options.cell_m,
        options.world_id,
        options.origin,
        options.settings,
    ]
    if options.substrate not in NAMED_SUBSTRATES:
        new_world_options.append(options.ends_us)
    if not options.create and any(option is not None for option in new_world_options):
        raise OptionError(
            "area, cell, origin, id, end, profile, keys and replicas can only be set for a new "
            "world: use --create"
        )


async def _make_profile(
    options: NodeOptions, node_id: NodeId, sockets: Sockets, rng: Random
) -> NodeProfile:
    """Makes the profile of a new node: joins the world, or creates it. A world of encounters or
    with stations exists wherever devices use its name."""
    if options.substrate in NAMED_SUBSTRATES:
        return NodeProfile(_make_world(options, node_id, rng), node_id)
    if not options.create:
        return NodeProfile(await _discover(options, sockets), node_id)
    if options.world_id is None:
        discovered = await discover_worlds(
            sockets, LISTEN_S, lambda discovered: discovered.has_world(options.world)
        )
        if discovered.has_world(options.world):
            raise WorldError(
                f"a world {safe_repr(options.world)} exists here already: join it without --create"
            )
    return NodeProfile(_make_world(options, node_id, rng), node_id)


async def _discover(options: NodeOptions, sockets: Sockets) -> WorldInfo:
    name = options.world

    def is_complete(discovered: DiscoveredWorlds) -> bool:
        known = select_world(discovered.worlds, name) is not None
        return known or (options.secret is None and discovered.has_world(name))

    discovered = await discover_worlds(
        sockets,
        options.discovery_timeout_s,
        is_complete,
        name=name,
        secret=options.secret,
    )
    found = select_world(discovered.worlds, name)
    if found is None:
        raise not_found_error(discovered, name, secret=options.secret is not None)
    return found


def _make_world(options: NodeOptions, node_id: NodeId, rng: Random) -> WorldInfo:
    substrate = options.substrate or ("ls" if options.area is None else "dcs")
    if substrate != "dcs" and options.area is not None:
        raise OptionError("only a DCS world has an area and cells: use --substrate dcs")
    world_id = options.world_id or random_id(rng)
    if substrate == INFRA and options.world_id is not None:
        raise OptionError("the name alone makes an infra world: leave out --wid")
    if substrate in NAMED_SUBSTRATES and options.world_id is None:
        # Nobody has to be near when a device starts: the name alone makes the world.
        world_id = named_world_id(substrate, options.world)
    durable = substrate == "es" and options.data is not None
    settings = None if options.settings is None else replace(options.settings, durable=durable)
    world = WorldInfo(
        options.world,
        world_id,
        area=options.area,
        cell_m=options.cell_m,
        cells=options.cells,
        ends_us=options.ends_us,
        substrate=substrate,
        server=node_id if substrate == "es" else None,
        closed=options.secret is not None,
        origin=options.origin,
        durable_or_settings=durable if settings is None else settings,
    )
    check_world(world)
    return world


def check_consistent(options: NodeOptions, profile: NodeProfile, identity: Identity) -> None:
    """Raises an error if the options contradict the world, the store or the key."""
    world = profile.world
    if options.substrate not in (None, world.substrate):
        raise WorldError(
            f"the world {safe_repr(world.name)} uses {world.substrate}, not {options.substrate}"
        )
    stored_settings = world.settings and replace(world.settings, durable=False)
    for name, wanted, stored in (
        ("area", options.area, world.area),
        ("cell size", options.cell_m, world.cell_m),
        ("number of cells", options.cells, world.cells),
        ("profile, choice of keys or number of replicas", options.settings, stored_settings),
    ):
        if wanted not in (None, stored):
            raise WorldError(
                f"the world {safe_repr(world.name)} exists already, with another {name}: leave it "
                "out, or use another --data"
            )
    if world.closed != (options.secret is not None):
        reason = "closed: it needs its secret" if world.closed else "open: it has no secret"
        raise WorldError(f"the world {safe_repr(world.name)} is {reason}")
    if options.position is not None and world.area is not None:
        x_m, y_m = options.position
        width_m, height_m = world.area.width_m, world.area.height_m
        if not (0 <= x_m <= width_m and 0 <= y_m <= height_m):
            raise OptionError(
                f"the position {x_m:g},{y_m:g} is outside this world, which is "
                f"{width_m:g} by {height_m:g} m"
            )
    if profile.node_id != identity.node_id:
        raise StoreError("the key file beside the store belongs to another node")
