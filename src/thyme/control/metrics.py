"""Metrics: renders the counters and gauges of a node in the Prometheus text format.

Entry point: `render`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from thyme.live.sockets import Sockets
from thyme.live.status import Status
from thyme.live.switchboard import Tally

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def written(status: Status, tally: Tally, sockets: Sockets) -> str:
    """Renders all metrics, one per line."""
    return "".join(f"{line}\n" for line in _lines(status, tally, sockets))


def _lines(status: Status, tally: Tally, sockets: Sockets) -> Iterator[str]:
    world = _labels(world=status.world.name, substrate=status.world.substrate)
    yield from _metric("info", "gauge", "world and substrate of this node", {world: 1})
    yield from _metric("up_seconds", "gauge", "time since the start", {"": status.up_us / 1e6})
    for name, words, value in (
        ("neighbours", "nodes in range", len(status.neighbours)),
        ("objects", "objects whose bytes are stored here", status.storage.objects),
        ("metadata", "objects whose metadata is stored here as a broker", status.storage.metadata),
        ("store_bytes", "size of the store's files", status.storage.file_bytes),
        ("subscriptions_own", "subscriptions of this node", status.subscriptions_own),
        ("subscriptions_standing", "subscriptions matched here", status.subscriptions_standing),
        ("applications", "applications that use this node", status.applications),
    ):
        yield from _metric(name, "gauge", words, {"": value})
    done = {_labels(kind=kind): count for kind, count in sorted(tally.finished.items())}
    yield from _metric("operations_total", "counter", "operations that succeeded", done)
    failed = {
        _labels(kind=kind, code=code): count for (kind, code), count in sorted(tally.failed.items())
    }
    yield from _metric("failures_total", "counter", "operations that failed", failed)
    took = {_labels(kind=kind): us / 1e6 for kind, us in sorted(tally.took_us.items())}
    yield from _metric("operation_seconds_total", "counter", "total duration of operations", took)
    yield from _metric("notifications_total", "counter", "notifications", {"": tally.notified})
    for name, counts in (("datagrams", sockets.datagrams), ("datagram_bytes", sockets.bytes)):
        by_way = {_labels(way=way): counts[way] for way in ("in", "out")}
        yield from _metric(f"{name}_total", "counter", f"{name.replace('_', ' ')}", by_way)
    dropped = {_labels(cause=cause): count for cause, count in status.dropped.items()}
    yield from _metric("dropped_total", "counter", "dropped datagrams and messages", dropped)
    unsent = {_labels(cause=cause): count for cause, count in sorted(sockets.unsent.items())}
    yield from _metric("unsent_total", "counter", "datagrams refused by the system", unsent)


def _metric(name: str, kind: str, words: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP thyme_{name} {words}"
    yield f"# TYPE thyme_{name} {kind}"
    for labels, value in values.items():
        yield f"thyme_{name}{labels} {value:.15g}"


def _labels(**labels: str) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
