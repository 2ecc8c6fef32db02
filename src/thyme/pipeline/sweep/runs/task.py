"""The task of a run on the radio: simulates it and returns its result.

Entry point: `simulate`, called in a process of its own (`sweep.simulation_worker`). A result is one
row of RUN_PART, with the logs as lists. `sweep.runs.infra_task` has the same for infra runs.
Clauses: P5, S14–S16, S18.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from functools import lru_cache

import msgspec

from thyme.pipeline.sweep.runs.planned_run import ENDED, PlannedRun, ResultRow
from thyme.sim.results.measures import first_cells, measures_of, model_parts
from thyme.sim.results.summary import (
    NotificationChecker,
    RunSummary,
    TrafficSummary,
    summarise_run,
)
from thyme.sim.run import Run, run
from thyme.traces.files import FilePath
from thyme.traces.operations import InsertOperation
from thyme.traces.trace import Trace
from thyme.traces.trace_files import read_trace

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


def simulate(planned: PlannedRun, trace_file: FilePath | None = None) -> ResultRow:
    """Simulates one planned run and returns its result; the trace may be in another file here."""
    nodes = planned.scenario.nodes
    if trace_file is not None:
        trace = _read_shipped_trace(os.fspath(trace_file), nodes)
    else:
        trace = read_trace(planned.trace_file, nodes)
    started_s = time.process_time()
    found = run(planned.scenario, trace)
    cpu_s = time.process_time() - started_s
    summary = summarise_run(found)
    measures = measures_of(found, summary)
    return {
        "state": ENDED,
        "run_id": planned.run_id,
        **_run_facts(planned, found, summary),
        "cpu_s": cpu_s,
        "measures": [{"measure": name, "value": value} for name, value in measures.items()],
    }


@lru_cache(maxsize=4)
def _read_shipped_trace(file: str, users: int) -> Trace:
    """Reads a trace that Spark has fetched. Its name is a digest of its contents, and many runs
    have the same."""
    return read_trace(file, users)


def _run_facts(planned: PlannedRun, found: Run, summary: RunSummary) -> ResultRow:
    """Makes the row of a run, without its measures and CPU time."""
    scenario = planned.scenario
    return {
        "series": scenario.kind.value,
        "substrate": scenario.substrate.value,
        "profile": scenario.profile.value,
        "nodes": scenario.nodes,
        "parameter": planned.parameter,
        "topology": scenario.topology,
        "repetition": scenario.seed,
        "origin_us": scenario.timeline.origin_us,
        "end_us": scenario.timeline.end_us,
        "events": found.events,
        "estimated_s": planned.cost.seconds,
        "wall_s": found.wall_s,
        **traffic_facts(summary.traffic),
        "model": msgspec.to_builtins(model_parts(summary)),
        **log_tables(found),
        "devices": list(device_rows(found, first_cells(found))),
    }


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
