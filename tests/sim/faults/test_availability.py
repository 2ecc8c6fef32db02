"""S7, S15: the operations of a trace that remain for users whose devices go off and on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.sim.runs import delete, insert, subscribe, trace, unsubscribe
from tests.traces.strategies import USERS, traces
from thyme.model.time_frames import SECOND_US
from thyme.sim.faults.availability import downtimes, feasible_trace, is_down
from thyme.sim.faults.schedule import Crash, Fault, FaultSchedule, Leave, Restart, make_schedule
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.trace import Trace

ORIGIN_US = 5


@st.composite
def schedules(draw: st.DrawFn) -> FaultSchedule:
    """Devices go off and come back, also before the operations begin."""
    faults: list[Fault] = []
    for node in range(USERS):
        instants = sorted(draw(st.sets(st.integers(0, 20), max_size=6)))
        go = draw(st.sampled_from([Crash, Leave]))
        faults += [
            go(at_us, node) if place % 2 == 0 else Restart(at_us, node)
            for place, at_us in enumerate(instants)
        ]
    return make_schedule(faults, nodes=USERS)


def up(schedule: FaultSchedule, node: int, at_us: int) -> bool:
    """Brute force: the state of a device after the last event before an instant."""
    is_up = True
    for fault in schedule:
        assert isinstance(fault, Crash | Leave | Restart)
        if fault.node == node and fault.at_us <= at_us:
            is_up = isinstance(fault, Restart)
    return is_up


def left(whole: Trace, schedule: FaultSchedule) -> list[Operation]:
    """Brute force: an operation is executed if the device is up and the operations it depends on
    were."""
    kept: list[Operation] = []
    for operation in whole.operations:
        done = up(schedule, operation.user, ORIGIN_US + operation.at_us)
        match operation:
            case DeleteOperation():
                done &= any(
                    isinstance(it, InsertOperation) and it.oid == operation.oid for it in kept
                )
            case UnsubscribeOperation():
                done &= any(
                    isinstance(it, SubscribeOperation) and it.sid == operation.sid for it in kept
                )
        if done:
            kept.append(operation)
    return kept


@given(traces(), schedules())
def test_what_is_left_is_what_brute_force_leaves_and_a_sound_trace(
    whole: Trace, schedule: FaultSchedule
) -> None:
    found = feasible_trace(whole, schedule, ORIGIN_US)

    assert list(found.operations) == left(whole, schedule)
    assert Trace(whole.users, found.operations) == found  # which would refuse an invalid trace


@given(schedules(), st.integers(0, USERS - 1), st.integers(0, 25))
def test_a_device_is_down_from_its_crash_until_its_restart(
    schedule: FaultSchedule, node: int, at_us: int
) -> None:
    assert is_down(downtimes(schedule).get(node, []), at_us) is not up(schedule, node, at_us)


def test_where_nobody_fails_the_trace_stays_what_it_is() -> None:
    whole = trace(1, insert(1, 0, "o"))

    assert feasible_trace(whole, make_schedule(nodes=1), ORIGIN_US) is whole


def test_nobody_deletes_or_revokes_what_was_never_there() -> None:
    """Also if an object and a subscription have the same name."""
    whole = trace(
        2,
        insert(1, 0, "x"),
        subscribe(3, 0, "x"),
        unsubscribe(6, 0, "x"),
        subscribe(1, 1, "y"),
        insert(3, 1, "y"),
        delete(6, 1, "y"),
    )
    off = [Crash(2 * SECOND_US, node) for node in (0, 1)]
    on = [Restart(4 * SECOND_US, node) for node in (0, 1)]

    assert feasible_trace(whole, make_schedule(off, on, nodes=2), 0) == trace(
        2, insert(1, 0, "x"), subscribe(1, 1, "y")
    )
