"""Auto node: a live node that chooses its substrate, and changes it with the situation (B7).

The node is in one world at a time: that of a server in reach, or one of those that its name makes,
with LS or with the cells of DCS. A change replaces the node and its link, as after a correction of
the clock: subscriptions are resumed at the brokers of the other world, own objects are carried
over, and requests without an answer are repeated. The store keeps what the applications know.
Entry point: `open_live_node`. The decision is up to `substrate_choice`.
Clauses: B7.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from random import Random

from msgspec.structs import replace

from thyme.live.auto.carried_objects import CARRIED_OBJECTS, CarriedObjects
from thyme.live.auto.substrate_choice import DCS, ES, LS, Situation, SubstrateChoice
from thyme.live.host import Host
from thyme.live.keys.identity import Identity
from thyme.live.keys.pair_keys import X25519PairKeys
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.live.link_renewal import LinkWithId
from thyme.live.node_factory import check_world, make_node
from thyme.live.node_options import NodeOptions, check_consistent
from thyme.live.open_node import LiveNode, load_identity, open_link, open_node
from thyme.live.sockets import NetworkConfig, Sockets
from thyme.model.errors import OptionError
from thyme.model.ids import ObjectId
from thyme.model.positions import Position
from thyme.model.worlds import AUTO, WorldInfo, auto_world, named_world_id
from thyme.protocol.app_interface import AppRequest, Insert, Search, Subscribe
from thyme.protocol.handover import repeat_unanswered
from thyme.protocol.node import Node
from thyme.protocol.port import NodeListener
from thyme.routing.dsdv.protocol import Dsdv
from thyme.routing.routed_node import RoutedNode
from thyme.storage.chunk_files import TemporaryChunkFiles
from thyme.storage.node_profile import NodeProfile, load_profile, save_profile, world_file
from thyme.storage.split_store import SplitStore
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.common.resume_points import RESUME_POINTS
from thyme.substrates.common.subscriber import CONSUMED, OWN_SUBSCRIPTIONS

_log = logging.getLogger("thyme")
POLL_S = 1.0
_CARRY_AGAIN_S = 5.0
_CHANGED = "the node changed its substrate meanwhile: upload the object again"
_SHARED_TABLES = (OWN_SUBSCRIPTIONS, CONSUMED, RESUME_POINTS, CARRIED_OBJECTS)


async def open_live_node(
    options: NodeOptions, open_sockets: Callable[[NetworkConfig], Sockets] = Sockets
) -> LiveNode:
    """Makes a node for the options: one that chooses its substrate if they say so, else as
    `open_node`."""
    if options.substrate != AUTO:
        return await open_node(options, open_sockets)
    _check_auto_options(options)
    identity = load_identity(options)
    parts = _make_worlds(options)
    joined = WorldInfo(options.world, named_world_id(AUTO, options.world), substrate=AUTO)
    sockets = open_sockets(options.network)
    shared = _open_store(options, options.world)
    try:
        profile = load_profile(shared) or NodeProfile(joined, identity.node_id)
        check_consistent(replace(options, area=None, cell_m=None), profile, identity)
        save_profile(shared, profile)
        await sockets.open()
        return AutoNode(options, joined, parts, identity, shared, sockets)
    except BaseException:
        sockets.close()
        shared.close()
        raise


class AutoNode(LiveNode):
    """A node that is ready to run, and changes its substrate while it runs."""

    def __init__(
        self,
        options: NodeOptions,
        joined: WorldInfo,
        worlds: dict[str, WorldInfo],
        identity: Identity,
        shared: Store,
        sockets: Sockets,
    ) -> None:
        """`worlds` are those that the name makes, by substrate; the first change is up to the
        situation."""
        self._options = options
        self._joined = joined
        self._identity = identity
        self._worlds = dict(worlds)
        self._rng = Random(secrets.randbits(256))
        self._shared = shared
        self._parts = SplitStore(
            shared, lambda part: _open_store(options, f"{options.world}/{part}"), _SHARED_TABLES, LS
        )
        self.profile = NodeProfile(self._worlds[LS], identity.node_id)
        self.choice = SubstrateChoice(cells=DCS in worlds)
        self._reads = self._inserts = 0
        self._following: asyncio.Task[None] | None = None
        node, link = self._make(None)
        store_file = None if options.data is None else world_file(options.data, options.world)
        super().__init__(
            self.profile, node, self._parts, link, sockets, store_file, make_again=self._make
        )

    @property
    def joined(self) -> WorldInfo:
        return self._joined

    def _make(self, position: Position | None) -> tuple[Node, LinkWithId]:
        world, options = self.profile.world, self._options
        node = make_node(
            world,
            self._identity.node_id,
            self._parts,
            self._rng,
            position or options.position,
            signer=Ed25519RecordSigner(self._identity, world.world_id),
            pair_keys=X25519PairKeys(self._identity, world.world_id),
            quota=options.quota,
            retention=options.retention,
        )
        return node, open_link(options, world, self._identity)

    def start(self, listener: NodeListener) -> Host:
        carried = CarriedObjects(self._shared, self._identity.node_id, self._rng, listener)
        host = super().start(carried)

        def prepare(request: AppRequest) -> AppRequest | None:
            self._reads += isinstance(request, Search | Subscribe)
            self._inserts += isinstance(request, Insert)
            return carried.prepare(request, host.now_us())

        def try_later(oid: ObjectId) -> None:
            asyncio.get_running_loop().call_later(_CARRY_AGAIN_S, carry, oid)

        def carry(oid: ObjectId) -> None:
            if not host.closed:
                carried.carry(oid)

        host.prepare_request = prepare
        carried.send, carried.try_later = host.send_request, try_later
        carried.enter(self.world.world_id, host.now_us())
        self._following = asyncio.create_task(self._follow_situation(host, carried))
        return host

    async def _follow_situation(self, host: Host, carried: CarriedObjects) -> None:
        """Changes the substrate whenever the situation asks for another."""
        while not host.closed:
            await asyncio.sleep(POLL_S)
            substrate = self.choice.observe(self._measure(), time.monotonic_ns() // 1_000)
            if substrate == self.world.substrate or host.closed:
                continue
            if self.world.substrate == DCS:
                await host.withdraw()  # the others of the cell take over its state
            self.profile = NodeProfile(self._worlds[substrate], self._identity.node_id)
            self._parts.commit()
            self._parts.use(substrate)
            _log.info("substrate_changed", extra={"facts": {"substrate": substrate}})
            host.continue_with(
                lambda position: self._restart(position, other_brokers=True),
                lambda requests: repeat_unanswered(requests, _CHANGED),
            )
            carried.enter(self.world.world_id, host.now_us())

    def _measure(self) -> Situation:
        """The situation, from the hellos of the last seconds and the routes of the node."""
        received = {
            node_id: world
            for node_id, (world, _) in self.link.hellos.senders.items()
            if world.name == self._options.world
        }
        clients = False
        server = self.world.substrate == ES and self._reaches_server()
        for node_id, world in received.items():
            if world.substrate != ES or world.server is None:
                continue
            clients = True
            if self.world.substrate != ES and not server:
                self._worlds[ES] = world
                server = node_id == world.server
        cells = self._worlds.get(DCS)
        in_cells = sum(cells is not None and world == cells for world in received.values())
        return Situation(
            server=server,
            clients=clients,
            nodes=frozenset(received),
            in_cells=in_cells,
            reads=self._reads,
            inserts=self._inserts,
        )

    def _reaches_server(self) -> bool:
        server = self.world.server
        routing = self.node.routing if isinstance(self.node, RoutedNode) else None
        routed = isinstance(routing, Dsdv) and server in routing.routes
        return routed or server in self.link.neighbours


def _open_store(options: NodeOptions, name: str) -> Store:
    if options.data is None:
        return MemoryStore(TemporaryChunkFiles())
    return SqliteStore(world_file(options.data, name))


def _make_worlds(options: NodeOptions) -> dict[str, WorldInfo]:
    """The worlds that the name makes, the same on every device with the same area."""
    name, ends_us = options.world, options.ends_us
    worlds = {LS: auto_world(LS, name, ends_us=ends_us)}
    if options.area is not None:
        worlds[DCS] = auto_world(DCS, name, options.area, options.cell_m, ends_us)
        check_world(worlds[DCS])
    return worlds


def _check_auto_options(options: NodeOptions) -> None:
    """Refuses options that belong to one world of the node only."""
    for option, given in (
        ("--create", options.create),
        ("--wid", options.world_id is not None),
        ("a secret", options.secret is not None),
        ("--gps or --origin", options.gps_fix is not None or options.origin is not None),
        ("--profile, --keys or --replicas", options.settings is not None),
        ("--cells or --station", options.cells is not None or bool(options.stations)),
    ):
        if given:
            raise OptionError(
                f"a node with --substrate {AUTO} is in several worlds, which its name makes: leave "
                f"out {option}"
            )
