"""Opening a station: makes a base station that is ready to run from its configuration file.

The station has a key, like a node, and keeps in its data directory what it confirmed to others.
Entry point: `open_station`. Running it is up to `thyme.live.host`, the configuration file to
`thyme.substrates.infra.config_file`.
Clauses: I2, I3, I28, M36, B5, B8.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import msgspec

from thyme.live.clocks.clock import Clock
from thyme.live.host import Host
from thyme.live.keys.identity import SEED_BYTES, Identity, load_or_create_identity
from thyme.live.keys.peer_authenticator import Ed25519PeerAuthenticator
from thyme.live.keys.record_signer import Ed25519RecordSigner
from thyme.live.sockets import NetworkConfig, NetworkError, Sockets
from thyme.live.station.links import StationLinks
from thyme.live.station.wires import StationWires
from thyme.model.ids import NodeId
from thyme.model.worlds import INFRA, WorldInfo, named_world_id
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.port import NodeListener
from thyme.storage.node_profile import world_file
from thyme.storage.sqlite.store import SqliteStore
from thyme.storage.store import MemoryStore, Store
from thyme.substrates.infra.config_file import StationConfig
from thyme.substrates.infra.station.cached_content import CachedContent
from thyme.substrates.infra.station.context import OnDownload
from thyme.substrates.infra.station.node import StationNode
from thyme.substrates.infra.station.settings import StationConfigError
from thyme.substrates.infra.world_numbers import world_number
from thyme.transport.datagrams import INCARNATION_BYTES, digest_world
from thyme.transport.link import Link
from thyme.transport.link_config import Address, LinkConfig
from thyme.transport.world_links import WorldLinks


class StationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a live station: its configuration, and where it keeps its key and state."""

    config: StationConfig
    data: Path | None = None
    """Directory of the key and the state; None to keep both in memory."""
    group: Address | None = None
    """Multicast group of the mobile nodes, instead of that of the configuration; or the address of
    a lab's virtual radio."""


class LiveStation:
    """A station that is ready to run, with its store, links and sockets."""

    def __init__(
        self,
        config: StationConfig,
        store: Store,
        wires: StationWires,
        sockets: Sockets,
        make_node: Callable[[CachedContent], StationNode],
        make_mobiles: Callable[[], WorldLinks],
    ) -> None:
        self.config = config
        self.store = store
        self.sockets = sockets
        self._make_node = make_node
        self._make_mobiles = make_mobiles
        self._wires = wires
        self._make_incarnation()

    def _make_incarnation(self) -> None:
        """Makes the node with empty caches, and the links to mobile nodes."""
        self.content = CachedContent(self.config.settings.caches)
        self.node = self._make_node(self.content)
        self.links = StationLinks(self._make_mobiles(), self._wires)

    async def start(self, listener: NodeListener) -> Host:
        """Runs the station on the running asyncio loop."""
        try:
            await self.links.wires.open()
        except BaseException:
            self.sockets.close()
            self.store.close()
            raise
        host = Host(self.node, self.store, listener, self.links, self.sockets, self._restart)
        self.links.wires.on_events = host.on_link_events
        self.links.wires.clock_us = host.now_us
        self.announce_worlds()
        return host

    def _restart(self, position: object) -> tuple[StationNode, StationLinks]:
        """Replaces the station by a new incarnation, after its clock was corrected (M36). Other
        stations learn the new time, since the connections to them are made anew."""
        self._make_incarnation()
        self._wires.reconnect()
        return self.node, self.links

    def announce_worlds(self) -> None:
        """Has the links announce all worlds that the station knows, also those of other venues."""
        for entry in self.node.context.worlds.entries():
            self.links.mobiles.add_world(entry.name)

    async def close(self) -> None:
        """Closes the connections to other stations."""
        await self.links.wires.close()


async def open_station(
    options: StationOptions,
    on_download: OnDownload = lambda world, key, cache: None,
    open_sockets: Callable[[NetworkConfig], Sockets] = Sockets,
) -> LiveStation:
    """Makes a station; raises `InputError` or `StoreError` if its configuration or its data
    directory cannot be used."""
    config = options.config
    identity = load_identity(options.data)
    if identity.node_id in {other.station_id for other in config.others.values()}:
        raise StationConfigError(f"others: {identity.node_id.hex()} is the id of this station")
    store: Store = MemoryStore()
    sockets = open_sockets(_network_config(options))
    try:
        if options.data is not None:
            store = SqliteStore(world_file(options.data, f"station {config.name}"))
        await sockets.open()
        reply_window_us = config.settings.sharing.reply_window_us
        wires = StationWires(
            config.name, identity, config.wired, config.others, reply_window_us, Clock().now_us
        )
        return LiveStation(
            config,
            store,
            wires,
            sockets,
            lambda content: StationNode(
                identity.node_id,
                [other.station_id for other in config.others.values()],
                content,
                Random(secrets.randbits(256)),
                config.settings,
                store=store,
                make_authenticator=lambda name: _make_authenticator(identity, name),
                on_download=on_download,
            ),
            lambda: WorldLinks(
                lambda world: _make_link(identity, world), world_number, Clock().now_us()
            ),
        )
    except BaseException:
        sockets.close()
        store.close()
        raise


def load_identity(data: Path | None) -> Identity:
    """The key of a station: from its data directory, or a random one without a directory."""
    return (
        Identity(secrets.token_bytes(SEED_BYTES))
        if data is None
        else (load_or_create_identity(data))
    )


def station_id(data: Path) -> NodeId:
    """The id of the station in a data directory, whose key is made if there is none."""
    return load_or_create_identity(data).node_id


def _network_config(options: StationOptions) -> NetworkConfig:
    config = options.config
    group = options.group or (config.discovery.address, config.discovery.port)
    if ":" in config.mobile.address:
        raise NetworkError("station.address: live stations need an IPv4 address")
    return NetworkConfig(
        interfaces=(config.mobile.address,),
        port=config.mobile.port,
        group=group[0],
        group_port=group[1],
    )


def _make_authenticator(identity: Identity, world_name: str) -> MessageAuthenticator:
    signer = Ed25519RecordSigner(identity, named_world_id(INFRA, world_name))
    return MessageAuthenticator(identity.node_id, signer)


def _make_link(identity: Identity, world: WorldInfo) -> Link:
    """Makes the link of a station in a world."""
    incarnation = secrets.token_bytes(INCARNATION_BYTES)
    started_us = time.time_ns() // 1_000
    authenticator = Ed25519PeerAuthenticator(identity, digest_world(world), incarnation, started_us)
    return Link(identity.node_id, world, incarnation, LinkConfig(), authenticator=authenticator)
