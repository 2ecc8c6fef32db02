"""Download times: how long one download takes from each place that may have the object.

Entry point: `measure_download`. Two venues with a station each: the object is published in one, a
node there downloads it, so it becomes popular and is offered to the other venue. Then it is removed
from the caches that must not have it, and a node downloads it. The cloud is a far station behind a
long and narrow wire.
Clauses: I22, C35, C37. Source: thesis, section 5.5 (C.1 to C.4).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from thyme.model.ids import Key, NodeId, as_object_id
from thyme.model.rng import derive_rng
from thyme.model.time_frames import SECOND_US
from thyme.protocol.node import Node
from thyme.routing.cells import LogicalCells
from thyme.sim.networks.wired_links import WireConfig, WiredLinks
from thyme.sim.venues.small_network import SmallNetwork
from thyme.storage.store import Store
from thyme.substrates.dcs.config import PAPER
from thyme.substrates.infra.factory import make_mobile_node
from thyme.substrates.infra.mobile.extension import MobileConfig
from thyme.substrates.infra.station.cached_content import CachedContent
from thyme.substrates.infra.station.node import StationNode
from thyme.substrates.infra.station.settings import (
    GlobalSettings,
    PopularitySettings,
    StationSettings,
)

WORLD, TAG, OID = "downloads", "goal", "video"
_CELLS = LogicalCells(2)


def _in_cell(name: str, cell: int) -> NodeId:
    """A node of a cell, which its id determines (I1)."""
    ids = (NodeId(f"{name} {number}".encode()) for number in range(100))
    return next(each for each in ids if _CELLS.cell_of_node(each) == cell)


NEAR, FAR = NodeId(b"near station"), NodeId(b"far station")
CLIENT, NEIGHBOUR = _in_cell("client", 0), _in_cell("neighbour", 1)
# The cell of the publisher has replicas of its object: the readers are in the other one.
PUBLISHER, READER, LATER = _in_cell("publisher", 0), _in_cell("reader", 1), _in_cell("later", 1)
POSITIONS = {
    NEAR: (10.0, 10.0),
    CLIENT: (15.0, 10.0),
    NEIGHBOUR: (10.0, 15.0),
    FAR: (1_010.0, 10.0),
    PUBLISHER: (1_015.0, 10.0),
    READER: (1_010.0, 15.0),
    LATER: (1_005.0, 10.0),
}
CLOUD_ONE_WAY_US = (20_000, 40_000)
"""The server is 40 to 80 ms away, there and back."""
CLOUD_BITS_PER_S = 16_000_000
"""The bandwidth of the venue's way to the server."""
_TIMEOUT_US = 120 * SECOND_US
_SETTINGS = StationSettings(
    popularity=PopularitySettings(decision_period_us=3 * SECOND_US),
    sharing=GlobalSettings(needs_period_us=3 * SECOND_US, reply_window_us=3 * SECOND_US),
    mobile_timeout_us=_TIMEOUT_US,
    station_timeout_us=_TIMEOUT_US,
    tries_max=1,
    cells_min=len(_CELLS),
    cells_max=len(_CELLS),
)


class DownloadSource(StrEnum):
    """Where the object is."""

    REPLICA = "replica"
    STATION = "station"
    FAR_STATION = "far station"
    FAR_REPLICA = "far replica"
    CLOUD = "cloud"


class DownloadScenario(msgspec.Struct, frozen=True, kw_only=True):
    """One download."""

    source: DownloadSource
    size: int
    seed: int = 1
    rate_mbps: float = 54.0


def measure_download(scenario: DownloadScenario) -> float:
    """How long a download takes, in milliseconds."""
    wires = WiredLinks([NEAR, FAR], _wire_config(scenario), scenario.seed)
    small = SmallNetwork(
        POSITIONS,
        lambda node_id, store: _make_node(node_id, store, scenario.seed),
        seed=scenario.seed,
        rate_mbps=scenario.rate_mbps,
        wires=wires,
    )
    near, far = _content(small, NEAR), _content(small, FAR)
    world = MobileConfig(world_name=WORLD).world
    key, client = Key(as_object_id(OID), PUBLISHER), CLIENT
    small.run_s(30)
    small.subscribe(CLIENT, TAG)
    small.subscribe(READER, TAG)
    small.insert(PUBLISHER, OID, TAG, scenario.size)
    small.retrieve(READER, small.notification(READER, OID))
    small.run_until(lambda: far.has_local(world, key), "the insert into the far station")
    metadata = small.notification(CLIENT, OID)
    small.run_until(
        lambda: near.read_item(world, key) is not None, "the prefetch by the near station"
    )
    if scenario.source is DownloadSource.REPLICA:
        small.subscribe(LATER, TAG)
        metadata, client = small.notification(LATER, OID), LATER
    if scenario.source not in (DownloadSource.STATION, DownloadSource.REPLICA):
        near.purge(world, key)
    if scenario.source in (DownloadSource.REPLICA, DownloadSource.FAR_REPLICA):
        far.purge(world, key)
    return small.retrieve(client, metadata)


def _wire_config(scenario: DownloadScenario) -> WireConfig:
    if scenario.source is not DownloadSource.CLOUD:
        return WireConfig()
    latency_us = derive_rng(scenario.seed, "cloud").randint(*CLOUD_ONE_WAY_US)
    return WireConfig(latency_us=latency_us, bits_per_s=CLOUD_BITS_PER_S)


def _content(small: SmallNetwork, node_id: NodeId) -> CachedContent:
    station = small.nodes[node_id]
    assert isinstance(station, StationNode)
    content = station.context.content
    assert isinstance(content, CachedContent)
    return content


def _make_node(node_id: NodeId, store: Store, seed: int) -> Node:
    rng = derive_rng(seed, "node", node_id)
    if node_id in (NEAR, FAR):
        content = CachedContent(_SETTINGS.caches)
        return StationNode(node_id, [NEAR, FAR], content, rng, _SETTINGS)
    node, _ = make_mobile_node(
        node_id,
        store,
        cells_rng=rng,
        rng=rng,
        station_rng=rng,
        config=PAPER,
        mobile=MobileConfig(world_name=WORLD, cells=len(_CELLS)),
    )
    return node
