"""Metrics: renders the counters and gauges of a node in the Prometheus text format.

Entry point: `render`. Those of a station are in `station_status`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from thyme.live.shared_node import RequestStats
from thyme.live.sockets import Sockets
from thyme.live.status import NodeStatus

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(status: NodeStatus, stats: RequestStats, sockets: Sockets) -> str:
    """Renders all metrics, one per line."""
    return "".join(f"{line}\n" for line in _render_lines(status, stats, sockets))


def _render_lines(status: NodeStatus, stats: RequestStats, sockets: Sockets) -> Iterator[str]:
    world = labels(world=status.world.name, substrate=status.world.substrate)
    yield from render_metric("info", "gauge", "world and substrate of this node", {world: 1})
    yield from render_metric(
        "up_seconds", "gauge", "time since the start", {"": status.up_us / 1e6}
    )
    for name, help_text, value in (
        ("neighbours", "nodes in range", len(status.neighbours)),
        ("objects", "objects whose bytes are stored here", status.storage.objects),
        ("metadata", "objects whose metadata is stored here as a broker", status.storage.metadata),
        ("store_bytes", "size of the store's files", status.storage.file_bytes),
        ("subscriptions_own", "subscriptions of this node", status.subscriptions_own),
        ("subscriptions_standing", "subscriptions matched here", status.subscriptions_standing),
        ("applications", "applications that use this node", status.applications),
        ("disk_full", "1 if the disk is full", int(status.storage.full)),
        ("clock_ahead_seconds", "median lead of the neighbours' clocks", _clock_ahead_s(status)),
        ("unknown_versions", "nodes of unsupported versions", len(status.unknown_versions)),
    ):
        yield from render_metric(name, "gauge", help_text, {"": value})
    finished = {labels(kind=kind): count for kind, count in sorted(stats.finished.items())}
    yield from render_metric("operations_total", "counter", "operations that succeeded", finished)
    failed = {
        labels(kind=kind, code=code): count for (kind, code), count in sorted(stats.failed.items())
    }
    yield from render_metric("failures_total", "counter", "operations that failed", failed)
    duration = {labels(kind=kind): us / 1e6 for kind, us in sorted(stats.duration_us.items())}
    yield from render_metric(
        "operation_seconds_total", "counter", "total duration of operations", duration
    )
    yield from render_metric(
        "notifications_total", "counter", "notifications", {"": stats.notifications}
    )
    for name, counts in (("datagrams", sockets.datagrams), ("datagram_bytes", sockets.bytes)):
        by_direction = {labels(way=way): counts[way] for way in ("in", "out")}
        yield from render_metric(
            f"{name}_total", "counter", f"{name.replace('_', ' ')}", by_direction
        )
    dropped = {labels(cause=cause): count for cause, count in status.dropped.items()}
    yield from render_metric("dropped_total", "counter", "dropped datagrams and messages", dropped)
    removed = {labels(cause=cause): count for cause, count in status.storage.removed.items()}
    yield from render_metric("removed_total", "counter", "objects removed", removed)
    if (events := status.events) is not None:
        by_end = {"written": events.written, "dropped": events.dropped}
        labelled = {labels(end=end): count for end, count in by_end.items()}
        yield from render_metric("events_total", "counter", "exported events", labelled)
    unsent = {labels(cause=cause): count for cause, count in sorted(sockets.unsent.items())}
    yield from render_metric("unsent_total", "counter", "datagrams refused by the system", unsent)


def _clock_ahead_s(status: NodeStatus) -> float:
    known = sorted(
        neighbour.clock_ahead_us
        for neighbour in status.neighbours
        if neighbour.clock_ahead_us is not None
    )
    return known[len(known) // 2] / 1e6 if known else 0.0


def render_metric(
    name: str, kind: str, help_text: str, values: Mapping[str, float]
) -> Iterator[str]:
    """The lines of one metric, with a value for each set of labels."""
    yield f"# HELP thyme_{name} {help_text}"
    yield f"# TYPE thyme_{name} {kind}"
    for labelled, value in values.items():
        yield f"thyme_{name}{labelled} {value:.15g}"


def labels(**values: str) -> str:
    """The labels of a value."""
    pairs = (f'{name}="{_escape(value)}"' for name, value in values.items())
    return "{" + ",".join(pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
