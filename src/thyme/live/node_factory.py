"""Node factory: makes the protocol node for a world, with settings for real networks.

Links retransmit, clocks differ slightly, and messages cost less than in a large simulated network:
so every substrate runs with its robust profile.
Entry point: `make_node`. Finding the world and opening the sockets is up to `open_node`.
Clauses: M12, M21, M37, E5, D1, B5.
"""

from __future__ import annotations

import math
from random import Random

from msgspec.structs import replace

from thyme.model.errors import WorldError, safe_repr
from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.model.object_chunks import LARGE_BYTES_MAX
from thyme.model.positions import Position
from thyme.model.signed_records import RecordSigner
from thyme.model.time_frames import SECOND_US
from thyme.model.worlds import INFRA, LIVE_SUBSTRATES, WorldInfo, named_world_id
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.node import Node
from thyme.routing.cells import Grid
from thyme.routing.dsdv.config import DsdvConfig
from thyme.storage.store import Store
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.client import Guarantees
from thyme.substrates.common.quotas import Quota
from thyme.substrates.common.subscriber import SubscriberConfig
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.encounters.config import EncounterConfig, MobUserConfig
from thyme.substrates.encounters.node import EncounterNode
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsConfig, EsNode
from thyme.substrates.factory import make_dcs_node, with_dsdv
from thyme.substrates.infra.factory import make_mobile_node
from thyme.substrates.infra.mobile.extension import MobileConfig
from thyme.substrates.infra.mobile.station_link import StationLinkConfig
from thyme.substrates.ls.flooded_queries import CollectionConfig
from thyme.substrates.ls.node import ROBUST as LS_ROBUST
from thyme.substrates.ls.node import LsConfig, LsNode

CLOCK_SKEW_US = 5 * SECOND_US
"""Maximum difference between the clocks of two devices."""
QUOTA = Quota(bytes=4 * 2**30, objects=100_000, subscriptions=1_000)
"""Default storage quota for each other node (B5)."""
_CELL_SUBSTRATES = ("dcs", INFRA)
_LIMITS = Limits(data_bytes_max=LARGE_BYTES_MAX)
"""Limits where large objects are sent in chunks (M37)."""
_BROKER_CONFIG = BrokerConfig(skew_us=CLOCK_SKEW_US, quota=QUOTA, limits=_LIMITS)
_SUBSCRIBER_CONFIG = SubscriberConfig(skew_us=CLOCK_SKEW_US)
DSDV_CONFIG = DsdvConfig(
    dump_interval_us=2 * SECOND_US,
    settling_us=SECOND_US,
    failures_max=2,
    suppress_repeated=False,
    buffer_max=10_000,
    buffer_per_destination_max=1_000,
    buffer_us_max=10 * SECOND_US,
    buffer_spacing_us_max=1_000,
    restart_sequence_step_us=1_000,
    recover_sequence=True,
)
"""Routes are advertised more often than in ns-3, so that users see joins and leaves quickly;
waiting packets are sent as soon as a route exists."""


def make_node(
    world: WorldInfo,
    node_id: NodeId,
    store: Store,
    rng: Random,
    position: Position | None,
    *,
    signer: RecordSigner | None = None,
    quota: Quota = QUOTA,
    stations: tuple[NodeId, ...] = (),
) -> Node:
    """Makes the node for a world; raises `WorldError` if the world is not usable. Without a signer,
    the node neither signs nor verifies records. `stations` are those that a node may use."""
    check_world(world)
    authenticator = (
        None
        if signer is None
        else MessageAuthenticator(
            node_id, signer, check_locations=world.substrate in _CELL_SUBSTRATES
        )
    )
    broker = replace(_BROKER_CONFIG, quota=quota)
    match world.substrate:
        case "es":
            assert world.server is not None
            es = replace(es_config(world), broker=broker)
            return with_dsdv(
                EsNode(node_id, world.server, store, rng, es, authenticator),
                rng,
                config=DSDV_CONFIG,
            )
        case "ls":
            ls = replace(ls_config(world), broker=broker)
            return with_dsdv(
                LsNode(node_id, store, rng, ls, authenticator), rng, config=DSDV_CONFIG
            )
        case "mobuser":
            config = encounter_config(world)
            return EncounterNode(node_id, store, rng, config, authenticator, position)
        case "infra":
            dcs = _cell_config(world, broker)
            mobile = MobileConfig(world_name=world.name, link=StationLinkConfig(accepted=stations))
            node, _ = make_mobile_node(
                node_id,
                store,
                cells_rng=rng,
                rng=rng,
                station_rng=rng,
                config=dcs,
                mobile=mobile,
                authenticator=authenticator,
            )
            return node
    return make_dcs_node(
        node_id,
        make_grid(world),
        area_centre(world) if position is None else position,
        store,
        cells_rng=rng,
        rng=rng,
        config=_cell_config(world, broker),
        authenticator=authenticator,
    )


def _cell_config(world: WorldInfo, broker: BrokerConfig) -> DcsConfig:
    """The settings of a node of cells: it indexes metadata; objects are kept as replicas."""
    return replace(dcs_config(world), broker=replace(broker, metadata_only=True))


def check_world(world: WorldInfo) -> None:
    """Raises `WorldError` if no live node can join this world."""
    if world.substrate not in LIVE_SUBSTRATES:
        known = ", ".join(LIVE_SUBSTRATES)
        raise WorldError(f"a live substrate is one of {known}, not {safe_repr(world.substrate)}")
    if world.substrate == "es" and world.server is None:
        raise WorldError("an ES world needs a server")
    if world.substrate == INFRA and world.world_id != named_world_id(INFRA, world.name):
        raise WorldError("the identifier of an infra world is that of its name")
    if world.substrate == "dcs":
        make_grid(world)


def make_grid(world: WorldInfo) -> Grid:
    """The cell grid of a world; the radio range is assumed to be what the cells need (D2)."""
    if world.area is None or world.cell_m is None:
        raise WorldError("a DCS world needs an area and a cell size: --area 400x200 --cell 40")
    range_m = math.sqrt(8) * world.cell_m
    try:
        return Grid.covering(world.area.width_m, world.area.height_m, world.cell_m, range_m)
    except ValueError as error:
        raise WorldError(
            f"unusable area {world.area.width_m}x{world.area.height_m}: {error}"
        ) from error


def area_centre(world: WorldInfo) -> Position:
    """Centre of the area: the position of a node that was given none."""
    assert world.area is not None
    return world.area.width_m / 2, world.area.height_m / 2


def es_config(world: WorldInfo) -> EsConfig:
    """Settings of an ES node."""
    return replace(
        ES_ROBUST,
        limits=_LIMITS,
        in_chunks=True,
        broker=_BROKER_CONFIG,
        subscriber=_SUBSCRIBER_CONFIG,
        guarantees=Guarantees(copies_max=1, durable=world.durable),
        world_ends_us=world.ends_us,
    )


def ls_config(world: WorldInfo) -> LsConfig:
    """Settings of an LS node."""
    return replace(
        LS_ROBUST,
        limits=_LIMITS,
        in_chunks=True,
        collecting=CollectionConfig(subscribe_wait_us=SECOND_US // 2, search_wait_us=SECOND_US),
        broker=_BROKER_CONFIG,
        subscriber=_SUBSCRIBER_CONFIG,
        world_ends_us=world.ends_us,
    )


def encounter_config(world: WorldInfo) -> EncounterConfig:
    """Settings of a MobUser node. On a local network a discovery costs one small datagram, so
    devices look for neighbours every second; while they stay in range, they send new events only
    (C44)."""
    return EncounterConfig(
        protocol=MobUserConfig(discovery_us=SECOND_US, repeat_us=300 * SECOND_US),
        subscriber=_SUBSCRIBER_CONFIG,
        first_discovery_us=SECOND_US // 10,
        world_ends_us=world.ends_us,
    )


def dcs_config(world: WorldInfo) -> DcsConfig:
    """Settings of a DCS node."""
    return replace(
        DCS_ROBUST,
        broker=replace(_BROKER_CONFIG, metadata_only=True),
        subscriber=_SUBSCRIBER_CONFIG,
        world_ends_us=world.ends_us,
    )
