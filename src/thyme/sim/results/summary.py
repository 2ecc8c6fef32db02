"""Summary: computes the metrics of a run from its logs and measurements.

Entry point: `summarise_run`. A summary has success and latency of operations, recall and errors of
notifications compared with the oracle, traffic, load, storage, energy, the cells of Thyme-DCS, and
a comparison with the analytical model. `thyme sim run --json` prints this record;
`thyme.sim.results.tables` writes it to a file.
Clauses: S14, S15, S18, M16, M23.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add

import msgspec

from thyme.protocol.messages.description import CONTROL, innermost
from thyme.protocol.messages.traits import UPKEEP
from thyme.sim.measurement.measurements import PARTS, TrafficCount
from thyme.sim.radio.phy import OVERHEAD_BYTES, UDP_IP_HEADER_BYTES
from thyme.sim.results.analytical import (
    Approach,
    MessageEstimate,
    NetworkSize,
    estimate_messages,
    expected_network_size,
    workload_of,
)
from thyme.sim.results.state_summary import (
    CellsSummary,
    StorageSummary,
    summarise_cells,
    summarise_storage,
)
from thyme.sim.run import Run
from thyme.sim.scenario import Scenario, Substrate, grid_over
from thyme.sim.users import Attempt, ReceivedNotification
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.trace import Trace

OPERATION_KINDS = ("insert", "delete", "subscribe", "unsubscribe", "retrieve")
US_PER_MS = 1_000
"""Microseconds in a millisecond."""


class Latency(msgspec.Struct, frozen=True):
    """Distribution of durations in milliseconds; None without durations."""

    mean: float | None = None
    p50: float | None = None
    p95: float | None = None
    max: float | None = None


class OperationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Success and latency of the operations of one kind."""

    issued: int
    ok: int
    success: float | None
    """Share of the issued operations that succeeded."""
    latency_ms: Latency
    """Latency of the operations that succeeded."""
    failures: dict[str, int]
    """Operations that failed, by error code."""


class NotificationSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The notifications that users received, compared with a perfect execution."""

    expected: int
    delivered: int
    """Expected notifications that users received."""
    recall: float | None
    spurious: int
    """Invalid notifications: the object does not match, is outside the time frame, or was deleted
    or expired before the subscription; or the subscription was revoked before."""
    duplicates: int
    unexpected: int
    """Valid notifications that a perfect execution, with instant operations, does not give."""
    latency_ms: Latency
    """Latency since the instant at which a perfect execution notifies; if the subscriber's device
    is down at that instant, since its next start."""


class TrafficSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of the radio traffic of a run."""

    phy_bytes: int
    phy_frames: int
    mac_retransmissions: int
    mac_exceeded: int
    forwarded_bytes: int
    """Bytes of forwarded messages, with network headers."""
    control_bytes: int
    """Bytes of routing control messages, with all headers."""
    dropped: dict[str, int]
    by_type: dict[str, TrafficCount]


class LoadSummary(msgspec.Struct, frozen=True):
    """Messages sent and received per node: the maximum and the Gini coefficient."""

    max: float
    gini: float


class EnergySummary(msgspec.Struct, frozen=True):
    """Energy that user devices spent, in joules."""

    mean: float
    max: float


class ModelComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Messages by the analytical model and in the simulation, each hop counted."""

    formula: MessageEstimate
    simulated: dict[str, int]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """All metrics of one run."""

    scenario: dict[str, object]
    ops: dict[str, OperationSummary]
    notifications: NotificationSummary
    traffic: TrafficSummary
    load: LoadSummary
    storage: StorageSummary
    cells: CellsSummary | None
    """Thyme-DCS only; None for other substrates."""
    energy_j: EnergySummary
    analytical: ModelComparison
    wall_s: float
    events: int


def summarise_run(run: Run) -> RunSummary:
    """Computes the metrics of a run."""
    measurements = run.measurements
    return RunSummary(
        scenario=msgspec.to_builtins(run.scenario) | {"operations": run.trace.counts()},
        ops=summarise_operations(run.attempts, run.trace),
        notifications=summarise_notifications(run),
        traffic=TrafficSummary(
            phy_bytes=measurements.frame_bytes,
            phy_frames=measurements.frames,
            mac_retransmissions=measurements.retransmissions,
            mac_exceeded=measurements.dropped.get("exceeded", 0),
            forwarded_bytes=measurements.total.forwarded_bytes
            + UDP_IP_HEADER_BYTES * measurements.total.forwarded,
            control_bytes=measurements.control.sent_bytes
            + OVERHEAD_BYTES * measurements.control.sent,
            dropped=measurements.dropped,
            by_type=measurements.loads,
        ),
        load=LoadSummary(measurements.hot_spot.max, measurements.hot_spot.gini),
        storage=summarise_storage(run.samples),
        cells=_summarise_cells(run),
        energy_j=_summarise_energy(run),
        analytical=_compare_with_model(run),
        wall_s=run.wall_s,
        events=run.events,
    )


def _summarise_cells(run: Run) -> CellsSummary | None:
    if run.scenario.substrate is not Substrate.DCS:
        return None
    loads = [
        float(
            sum(load.sent + load.heard for kind, load in node.loads.items() if kind not in CONTROL)
        )
        for node in run.measurements.nodes
    ]
    return summarise_cells(run.samples, loads, grid_over(run.scenario.area), run.trace)


def _summarise_energy(run: Run) -> EnergySummary:
    """Summarises the energy of user devices only; the ES server is mains-powered."""
    spent = [node.energy.joules for node in run.measurements.nodes[: run.scenario.nodes]]
    # From the left, because `sum` compensates rounding errors in newer versions of Python.
    return EnergySummary(reduce(add, spent) / len(spent), max(spent))


# Operations


def summarise_operations(attempts: Sequence[Attempt], trace: Trace) -> dict[str, OperationSummary]:
    """Computes success and latency by kind of operation.

    A retrieve that finds no object has succeeded if the object was deleted or expired before.
    """
    removed_us = _removal_times_us(attempts, trace)
    kinds: dict[str, list[Attempt]] = {kind: [] for kind in OPERATION_KINDS}
    for attempt in attempts:
        kinds[attempt.kind].append(attempt)
    return {kind: _summarise_attempts(of_kind, removed_us) for kind, of_kind in kinds.items()}


def summarise_all_operations(attempts: Sequence[Attempt], trace: Trace) -> OperationSummary:
    """Computes success and latency of the operations of all kinds together."""
    return _summarise_attempts(attempts, _removal_times_us(attempts, trace))


def _removal_times_us(attempts: Sequence[Attempt], trace: Trace) -> dict[str, int]:
    """Returns the instant from which on each deleted or expiring object may be gone."""
    ttls_us = {op.oid: op.life_us for op in trace.operations if isinstance(op, InsertOperation)}
    removed_us: dict[str, int] = {}
    for attempt in attempts:
        ttl_us = ttls_us.get(attempt.name)
        if attempt.kind == "insert" and ttl_us is not None:
            removed_us[attempt.name] = attempt.issued_us + ttl_us
        elif attempt.kind == "delete":  # traces do not delete expired objects
            removed_us[attempt.name] = attempt.issued_us
    return removed_us


def _summarise_attempts(
    attempts: Sequence[Attempt], removed_us: Mapping[str, int]
) -> OperationSummary:
    succeeded = [attempt for attempt in attempts if _succeeded(attempt, removed_us)]
    failures = Counter(each.code for each in attempts if not _succeeded(each, removed_us))
    return OperationSummary(
        issued=len(attempts),
        ok=len(succeeded),
        success=len(succeeded) / len(attempts) if attempts else None,
        latency_ms=summarise_latency(
            each.ended_us - each.issued_us for each in succeeded if each.ended_us is not None
        ),
        failures=dict(sorted(failures.items())),
    )


def _succeeded(attempt: Attempt, removed_us: Mapping[str, int]) -> bool:
    if attempt.kind == "retrieve" and attempt.code == "not_found":
        since_us, ended_us = removed_us.get(attempt.name), attempt.ended_us
        return since_us is not None and ended_us is not None and since_us <= ended_us
    return attempt.code == "ok"


def summarise_latency(durations_us: Iterable[int]) -> Latency:
    """Computes the distribution of durations."""
    ordered = sorted(durations_us)
    if not ordered:
        return Latency()
    return Latency(
        mean=sum(ordered) / len(ordered) / US_PER_MS,
        p50=_quantile(ordered, 0.5) / US_PER_MS,
        p95=_quantile(ordered, 0.95) / US_PER_MS,
        max=ordered[-1] / US_PER_MS,
    )


def _quantile(ordered: Sequence[int], share: float) -> int:
    """Returns the smallest value that at least a share of the values does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


# Notifications


def summarise_notifications(run: Run) -> NotificationSummary:
    """Compares the received notifications with the expected ones."""
    due_us = _due_times_us(run)
    checker = NotificationChecker(run)
    seen: set[tuple[int, str, str]] = set()
    valid_us: dict[tuple[int, str, str], int] = {}
    spurious = duplicates = 0
    for notification in run.notifications:
        key = notification.user, notification.sid, notification.oid
        if key in seen:
            duplicates += 1
        elif checker.is_valid(notification):
            valid_us[key] = notification.told_us
        else:
            spurious += 1
        seen.add(key)
    delivered = [key for key in due_us if key in valid_us]
    return NotificationSummary(
        expected=len(due_us),
        delivered=len(delivered),
        recall=len(delivered) / len(due_us) if due_us else None,
        spurious=spurious,
        duplicates=duplicates,
        unexpected=len(valid_us) - len(delivered),
        latency_ms=summarise_latency(max(0, valid_us[key] - due_us[key]) for key in delivered),
    )


def _due_times_us(run: Run) -> dict[tuple[int, str, str], int]:
    """Returns when each expected notification is due.

    A notification is due when a perfect execution gives it; if the subscriber's device is down at
    that instant, at its next start; if the device never starts again, not at all.
    """
    origin_us = run.scenario.timeline.origin_us
    due_us: dict[tuple[int, str, str], int] = {}
    for notification in run.expected:
        at_us: int | None = origin_us + notification.at_us
        for since_us, until_us in run.downtimes.get(notification.user, []):
            if at_us is not None and since_us <= at_us and (until_us is None or at_us < until_us):
                at_us = until_us
        if at_us is not None and at_us < run.scenario.timeline.end_us:
            due_us[notification.user, notification.sid, notification.oid] = at_us
    return due_us


class NotificationChecker:
    """Checks whether received notifications are valid (M23)."""

    def __init__(self, run: Run) -> None:
        self._origin_us = run.scenario.timeline.origin_us
        operations = run.trace.operations
        self._inserts = {op.oid: op for op in operations if isinstance(op, InsertOperation)}
        self._subscribes = {op.sid: op for op in operations if isinstance(op, SubscribeOperation)}
        done_us = {
            (each.kind, each.name): each.ended_us
            for each in run.attempts
            if each.code == "ok" and each.ended_us is not None
        }
        self._deleted_us = {
            op.oid: done_us.get(("delete", op.oid))
            for op in operations
            if isinstance(op, DeleteOperation)
        }
        self._revoked_us = {
            op.sid: done_us.get(("unsubscribe", op.sid))
            for op in operations
            if isinstance(op, UnsubscribeOperation)
        }

    def is_valid(self, notification: ReceivedNotification) -> bool:
        """Whether a notification is valid.

        The object matches, lies in the time frame, and was neither deleted nor expired before the
        subscription; and the subscription was not revoked before the notification.
        """
        insert, subscribe = (
            self._inserts.get(notification.oid),
            self._subscribes.get(notification.sid),
        )
        if insert is None or subscribe is None or subscribe.user != notification.user:
            return False
        if not any(conjunction.matches(insert.tags) for conjunction in subscribe.conjunctions):
            return False
        if not subscribe.shift_frame(self._origin_us).contains(notification.published_us):
            return False
        subscribed_us = self._origin_us + subscribe.at_us
        if (
            insert.life_us is not None
            and notification.published_us + insert.life_us <= subscribed_us
        ):
            return False
        deleted_us = self._deleted_us.get(notification.oid)
        if deleted_us is not None and deleted_us < subscribed_us:
            return False
        revoked_us = self._revoked_us.get(notification.sid)
        return revoked_us is None or notification.told_us <= revoked_us


# The analytical model


def _network_size(scenario: Scenario) -> NetworkSize:
    """Returns the network size that the formulas need; only DCS needs cells."""
    if scenario.substrate is not Substrate.DCS:
        return NetworkSize(nodes=scenario.nodes)
    grid = grid_over(scenario.area)
    return expected_network_size(scenario.nodes, grid.columns * grid.rows)


def _compare_with_model(run: Run) -> ModelComparison:
    workload = workload_of(run.trace, run.expected, run.scenario.reaction.probability)
    size = _network_size(run.scenario)
    simulated: Counter[str] = Counter()
    for kind, load in run.measurements.loads.items():
        simulated[PARTS.get(innermost(kind), UPKEEP)] += load.sent
    return ModelComparison(
        formula=estimate_messages(Approach(run.scenario.substrate.value), workload, size),
        simulated=dict(sorted(simulated.items())),
    )
