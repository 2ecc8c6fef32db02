"""Run rows: the logs and traffic of a simulated run, as columns of RUN_PART.

Clauses: P5, S14.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from thyme.pipeline.sweep.planned_run import ResultRow
from thyme.sim.results.summary import NotificationChecker, TrafficSummary
from thyme.sim.run import Run
from thyme.traces.operations import InsertOperation

NO_TRAFFIC = TrafficSummary(
    phy_bytes=0,
    phy_frames=0,
    mac_retransmissions=0,
    mac_exceeded=0,
    forwarded_bytes=0,
    control_bytes=0,
    dropped={},
    by_type={},
)


def traffic_facts(traffic: TrafficSummary) -> ResultRow:
    """The traffic of a run, and what was dropped."""
    return {
        "phy_frames": traffic.phy_frames,
        "phy_bytes": traffic.phy_bytes,
        "mac_retransmissions": traffic.mac_retransmissions,
        "forwarded_bytes": traffic.forwarded_bytes,
        "control_bytes": traffic.control_bytes,
        "drops": [{"cause": cause, "messages": count} for cause, count in traffic.dropped.items()],
    }


def log_tables(found: Run) -> ResultRow:
    """Operations, notifications, down times and the traffic of each node."""
    checker = NotificationChecker(found)
    ttls_us = {
        op.oid: op.life_us for op in found.trace.operations if isinstance(op, InsertOperation)
    }
    return {
        "operations": [
            msgspec.to_builtins(attempt) | {"life_us": ttls_us.get(attempt.name)}
            for attempt in found.attempts
        ],
        "notifications": [
            msgspec.to_builtins(received) | {"right": checker.is_valid(received)}
            for received in found.notifications
        ],
        "expected": [
            {"at_us": due.at_us, "user": due.user, "sid": due.sid, "oid": due.oid}
            for due in found.expected
        ],
        "downtimes": [
            {"user": user, "since_us": since_us, "until_us": until_us}
            for user, spans in found.downtimes.items()
            for since_us, until_us in spans
        ],
        "loads": [
            {"node": number, "type": kind} | msgspec.to_builtins(load)
            for number, node in enumerate(found.measurements.nodes)
            for kind, load in node.loads.items()
        ],
    }


def device_rows(found: Run, cells: Sequence[int]) -> Iterator[ResultRow]:
    """Traffic, energy and final storage of each device, and the cell in which it started."""
    rows = zip(cells, found.measurements.nodes, found.samples.stored, strict=True)
    for number, (cell, node, stored) in enumerate(rows):
        yield {
            "node": number,
            "server": number >= found.scenario.nodes,
            "cell": cell,
            "frames": node.frames,
            "frame_bytes": node.frame_bytes,
            "retransmissions": node.retransmissions,
            "joules": node.energy.joules,
            "battery_share": node.energy.battery_share,
            "objects": stored.objects,
            "object_bytes": stored.bytes,
            "metadata": stored.metadata,
            "subscriptions": stored.subscriptions,
        }
