"""Measures: the metrics of a run as named numbers, for statistics over many runs.

Entry point: `measures_of`. A measure is a named number of one run: `phy_bytes`, `success.retrieve`,
`latency_ms_p95.notification`. Most are values of the summary (`thyme.sim.results.summary`); the
others are computed here with the same functions. The sweep writes the measures of each run with its
result; the pipeline computes their statistics over runs.
Clauses: P6, S14, S15, S18.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thyme.sim.measurement.measurements import distribution_of
from thyme.sim.results.state_summary import StorageSummary
from thyme.sim.results.summary import (
    Latency,
    NotificationSummary,
    OperationSummary,
    RunSummary,
    TrafficSummary,
    summarise_all_operations,
)
from thyme.sim.run import Run
from thyme.sim.scenario import grid_over

HOT_SPOT = "hot_spot"
"""The part of the analytical model about the busiest node or cell."""
Measure = tuple[str, float | None]
"""The name of a measure and its value; None if the run has no such value."""


class ModelPart(msgspec.Struct, frozen=True):
    """Messages of one part of the workload, by formula and as simulated."""

    part: str
    formula: float | None
    """None for acknowledgements and upkeep, which have no formula."""
    simulated: float


def measures_of(run: Run, summary: RunSummary) -> dict[str, float]:
    """Returns every measure of a run that has a value."""
    operations = {**summary.ops, "operation": summarise_all_operations(run.attempts, run.trace)}
    groups = (
        operation_measures(operations),
        notification_measures(summary.notifications),
        traffic_measures(summary.traffic),
        _model_measures(summary),
        _load_measures(run, summary),
        _energy_measures(run, summary),
        storage_measures(summary.storage),
    )
    return {name: float(value) for group in groups for name, value in group if value is not None}


def operation_measures(operations: dict[str, OperationSummary]) -> Iterator[Measure]:
    """Success and latency by kind of operation, and of all operations as `operation`."""
    for kind, of_kind in operations.items():
        if of_kind.issued:
            yield f"issued.{kind}", of_kind.issued
            yield f"succeeded.{kind}", of_kind.ok
            yield f"success.{kind}", of_kind.success
            yield from _latency_measures(kind, of_kind.latency_ms)


def _latency_measures(kind: str, latency_ms: Latency) -> Iterator[Measure]:
    for name, value in msgspec.structs.asdict(latency_ms).items():
        yield f"latency_ms_{name}.{kind}", value


def notification_measures(notifications: NotificationSummary) -> Iterator[Measure]:
    """Recall and latency; nothing for a run in which none was expected and none received."""
    received = notifications.delivered + notifications.spurious + notifications.unexpected
    if not notifications.expected and not received:
        return
    yield "expected.notification", notifications.expected
    yield "delivered.notification", notifications.delivered
    yield "success.notification", notifications.recall
    yield from _latency_measures("notification", notifications.latency_ms)
    yield "spurious", notifications.spurious
    yield "unexpected", notifications.unexpected
    yield "duplicates", notifications.duplicates


def traffic_measures(traffic: TrafficSummary) -> Iterator[Measure]:
    """Frames, bytes and retransmissions of the radio; messages and bytes by message type (S14)."""
    yield "phy_bytes", traffic.phy_bytes
    yield "phy_frames", traffic.phy_frames
    yield "mac_retransmissions", traffic.mac_retransmissions
    yield "forwarded_bytes", traffic.forwarded_bytes
    yield "control_bytes", traffic.control_bytes
    yield "mac_exceeded", traffic.mac_exceeded
    yield "control_share", traffic.control_bytes / traffic.phy_bytes if traffic.phy_bytes else None
    for kind, load in traffic.by_type.items():
        yield f"messages.{kind}", load.sent
        yield f"bytes.{kind}", load.sent_bytes


def _model_measures(summary: RunSummary) -> Iterator[Measure]:
    for each in model_parts(summary):
        yield f"formula.{each.part}", each.formula
        yield f"simulated.{each.part}", each.simulated


def model_parts(summary: RunSummary) -> list[ModelPart]:
    """Returns the messages by formula and as simulated, by part of the workload (S18)."""
    formula: dict[str, float] = msgspec.structs.asdict(summary.analytical.formula)
    simulated = summary.analytical.simulated
    parts = [
        ModelPart(part, formula.get(part), float(simulated.get(part, 0)))
        for part in sorted({*formula, *simulated} - {HOT_SPOT})
    ]
    return [*parts, ModelPart(HOT_SPOT, formula[HOT_SPOT], summary.load.max)]


def _load_measures(run: Run, summary: RunSummary) -> Iterator[Measure]:
    """Messages sent and received by the busiest node and by the busiest cell, and their Gini.

    The load of a node counts for the cell in which it started.
    """
    yield "load_max.node", summary.load.max
    yield "load_gini.node", summary.load.gini
    by_cell = distribution_of(_load_by_first_cell(run))
    yield "load_max.cell", by_cell.max
    yield "load_gini.cell", by_cell.gini


def _load_by_first_cell(run: Run) -> list[int]:
    loads: dict[int, int] = {}
    for cell, node in zip(first_cells(run), run.measurements.nodes, strict=True):
        load = sum(each.sent + each.heard for each in node.loads.values())
        loads[cell] = loads.get(cell, 0) + load
    return list(loads.values())


def first_cells(run: Run) -> list[int]:
    """Returns the cell in which each device started, by device number."""
    grid = grid_over(run.scenario.area)
    return [int(grid.cell_at(position)) for position in run.positions]


def _energy_measures(run: Run, summary: RunSummary) -> Iterator[Measure]:
    """Energy of user devices only; the ES server is mains-powered."""
    phones = run.measurements.nodes[: run.scenario.nodes]
    yield "energy_j_mean", summary.energy_j.mean
    yield "energy_j_max", summary.energy_j.max
    yield "battery_share_max", max(node.energy.battery_share for node in phones)


def storage_measures(storage: StorageSummary) -> Iterator[Measure]:
    """Records stored by nodes at the end: objects, their bytes, metadata, subscriptions."""
    stored = {
        "objects": storage.objects,
        "object_bytes": storage.bytes,
        "metadata": storage.metadata,
        "subscriptions": storage.subscriptions,
    }
    for name, distribution in stored.items():
        yield f"storage_mean.{name}", distribution.mean
        yield f"storage_max.{name}", distribution.max
