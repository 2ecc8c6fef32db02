"""Node factory: makes the protocol node for a world, with settings for real networks.

Links retransmit, clocks differ slightly, and messages cost less than in a large simulated network:
so every substrate runs with its robust profile, unless the world was created with another.
Entry point: `make_node`. Finding the world and opening the sockets is up to `open_node`.
Clauses: M12, M21, M29, M37, E5, D1, B5.
"""

from __future__ import annotations

import math
from random import Random

from msgspec.structs import replace

from thyme.model.errors import OptionError, WorldError, safe_repr
from thyme.model.ids import NodeId
from thyme.model.metadata import Limits
from thyme.model.object_chunks import LARGE_BYTES_MAX
from thyme.model.positions import Position
from thyme.model.signed_records import RecordSigner
from thyme.model.time_frames import SECOND_US
from thyme.model.worlds import (
    INFRA,
    LIVE_SUBSTRATES,
    NAMED_SUBSTRATES,
    WorldInfo,
    named_world_id,
)
from thyme.protocol.answer_auth import PairKeys
from thyme.protocol.message_auth import MessageAuthenticator
from thyme.protocol.messages.cell_records import CELLS_MAX
from thyme.protocol.node import Node
from thyme.routing.cells import Grid
from thyme.routing.dsdv.config import DsdvConfig
from thyme.routing.routed_node import RoutedNode
from thyme.storage.store import Store
from thyme.substrates.common.broker import BrokerConfig
from thyme.substrates.common.catalogue import Retention
from thyme.substrates.common.client_interfaces import Guarantees
from thyme.substrates.common.quotas import Quota
from thyme.substrates.common.subscriber import SubscriberConfig
from thyme.substrates.dcs.config import LOGICAL_ROBUST, DcsConfig, KeyChoice, ReplicationConfig
from thyme.substrates.dcs.config import PAPER as DCS_PAPER
from thyme.substrates.dcs.config import ROBUST as DCS_ROBUST
from thyme.substrates.dcs.node import DcsNode
from thyme.substrates.encounters.config import EncounterConfig, MobUserConfig
from thyme.substrates.encounters.node import EncounterNode
from thyme.substrates.es import PAPER as ES_PAPER
from thyme.substrates.es import ROBUST as ES_ROBUST
from thyme.substrates.es import EsConfig, EsNode
from thyme.substrates.factory import make_dcs_node, with_dsdv
from thyme.substrates.infra.factory import make_mobile_node
from thyme.substrates.infra.mobile.extension import MobileConfig, MobileExtension
from thyme.substrates.infra.mobile.station_link import StationLinkConfig
from thyme.substrates.ls.config import PAPER as LS_PAPER
from thyme.substrates.ls.config import ROBUST as LS_ROBUST
from thyme.substrates.ls.config import LsConfig
from thyme.substrates.ls.flooded_queries import CollectionConfig
from thyme.substrates.ls.node import LsNode

CLOCK_SKEW_US = 5 * SECOND_US
"""Maximum difference between the clocks of two devices."""
POSITION_NOISE_M = 5.0
"""Standard error of the positions of a device, as with GPS under an open sky (D20)."""
POSITION_SETTLE_US = 15 * SECOND_US
"""How long a device must be stationary before it serves a cell: in this time even a slow walker
moves further than the noise of its positions."""
QUOTA = Quota(bytes=4 * 2**30, objects=100_000, subscriptions=1_000)
"""Default storage quota for each other node (B5)."""
_FLOODS_PER_S = 30.0
"""New floods per second that a node takes from one neighbour (B5)."""
_SECOND_OPINIONS = 3
"""How often a cell that has no match of a query is asked again (decision 57)."""
_ACK_WAIT_US_MAX = 500_000
"""How long a broadcast in a cell waits for acknowledgements before it is repeated: while many
objects are published at once, they take longer than on a radio channel (decision 31)."""
PROFILES = ("robust", "paper")
KEY_CHOICES = tuple(choice.value for choice in KeyChoice)
_NO_LIMITS = Retention()
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
    sequence_ahead_us_max=24 * 3600 * SECOND_US,
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
    pair_keys: PairKeys | None = None,
    quota: Quota = QUOTA,
    retention: Retention = _NO_LIMITS,
    stations: tuple[NodeId, ...] = (),
) -> Node:
    """Makes the node for a world; raises `WorldError` if the world is not usable. Without a signer,
    the node neither signs nor verifies records; with `pair_keys`, nodes of ES and LS require that
    answers are authenticated. `stations` are those that a node may use."""
    check_world(world)
    authenticator = _make_authenticator(world, node_id, signer, pair_keys)
    broker = replace(_BROKER_CONFIG, quota=quota, retention=retention)
    match world.substrate:
        case "es":
            assert world.server is not None
            es_settings = replace(es_config(world), broker=broker)
            es = EsNode(node_id, world.server, store, rng, es_settings, authenticator)
            return with_dsdv(es, rng, config=DSDV_CONFIG)
        case "ls":
            ls_settings = replace(ls_config(world), broker=broker)
            ls = LsNode(node_id, store, rng, ls_settings, authenticator)
            routed = with_dsdv(ls, rng, config=DSDV_CONFIG)
            if not is_paper(world):
                ls.ask_nodes_in_reach(lambda: routed.routing.destinations)
            return routed
        case "mobuser":
            if retention != _NO_LIMITS:
                raise OptionError("devices of a mobuser world store a fixed amount: no --retention")
            config = encounter_config(world)
            return EncounterNode(node_id, store, rng, config, authenticator, position)
        case "infra":
            node, _ = make_mobile_node(
                node_id,
                store,
                cells_rng=rng,
                rng=rng,
                station_rng=rng,
                config=_cell_config(world, broker),
                mobile=mobile_config(world, stations),
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


def _make_authenticator(
    world: WorldInfo, node_id: NodeId, signer: RecordSigner | None, pair_keys: PairKeys | None
) -> MessageAuthenticator | None:
    if signer is None:
        return None
    in_cells = world.substrate in _CELL_SUBSTRATES
    keys = pair_keys if world.substrate in ("es", "ls") else None
    return MessageAuthenticator(node_id, signer, check_locations=in_cells, pair_keys=keys)


def _cell_config(world: WorldInfo, broker: BrokerConfig) -> DcsConfig:
    """The settings of a node of cells. The limits of a node apply to the objects that it stores:
    the index of metadata belongs to the cell, whose nodes keep equal copies."""
    index = replace(broker, metadata_only=True, retention=_NO_LIMITS)
    return replace(dcs_config(world), broker=index, retention=broker.retention)


def check_world(world: WorldInfo) -> None:
    """Raises `WorldError` if no live node can join this world."""
    if world.substrate not in LIVE_SUBSTRATES:
        known = ", ".join(LIVE_SUBSTRATES)
        raise WorldError(f"a live substrate is one of {known}, not {safe_repr(world.substrate)}")
    if world.substrate == "es" and world.server is None:
        raise WorldError("an ES world needs a server")
    if world.substrate == INFRA and world.world_id != named_world_id(INFRA, world.name):
        raise WorldError("the identifier of an infra world is that of its name")
    if world.cells is not None and not 1 <= world.cells < CELLS_MAX:
        raise WorldError(f"a world has 1 to {CELLS_MAX - 1} cells, not {world.cells}")
    _check_settings(world)
    if world.substrate == "dcs":
        make_grid(world)


def _check_settings(world: WorldInfo) -> None:
    settings = world.settings
    if settings is None:
        return
    if world.substrate in NAMED_SUBSTRATES:
        raise WorldError(f"a world of {world.substrate} has no profile, keys or replicas to choose")
    if settings.profile not in PROFILES:
        known = " or ".join(PROFILES)
        raise WorldError(f"the profile of a world is {known}, not {safe_repr(settings.profile)}")
    if world.substrate != "dcs" and (settings.key_choice, settings.replicas) != (None, None):
        raise WorldError("only a DCS world has keys and replicas to choose: use --substrate dcs")
    if settings.key_choice not in (None, *KEY_CHOICES):
        known = ", ".join(KEY_CHOICES)
        raise WorldError(f"keys are chosen by {known}, not {safe_repr(settings.key_choice)}")
    if settings.replicas is not None and settings.replicas < 0:
        raise WorldError(f"an object has at least one replica, not {settings.replicas}")


def is_paper(world: WorldInfo) -> bool:
    """Whether the nodes of a world run the protocol as the papers describe it."""
    return world.settings is not None and world.settings.profile == "paper"


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


def cell_m_for_range(range_m: float) -> float:
    """The width of the largest cells whose neighbours hear each other (D2)."""
    if not 0 < range_m < math.inf:
        raise OptionError(f"the range of a radio is longer than 0 m, not {range_m}")
    return Grid.cell_m_for(range_m)


def area_centre(world: WorldInfo) -> Position:
    """Centre of the area: the position of a node that was given none."""
    assert world.area is not None
    return world.area.width_m / 2, world.area.height_m / 2


def es_config(world: WorldInfo) -> EsConfig:
    """Settings of an ES node."""
    return replace(
        ES_PAPER if is_paper(world) else ES_ROBUST,
        limits=_LIMITS,
        in_chunks=True,
        broker=_BROKER_CONFIG,
        subscriber=_SUBSCRIBER_CONFIG,
        guarantees=Guarantees(durable=world.durable),
        world_ends_us=world.ends_us,
    )


def ls_config(world: WorldInfo) -> LsConfig:
    """Settings of an LS node."""
    profile = LS_PAPER if is_paper(world) else LS_ROBUST
    return replace(
        profile,
        flooding=replace(profile.flooding, per_neighbour_per_s=_FLOODS_PER_S),
        limits=_LIMITS,
        in_chunks=True,
        collecting=CollectionConfig(
            subscribe_wait_us=SECOND_US // 2,
            search_wait_us=SECOND_US if is_paper(world) else SECOND_US // 2,
        ),
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


def mobile_config(world: WorldInfo, stations: tuple[NodeId, ...] = ()) -> MobileConfig:
    """Settings of a node that uses base stations; `stations` are those that it accepts."""
    config = MobileConfig(world_name=world.name, link=StationLinkConfig(accepted=stations))
    return config if world.cells is None else replace(config, cells=world.cells)


def _replication(world: WorldInfo, usual: ReplicationConfig) -> ReplicationConfig:
    """The replication of a world: that of its profile, or the number of replicas chosen for it."""
    replicas = None if world.settings is None else world.settings.replicas
    if replicas is None:
        return usual
    return replace(usual, active_max=replicas or None, crowded_nodes_min=1)


def dcs_config(world: WorldInfo) -> DcsConfig:
    """Settings of a DCS node."""
    robust = LOGICAL_ROBUST if world.substrate == INFRA else DCS_ROBUST
    profile = DCS_PAPER if is_paper(world) else robust
    movement = replace(profile.movement, noise_m=POSITION_NOISE_M, settle_us=POSITION_SETTLE_US)
    key_choice = None if world.settings is None else world.settings.key_choice
    in_chunks = world.substrate == "dcs"  # base stations pass whole objects on
    checks, routing = profile.record_checks, profile.routing
    if routing.broadcast_tries_max > 1 and world.substrate == "dcs":
        routing = replace(routing, ack_wait_us_max=_ACK_WAIT_US_MAX)
    if checks is not None and world.substrate == "dcs":
        checks = replace(
            checks,
            notifications=True,
            second_opinions=_SECOND_OPINIONS,
            compare_counts=True,
        )
    return replace(
        profile,
        record_checks=checks,
        routing=routing,
        movement=movement,
        key_choice=profile.key_choice if key_choice is None else KeyChoice(key_choice),
        replication=_replication(world, profile.replication),
        limits=_LIMITS if in_chunks else Limits(),
        in_chunks=in_chunks,
        broker=replace(_BROKER_CONFIG, metadata_only=True),
        subscriber=_SUBSCRIBER_CONFIG,
        world_ends_us=world.ends_us,
    )


SubstrateNode = EsNode | LsNode | DcsNode | EncounterNode


def unwrap_node(node: Node) -> SubstrateNode:
    """The substrate node inside a `RoutedNode`, or the node itself."""
    inner = node.inner if isinstance(node, RoutedNode) else node
    assert isinstance(inner, SubstrateNode)
    return inner


def count_refused_floods(node: Node) -> int:
    """How many floods beyond the limit of their senders a node has received (B5)."""
    inner = node.inner if isinstance(node, RoutedNode) else node
    return inner.flooding.refused if isinstance(inner, LsNode) else 0


def current_station(node: Node) -> NodeId | None:
    """The base station that a node uses, if any (I2)."""
    extension = node.extension if isinstance(node, DcsNode) else None
    return extension.link.station if isinstance(extension, MobileExtension) else None
