"""Opening a node: finds or creates a world and makes a node that is ready to run in it.

A node whose store holds a profile continues with the same id, world and data. Any other node
listens for a world of the given name and joins it, or creates it if `create` is set.
Entry point: `open_node`. Options are up to `node_options`, running the node to `host`, making it to
`node_factory`.
Clauses: M21, M24, E5, B5.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

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
from thyme.live.node_factory import check_world, count_refused_floods, make_node
from thyme.live.node_options import NodeOptions, check_consistent, check_options
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.live.world_choice import AnswerWatch, choose_again, keeps_choice, save_answered
from thyme.model.errors import OptionError, WorldError, safe_repr
from thyme.model.ids import NodeId, random_id
from thyme.model.object_chunks import WHOLE_BYTES_MAX
from thyme.model.positions import Position
from thyme.model.worlds import (
    ENCOUNTERS,
    INFRA,
    NAMED_SUBSTRATES,
    WorldInfo,
    named_world_id,
)
from thyme.protocol.node import Node
from thyme.protocol.port import NodeListener
from thyme.routing.routed_node import RoutedNode
from thyme.storage.chunk_files import TemporaryChunkFiles
from thyme.storage.node_profile import NodeProfile, load_profile, save_profile, world_file
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.es import EsNode
from thyme.substrates.ls.node import LsNode
from thyme.transport.datagrams import INCARNATION_BYTES, digest_world
from thyme.transport.encryption import DatagramCipher, derive_world_key
from thyme.transport.link import Link

MESSAGE_BYTES_MAX = dict.fromkeys(("es", "ls", "dcs", ENCOUNTERS), WHOLE_BYTES_MAX + 2**19)
"""Maximum size of a message, where larger objects are sent in chunks (M37): the largest whole
object, with its metadata."""


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
        self.signer = signer
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
            None if self.signer is None else self._count_rejected,
            lambda: count_refused_floods(self.node),
        )
        if self.store_file is not None:
            AnswerWatch(self.store, self.has_answered, lambda: host.closed)
        if self._make_link is not None:
            first = self.link, self._link_id
            self._renewal = asyncio.create_task(renew_links(host, first, self._renew_link))
        return host

    def has_answered(self) -> bool:
        """Whether the world of the node shows that it exists: by an answer of its server, or by a
        neighbour."""
        inner = self.node.inner if isinstance(self.node, RoutedNode) else self.node
        if isinstance(inner, EsNode):
            return inner.has_answer
        return self.link.neighbour_count > 0

    def _count_rejected(self) -> int:
        assert self.signer is not None
        return self.signer.rejected

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
    check_options(options)
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
        profile = load_profile(store)
        if profile is None:
            profile = await _make_profile(options, identity.node_id, sockets, rng)
        elif not keeps_choice(options, profile, store):
            profile = await choose_again(profile, sockets, rng)
        check_consistent(options, profile, identity)
        live_node = _make_live_node(options, identity, profile, store, store_file, sockets, rng)
        save_profile(store, profile)
        if options.create:
            save_answered(store)
    except BaseException:
        sockets.close()
        store.close()
        raise
    return live_node


def _make_live_node(
    options: NodeOptions,
    identity: Identity,
    profile: NodeProfile,
    store: Store,
    store_file: Path | None,
    sockets: Sockets,
    rng: Random,
) -> LiveNode:
    """Makes the node of a profile, and its link."""
    world, position = profile.world, options.position
    if options.gps_fix is not None:
        position = to_local_position(world, options.gps_fix)
    signer = Ed25519RecordSigner(identity, world.world_id)
    pair_keys = X25519PairKeys(identity, world.world_id)

    def make(position: Position | None) -> Node:
        return make_node(
            world,
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

    def make_link() -> LinkWithId:
        return open_link(options, world, Identity(secrets.token_bytes(SEED_BYTES)))

    def make_again(moved_to: Position | None) -> tuple[Node, LinkWithId]:
        return make(moved_to or position), open_link(options, world, identity)

    node = make(position)
    if world.substrate == ENCOUNTERS:
        link = make_link()
        return LiveNode(profile, node, store, link, sockets, store_file, make_link, signer=signer)
    link = open_link(options, world, identity)
    return LiveNode(
        profile, node, store, link, sockets, store_file, make_again=make_again, signer=signer
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
