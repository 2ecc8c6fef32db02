"""Station status: reads the status of a station from its components, and renders its metrics.

Entry points: `collect_station_status` and `render_station`. The records are in
`thyme.live.status`.
Clauses: I3, I12–I14, I25, I29.
"""

from __future__ import annotations

from collections.abc import Iterator

import thyme
from thyme.daemon.metrics import labels, render_metric
from thyme.events.segments import EventStats
from thyme.live.station.open_station import LiveStation
from thyme.live.status import (
    CacheStatus,
    EventsStatus,
    StationStatus,
    StationWorldStatus,
)
from thyme.model.worlds import INFRA, named_world_id


def collect_station_status(
    live: LiveStation, now_us: int, up_us: int, events: EventStats | None = None
) -> StationStatus:
    """Collects the current status of a station."""
    node, context = live.node, live.node.context
    population = node.population(now_us)
    host, port = live.sockets.address
    wired = live.config.wired
    dropped = live.links.mobiles.dropped + live.links.wires.dropped + node.dropped
    dropped += context.verifier.dropped
    return StationStatus(
        version=thyme.__version__,
        station=live.config.name,
        node=node.node_id.hex(),
        address=f"{host}:{port}",
        wired_address=f"{wired.address}:{wired.port}",
        now_us=now_us,
        up_us=up_us,
        worlds=tuple(
            StationWorldStatus(
                name=entry.name,
                wid=named_world_id(INFRA, entry.name),
                cells=entry.cells,
                mobiles=population[entry.world],
            )
            for entry in context.worlds.entries()
        ),
        mobiles=sum(population.values()),
        addresses=len(node.addresses),
        caches={
            name: CacheStatus(
                entries=int(values["entries"]),
                capacity=int(values["capacity"]),
                hits=int(values["hits"]),
                misses=int(values["misses"]),
                hit_ratio=values["hit_ratio"],
            )
            for name, values in live.content.statistics().items()
        },
        stations=live.links.wires.describe(),
        needs=len(node.needs),
        popular=len(context.popularity),
        parked=node.mobiles.parked,
        deletes=len(context.unpublished),
        deletes_unconfirmed=node.operations.unconfirmed,
        counts={what: count for what, count in sorted(context.counts.items()) if count},
        dropped=dict(sorted(dropped.items())),
        durable=live.store.durable,
        full=not live.store.has_space(0),
        not_saved=context.records.not_saved,
        events=None
        if events is None
        else EventsStatus(written=events.written, dropped=events.dropped, removed=events.removed),
    )


def render_station(status: StationStatus, live: LiveStation) -> str:
    """Renders the metrics of a station in the Prometheus text format."""
    return "".join(f"{line}\n" for line in _render_lines(status, live))


def _render_lines(status: StationStatus, live: LiveStation) -> Iterator[str]:
    name = labels(station=status.station)
    yield from render_metric("station_info", "gauge", "name of this station", {name: 1})
    for metric, help_text, value in (
        ("up_seconds", "time since the start", status.up_us / 1e6),
        ("station_mobiles", "mobile nodes that use this station", status.mobiles),
        ("station_worlds", "worlds of this station", len(status.worlds)),
        ("station_needs", "tags with subscriptions of visitors", status.needs),
        ("station_popular", "objects with counted downloads", status.popular),
        ("station_parked", "messages that wait for a node of their cell", status.parked),
        ("station_deletes", "objects that must not come back", status.deletes),
        (
            "station_deletes_unconfirmed",
            "deletes that some station has not confirmed",
            status.deletes_unconfirmed,
        ),
        ("station_disk_full", "1 if the disk is full", int(status.full)),
    ):
        yield from render_metric(metric, "gauge", help_text, {"": value})
    caches = status.caches.items()
    for metric, kind, help_text, values in (
        ("cache_entries", "gauge", "entries of a cache", {c: s.entries for c, s in caches}),
        ("cache_capacity", "gauge", "size of a cache", {c: s.capacity for c, s in caches}),
        ("cache_hits_total", "counter", "reads with a hit", {c: s.hits for c, s in caches}),
        ("cache_misses_total", "counter", "reads without", {c: s.misses for c, s in caches}),
    ):
        by_cache = {labels(cache=cache): count for cache, count in values.items()}
        yield from render_metric(f"station_{metric}", kind, help_text, by_cache)
    connected = {labels(station=each.name): int(each.connected) for each in status.stations}
    help_text = "1 if messages reach another station"
    yield from render_metric("station_connected", "gauge", help_text, connected)
    counts = {labels(what=what): count for what, count in status.counts.items()}
    yield from render_metric("station_operations_total", "counter", "what was done", counts)
    wired = {labels(way=way): live.links.wires.bytes[way] for way in ("in", "out")}
    yield from render_metric("station_wired_bytes_total", "counter", "bytes to stations", wired)
    for metric, totals in (
        ("datagrams", live.sockets.datagrams),
        ("datagram_bytes", live.sockets.bytes),
    ):
        by_way = {labels(way=way): totals[way] for way in ("in", "out")}
        yield from render_metric(f"{metric}_total", "counter", metric.replace("_", " "), by_way)
    dropped = {labels(cause=cause): count for cause, count in status.dropped.items()}
    yield from render_metric("dropped_total", "counter", "dropped datagrams and messages", dropped)
