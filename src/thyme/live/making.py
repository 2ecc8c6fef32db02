"""Node factory: makes the protocol node for a world, with settings for real networks.

Links retransmit, clocks differ slightly, and messages cost less than in a large simulated network:
so every substrate runs with its robust profile.
Entry point: `make_node`. Finding the world and opening the sockets is up to `open_node`.
Clauses: M12, M21, E5, D1, B5.
"""

from __future__ import annotations

import math
from random import Random

from msgspec.structs import replace

from thyme.model.errors import WorldError, shown
from thyme.model.frames import SECOND_US
from thyme.model.ids import NodeId
from thyme.model.records import Notary
from thyme.model.worlds import LIVE_SUBSTRATES, WorldInfo
from thyme.protocol.node import Node
from thyme.protocol.warden import Warden
from thyme.routing.cells import Grid
from thyme.routing.dsdv_config import DsdvConfig
from thyme.storage.store import Store
from thyme.substrates.assembly import dcs_node, over_dsdv
from thyme.substrates.broker import BrokerConfig
from thyme.substrates.client import Guarantees
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.dcs.config import DcsConfig
from thyme.substrates.dcs.ground import Point
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsConfig, EsNode
from thyme.substrates.ls.node import ROBUST as LS_ROBUST
from thyme.substrates.ls.node import LsConfig, LsNode
from thyme.substrates.ls.owners import CollectingConfig
from thyme.substrates.quotas import Quota
from thyme.substrates.subscriber import SubscriberConfig

SKEW_US = 5 * SECOND_US
"""Maximum difference between the clocks of two devices."""
QUOTA = Quota(bytes=4 * 2**30, objects=100_000, subscriptions=1_000)
"""Default storage quota for each other node (B5)."""
_BROKER = BrokerConfig(skew_us=SKEW_US, quota=QUOTA)
_SUBSCRIBER = SubscriberConfig(skew_us=SKEW_US)
DSDV = DsdvConfig(
    dump_every_us=2 * SECOND_US,
    settling_us=SECOND_US,
    failures_max=2,
    take_back=False,
    waiting_max=10_000,
    waiting_per_destination_max=1_000,
    waiting_us_max=10 * SECOND_US,
    waiting_apart_us_max=1_000,
    lives_apart_us=1_000,
)
"""Routes are advertised more often than in ns-3, so that users see joins and leaves quickly;
waiting packets are sent as soon as a route exists."""


def make_node(
    world: WorldInfo,
    node_id: NodeId,
    store: Store,
    rng: Random,
    place: Point | None,
    *,
    notary: Notary | None = None,
    quota: Quota = QUOTA,
) -> Node:
    """Makes the node for a world; raises `WorldError` if the world is not usable. Without a signer,
    the node neither signs nor verifies records."""
    check_world(world)
    warden = None if notary is None else Warden(node_id, notary, places=world.substrate == "dcs")
    broker = replace(_BROKER, quota=quota)
    match world.substrate:
        case "es":
            assert world.server is not None
            es = replace(es_config(world), broker=broker)
            return over_dsdv(
                EsNode(node_id, world.server, store, rng, es, warden), rng, config=DSDV
            )
        case "ls":
            ls = replace(ls_config(world), broker=broker)
            return over_dsdv(LsNode(node_id, store, rng, ls, warden), rng, config=DSDV)
    return dcs_node(
        node_id,
        grid_of(world),
        middle_of(world) if place is None else place,
        store,
        cells_rng=rng,
        rng=rng,
        config=replace(dcs_config(world), broker=replace(broker, metadata_only=True)),
        warden=warden,
    )


def check_world(world: WorldInfo) -> None:
    """Raises `WorldError` if no live node can join this world."""
    if world.substrate not in LIVE_SUBSTRATES:
        known = ", ".join(LIVE_SUBSTRATES)
        raise WorldError(f"a live substrate is one of {known}, not {shown(world.substrate)}")
    if world.substrate == "es" and world.server is None:
        raise WorldError("an ES world needs a server")
    if world.substrate == "dcs":
        grid_of(world)


def grid_of(world: WorldInfo) -> Grid:
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


def middle_of(world: WorldInfo) -> Point:
    """Centre of the area: the position of a node that was given none."""
    assert world.area is not None
    return world.area.width_m / 2, world.area.height_m / 2


def es_config(world: WorldInfo) -> EsConfig:
    """Settings of an ES node."""
    return replace(
        ES_ROBUST,
        broker=_BROKER,
        subscriber=_SUBSCRIBER,
        guarantees=Guarantees(copies_max=1, durable=world.durable),
        world_ends_us=world.ends_us,
    )


def ls_config(world: WorldInfo) -> LsConfig:
    """Settings of an LS node."""
    return replace(
        LS_ROBUST,
        collecting=CollectingConfig(merge_us=SECOND_US // 2, search_us=SECOND_US),
        broker=_BROKER,
        subscriber=_SUBSCRIBER,
        world_ends_us=world.ends_us,
    )


def dcs_config(world: WorldInfo) -> DcsConfig:
    """Settings of a DCS node."""
    return replace(
        DCS_ROBUST,
        broker=replace(_BROKER, metadata_only=True),
        subscriber=_SUBSCRIBER,
        world_ends_us=world.ends_us,
    )
