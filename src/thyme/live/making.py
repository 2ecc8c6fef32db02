"""Making: the node that a world needs, with settings for real networks.

Links repeat what is lost, clocks differ a little, and messages are cheap compared with those of a
simulated crowd: so every substrate runs with its robust profile.
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
"""How far the clocks of devices may differ."""
QUOTA = Quota(bytes=4 * 2**30, objects=100_000, subscriptions=1_000)
"""What a node keeps for each of the others, unless it is told otherwise (B5)."""
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
"""Devices come and go under their users' eyes: routes are told more often than in ns-3, and what
waits for one leaves as soon as there is one."""


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
    """The node of a device in a world; raises `WorldError` for a world it cannot be in. Without a
    notary it believes everybody."""
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
    """Refuses a world that no node can be in."""
    if world.substrate not in LIVE_SUBSTRATES:
        known = ", ".join(LIVE_SUBSTRATES)
        raise WorldError(f"a live world is one of {known}, not {shown(world.substrate)}")
    if world.substrate == "es" and world.server is None:
        raise WorldError("a world of ES has a server")
    if world.substrate == "dcs":
        grid_of(world)


def grid_of(world: WorldInfo) -> Grid:
    """The cells of a world; the radio is taken to reach as far as they need (D2)."""
    if world.area is None or world.cell_m is None:
        raise WorldError("a world of DCS has an area and a cell size: --area 400x200 --cell 40")
    range_m = math.sqrt(8) * world.cell_m
    try:
        return Grid.covering(world.area.width_m, world.area.height_m, world.cell_m, range_m)
    except ValueError as error:
        raise WorldError(
            f"an area of {world.area.width_m}x{world.area.height_m}: {error}"
        ) from error


def middle_of(world: WorldInfo) -> Point:
    """Where a node is that does not know."""
    assert world.area is not None
    return world.area.width_m / 2, world.area.height_m / 2


def es_config(world: WorldInfo) -> EsConfig:
    """The settings of a node of ES."""
    return replace(
        ES_ROBUST,
        broker=_BROKER,
        subscriber=_SUBSCRIBER,
        guarantees=Guarantees(copies_max=1, durable=world.durable),
        world_ends_us=world.ends_us,
    )


def ls_config(world: WorldInfo) -> LsConfig:
    """The settings of a node of LS."""
    return replace(
        LS_ROBUST,
        collecting=CollectingConfig(merge_us=SECOND_US // 2, search_us=SECOND_US),
        broker=_BROKER,
        subscriber=_SUBSCRIBER,
        world_ends_us=world.ends_us,
    )


def dcs_config(world: WorldInfo) -> DcsConfig:
    """The settings of a node of DCS."""
    return replace(
        DCS_ROBUST,
        broker=replace(_BROKER, metadata_only=True),
        subscriber=_SUBSCRIBER,
        world_ends_us=world.ends_us,
    )
