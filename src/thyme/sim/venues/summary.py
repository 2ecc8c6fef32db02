"""Venue summary: what a run with stations achieved, and what each station cached, served and sent.

Entry point: `summarise_venues`. The keys are those of the other substrates, and `stations`.
Clauses: S14, I9, I17–I19.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import msgspec

from thyme.sim.measurement.measurements import Measurements
from thyme.sim.networks.wired_links import WiredLinks
from thyme.sim.radio.phy import OVERHEAD_BYTES, UDP_IP_HEADER_BYTES
from thyme.sim.results.state_summary import StorageSummary, summarise_storage
from thyme.sim.results.summary import (
    EnergySummary,
    LoadSummary,
    NotificationSummary,
    OperationSummary,
    TrafficSummary,
    summarise_notifications,
    summarise_operations,
)
from thyme.sim.run import Run
from thyme.sim.venues.scenario import VenueScenario
from thyme.substrates.infra.station.node import StationNode
from thyme.traces.operations import InsertOperation, SubscribeOperation


class StationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One station at the end of a run; its counts are those since its last start."""

    station: str
    is_up: bool
    mobile_nodes: int = 0
    """Known mobile nodes."""
    cells: dict[str, int] = {}
    """The number of cells by world."""
    caches: dict[str, dict[str, float]] = {}
    """Entries, capacity, hits, misses and hit ratio, by cache."""
    local_popularity_parts: dict[str, int] = {}
    """The part of the local popularity cache of each world (C26)."""
    items_served: int = 0
    """Downloads served from the caches."""
    downloads_missed: int = 0
    forced_downloads: int = 0
    lookups: int = 0
    cell_data: int = 0
    """Cycles of cell data received, each counted once."""
    cell_data_repeated: int = 0
    items_requested: dict[int, int] = {}
    """Items requested from mobile nodes, by decision cycle (C24)."""
    items_sent: int = 0
    """Items sent to other stations."""
    items_per_answer: tuple[int, ...] = ()
    """The number of items in each answer to another station (C27)."""
    items_received: int = 0
    unpublished: int = 0
    wired_bytes: int = 0
    """Bytes sent to other stations."""
    wired_messages: int = 0
    to_mobiles: dict[str, int] = {}
    """Messages to mobile nodes and cells: direct, routed, to cells, parked, dropped (C23)."""
    dropped: dict[str, int] = {}


class VenueSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All metrics of one run; the keys are those of `RunSummary`, and `stations`."""

    scenario: dict[str, object]
    ops: dict[str, OperationSummary]
    notifications: NotificationSummary
    """Compared with a perfect execution in one venue."""
    notifications_in_venue: NotificationSummary
    """Those whose publisher and subscriber start in the same venue."""
    traffic: TrafficSummary
    load: LoadSummary
    storage: StorageSummary
    cells: None = None
    """Cells are logical: there is no grid to summarise."""
    energy_j: EnergySummary
    analytical: None = None
    """The papers have no model of the messages with stations."""
    stations: tuple[StationSummary, ...]
    wall_s: float
    events: int


def summarise_station(name: str, node: object, wires: WiredLinks) -> StationSummary:
    """Summarises one station; one that is down has no counts."""
    if not isinstance(node, StationNode):
        return StationSummary(station=name, is_up=False)
    counts, context = node.context.counts, node.context
    return StationSummary(
        station=name,
        is_up=True,
        mobile_nodes=len(node.addresses),
        cells={entry.name: entry.cells for entry in context.worlds.entries()},
        caches=context.content.statistics(),
        local_popularity_parts=_parts_by_world(node),
        items_served=counts["downloads served"],
        downloads_missed=counts["downloads missed"],
        forced_downloads=counts["forced downloads"],
        lookups=counts["lookups"],
        cell_data=counts["cell data"],
        cell_data_repeated=counts["cell data again"],
        items_requested=dict(node.popular_items.requested_per_cycle),
        items_sent=counts["items to stations"],
        items_per_answer=tuple(node.sharing.items_per_answer),
        items_received=counts["items from stations"],
        unpublished=counts["unpublished"],
        wired_bytes=wires.bytes_sent[node.node_id],
        wired_messages=wires.messages_sent[node.node_id],
        to_mobiles=dict(sorted(node.mobiles.counts.items())),
        dropped=dict(sorted(node.dropped.items())),
    )


def _parts_by_world(node: StationNode) -> dict[str, int]:
    names = {str(entry.world): entry.name for entry in node.context.worlds.entries()}
    parts = node.context.content.parts()
    return dict(sorted((names.get(world, world), size) for world, size in parts.items()))


def summarise_venues(
    scenario: VenueScenario, run: Run, stations: tuple[StationSummary, ...]
) -> VenueSummary:
    """Summarises a run and its stations."""
    parameters = msgspec.to_builtins(scenario) | {
        "substrate": "infra",
        "settings": msgspec.to_builtins(scenario.station_settings),
        "operations": run.trace.counts(),
    }
    return VenueSummary(
        scenario=parameters,
        ops=summarise_operations(run.attempts, run.trace),
        notifications=summarise_notifications(run),
        notifications_in_venue=summarise_notifications(_within_venues(scenario, run)),
        traffic=_summarise_traffic(run.measurements),
        load=LoadSummary(run.measurements.hot_spot.max, run.measurements.hot_spot.gini),
        storage=summarise_storage(run.samples),
        energy_j=_summarise_energy(run),
        stations=stations,
        wall_s=run.wall_s,
        events=run.events,
    )


def _within_venues(scenario: VenueScenario, run: Run) -> Run:
    """The run with the notifications whose publisher and subscriber start in the same venue."""
    operations = run.trace.operations
    publishers = {op.oid: op.user for op in operations if isinstance(op, InsertOperation)}
    subscribers = {op.sid: op.user for op in operations if isinstance(op, SubscribeOperation)}

    def is_within(sid: str, oid: str) -> bool:
        publisher, subscriber = publishers.get(oid), subscribers.get(sid)
        if publisher is None or subscriber is None:
            return True
        return scenario.venue_of(publisher) == scenario.venue_of(subscriber)

    return msgspec.structs.replace(
        run,
        expected=[each for each in run.expected if is_within(each.sid, each.oid)],
        notifications=[each for each in run.notifications if is_within(each.sid, each.oid)],
    )


def _summarise_traffic(measurements: Measurements) -> TrafficSummary:
    total, control = measurements.total, measurements.control
    return TrafficSummary(
        phy_bytes=measurements.frame_bytes,
        phy_frames=measurements.frames,
        mac_retransmissions=measurements.retransmissions,
        mac_exceeded=measurements.dropped.get("exceeded", 0),
        forwarded_bytes=total.forwarded_bytes + UDP_IP_HEADER_BYTES * total.forwarded,
        control_bytes=control.sent_bytes + OVERHEAD_BYTES * control.sent,
        dropped=measurements.dropped,
        by_type=measurements.loads,
    )


def _summarise_energy(run: Run) -> EnergySummary:
    """Summarises the energy of mobile nodes only; stations are mains-powered."""
    spent = [node.energy.joules for node in run.measurements.nodes[: run.scenario.nodes]]
    return EnergySummary(reduce(add, spent) / len(spent), max(spent))
