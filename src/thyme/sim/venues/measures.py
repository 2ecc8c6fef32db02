"""Venue measures: the metrics of a run with stations as named numbers.

Entry point: `venue_measures`. Operations, notifications and traffic have the measures of the other
substrates; `mobile.…` are the messages that mobile nodes sent, without those of stations.
Clauses: P6, S14, C23–C32, C36.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import pairwise

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.protocol.messages.cell_records import CellId
from thyme.protocol.messages.common import ToStation
from thyme.protocol.messages.stations import WorldProbe
from thyme.sim.measurement.energy import RadioPower
from thyme.sim.measurement.measurements import NodeMeasurements
from thyme.sim.results.measures import (
    Measure,
    notification_measures,
    operation_measures,
    storage_measures,
    traffic_measures,
)
from thyme.sim.results.summary import summarise_all_operations
from thyme.sim.run import Run
from thyme.sim.venues.run import VenueRun
from thyme.sim.venues.summary import StationSummary, VenueSummary
from thyme.substrates.infra.station.addresses import LogicalAddress, MobileAddresses


def venue_measures(found: VenueRun, summary: VenueSummary) -> dict[str, float]:
    """Returns every measure of a run that has a value."""
    run = found.run
    operations = {**summary.ops, "operation": summarise_all_operations(run.attempts, run.trace)}
    groups = (
        operation_measures(operations),
        notification_measures(summary.notifications),
        traffic_measures(summary.traffic),
        storage_measures(summary.storage),
        mobile_measures(run),
        _station_measures(summary.stations),
        _end_state_measures(found),
        [
            ("recall.own_venue", summary.notifications_in_venue.recall),
            (
                "address_store_bytes",
                address_store_bytes(found.scenario.station_settings.mobile_addresses),
            ),
        ],
    )
    return {name: float(value) for group in groups for name, value in group if value is not None}


_TO_STATIONS = (ToStation.label, WorldProbe.label)
"""The messages of mobile nodes that are for stations alone."""


def mobile_measures(run: Run) -> Iterator[Measure]:
    """Traffic and energy of the users' devices alone (C32, C36)."""
    mobiles = run.measurements.nodes[: run.scenario.nodes]
    yield "mobile.messages", _sum(mobiles, "sent")
    yield (
        "mobile.messages_to_mobiles",
        sum(
            load.sent
            for node in mobiles
            for kind, load in node.loads.items()
            if kind.partition("/")[0] not in _TO_STATIONS
        ),
    )
    yield "mobile.bytes", _sum(mobiles, "sent_bytes")
    yield "mobile.messages_heard", _sum(mobiles, "heard")
    yield "energy_j_mean", sum(node.energy.joules for node in mobiles) / len(mobiles)
    yield "energy_j_max", max(node.energy.joules for node in mobiles)


HOT_NODES = 3
"""So many nodes count as hot: those that sent the most bytes. The thesis has three phones in the
cell of the tag; here it may be empty, and another cell looks after it."""


def hot_node_measures(run: Run) -> Iterator[Measure]:
    """What the busiest mobile nodes spend on average: bytes sent, and the energy of their radio
    above that of an idle one (C36)."""
    mobiles = run.measurements.nodes[: run.scenario.nodes]
    hot = sorted(mobiles, key=lambda node: -_sum([node], "sent_bytes"))[:HOT_NODES]
    yield "hot.bytes", _sum(hot, "sent_bytes") / len(hot)
    yield "hot.energy_j", sum(map(_active_j, hot)) / len(hot)


def _active_j(node: NodeMeasurements) -> float:
    spent = node.energy
    idle_j = RadioPower().joules(tx_us=0, rx_us=0, total_us=spent.on_us)
    return spent.radio_j - idle_j


def past_item_measures(found: VenueRun) -> Iterator[Measure]:
    """Past objects per subscription from cells and from stations, over time (C36)."""
    origin_us = found.run.scenario.timeline.origin_us
    subscribes = [each.issued_us for each in found.run.attempts if each.kind == "subscribe"]
    for before, after in pairwise(found.past_items):
        count = sum(before.at_us <= at_us < after.at_us for at_us in subscribes)
        if count:
            at_s = (after.at_us - origin_us) // SECOND_US
            cells = after.from_cells - before.from_cells
            stations = after.from_stations - before.from_stations
            yield f"past_from_cells_at.{at_s}", cells / count
            yield f"past_from_stations_at.{at_s}", stations / count


def _sum(nodes: Sequence[NodeMeasurements], field: str) -> int:
    return sum(getattr(load, field) for node in nodes for load in node.loads.values())


def address_store_bytes(entries: int) -> int:
    """The memory of an address store that is full (thesis, figure 5.4)."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        store = MobileAddresses(entries, ttl_us=SECOND_US)
        for number in range(entries):
            address = LogicalAddress(1, CellId(number % 16))
            store.refresh(NodeId(number.to_bytes(16)), address, 0)
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()


def _station_measures(stations: tuple[StationSummary, ...]) -> Iterator[Measure]:
    up = [station for station in stations if station.is_up]
    for name in (
        "items_served",
        "downloads_missed",
        "forced_downloads",
        "cell_data",
        "cell_data_repeated",
        "items_sent",
        "items_received",
        "unpublished",
        "wired_bytes",
        "wired_messages",
    ):
        yield f"station.{name}", sum(getattr(station, name) for station in up)
    for way in ("direct", "routed", "to_cell", "parked", "dropped"):
        yield f"station.{way}", sum(station.to_mobiles.get(way, 0) for station in up)
    for station in up[:1]:
        yield from _first_station_measures(station)


def _first_station_measures(station: StationSummary) -> Iterator[Measure]:
    """Those of the first station: over time, and by cache."""
    for cycle, count in station.items_requested.items():
        yield f"requested_at.{cycle}", count
    for number, count in enumerate(station.items_per_answer, 1):
        yield f"answer_items_at.{number}", count
    for cache, values in station.caches.items():
        yield f"hit_ratio.{cache}", values["hit_ratio"]
        yield f"entries.{cache}", values["entries"]
    capacity = sum(station.local_popularity_parts.values())
    for number, size in enumerate(station.local_popularity_parts.values(), 1):
        yield f"part.{number}", size / capacity if capacity else None


def _end_state_measures(found: VenueRun) -> Iterator[Measure]:
    if found.deletes:
        yield "unpublished_share", 1 - found.deletes_left / found.deletes
        yield "deletes", found.deletes
    if found.cell_data is not None and found.cell_data.cycles:
        cycles = found.cell_data.cycles
        yield "cell_data_share", 1 - found.cell_data.lost / cycles
        yield "cell_data_cycles", cycles
        yield "stable_node_failures", found.cell_data.failed_nodes
    yield "division_cpu_ms", 1e3 * found.division_cpu_s
