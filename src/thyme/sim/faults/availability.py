"""Availability: when devices are down, and which operations of a trace are therefore not issued.

Entry points: `downtimes`, `feasible_trace`. A user issues no operation while its device is down,
and not later instead. Operations that depend on a skipped one are skipped as well: an object that
was never inserted is not deleted. The expected notifications can thus be computed before the run.
Clauses: S7, S15.
"""

from __future__ import annotations

from thyme.sim.faults.schedule import Crash, FaultSchedule, Leave, Restart
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.trace import Trace

DownSpan = tuple[int, int | None]
"""The first instant of a down time and the first instant after it; None if it does not end."""


def downtimes(schedule: FaultSchedule) -> dict[int, list[DownSpan]]:
    """Returns the down times of devices by number; devices that are always up are left out."""
    down: dict[int, list[DownSpan]] = {}
    for fault in schedule:
        match fault:
            case Crash() | Leave():
                down.setdefault(fault.node, []).append((fault.at_us, None))
            case Restart():
                since_us, _ = down[fault.node][-1]
                down[fault.node][-1] = (since_us, fault.at_us)
    return down


def is_down(spans: list[DownSpan], at_us: int) -> bool:
    """Whether a device is down at an instant; the first instant of a span counts as down."""
    return any(
        since_us <= at_us and (until_us is None or at_us < until_us) for since_us, until_us in spans
    )


def feasible_trace(trace: Trace, schedule: FaultSchedule, origin_us: int) -> Trace:
    """Removes the operations that users cannot issue because their devices are down.

    Operations begin at `origin_us` of the run.
    """
    down = downtimes(schedule)
    if not down:
        return trace
    feasible: list[Operation] = []
    objects: set[str] = set()
    subscriptions: set[str] = set()
    for operation in trace.operations:
        if is_down(down.get(operation.user, []), origin_us + operation.at_us):
            continue
        match operation:
            case InsertOperation():
                objects.add(operation.oid)
            case SubscribeOperation():
                subscriptions.add(operation.sid)
            case DeleteOperation() if operation.oid not in objects:
                continue
            case UnsubscribeOperation() if operation.sid not in subscriptions:
                continue
        feasible.append(operation)
    return Trace(trace.users, tuple(feasible))
