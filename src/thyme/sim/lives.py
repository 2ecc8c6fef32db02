"""Lives: when devices are up, and what is left of a trace for users whose devices are not.

A user does nothing while its device is down; what it would have done is not done later, and what
depends on it is not done at all (nobody deletes what was never inserted). So the trace that an
execution can be held against is known before it is run.
Clauses: S7, S15.
"""

from __future__ import annotations

from thyme.sim.faults import Crash, Leave, Restart, Schedule
from thyme.traces.operations import Delete, Insert, Operation, Subscribe, Unsubscribe
from thyme.traces.trace import Trace

Span = tuple[int, int | None]
"""From an instant to another, which is the first one outside; None is never."""


def downtimes(schedule: Schedule) -> dict[int, list[Span]]:
    """When each device is down, for those that ever are."""
    down: dict[int, list[Span]] = {}
    for fault in schedule:
        match fault:
            case Crash() | Leave():
                down.setdefault(fault.node, []).append((fault.at_us, None))
            case Restart():
                since_us, _ = down[fault.node][-1]
                down[fault.node][-1] = (since_us, fault.at_us)
    return down


def is_down(spans: list[Span], at_us: int) -> bool:
    """Whether an instant is in one of the spans; at its first instant a device is down already."""
    return any(
        since_us <= at_us and (until_us is None or at_us < until_us) for since_us, until_us in spans
    )


def lived(trace: Trace, schedule: Schedule, origin_us: int) -> Trace:
    """What users do whose devices go by a schedule; operations begin at `origin_us` of the run."""
    down = downtimes(schedule)
    if not down:
        return trace
    done: list[Operation] = []
    objects: set[str] = set()
    subscriptions: set[str] = set()
    for operation in trace.operations:
        if is_down(down.get(operation.user, []), origin_us + operation.at_us):
            continue
        match operation:
            case Insert():
                objects.add(operation.oid)
            case Subscribe():
                subscriptions.add(operation.sid)
            case Delete() if operation.oid not in objects:
                continue
            case Unsubscribe() if operation.sid not in subscriptions:
                continue
        done.append(operation)
    return Trace(trace.users, tuple(done))
