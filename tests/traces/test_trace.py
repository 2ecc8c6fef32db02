"""S10: a trace that exists is sound, and can be cut where users crash."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.traces.strategies import USERS, traces
from thyme.model.errors import InputError
from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    SubscribeOperation,
    TraceError,
    UnsubscribeOperation,
)
from thyme.traces.trace import Trace, merge_users, truncate_at_crashes

INSERT = InsertOperation(1, 0, "x", as_tags(["goal"]), 3)


def test_an_unsound_operation_is_named() -> None:
    with pytest.raises(TraceError) as refused:
        Trace(2, (INSERT, DeleteOperation(2, 1, "x")))
    assert str(refused.value) == "operation 1, user: x belongs to user 0: 1 may not delete it"
    again = pickle.loads(pickle.dumps(refused.value))
    assert (again.field, again.problem) == (refused.value.field, refused.value.problem)
    with pytest.raises(InputError, match="at least one user"):
        Trace(0, ())


def test_operations_are_counted_by_kind() -> None:
    trace = Trace(
        1, (INSERT, SubscribeOperation(2, 0, "s", "goal"), UnsubscribeOperation(2, 0, "s"))
    )
    assert trace.counts() == {"insert": 1, "delete": 0, "subscribe": 1, "unsubscribe": 1}
    assert len(trace) == 3


def test_what_users_do_is_merged_by_time_then_by_user() -> None:
    early, late = SubscribeOperation(1, 1, "s", "goal"), DeleteOperation(1, 0, "x")
    assert merge_users(2, [early, INSERT, late]).operations == (INSERT, late, early)


def test_a_frame_moves_with_the_start_of_the_operations() -> None:
    subscribe = SubscribeOperation(5, 0, "s", "goal", TimeFrame(5, None))
    assert subscribe.shift_frame(60) == TimeFrame(65, None)
    assert SubscribeOperation(5, 0, "s", "goal", TimeFrame(None, 7)).shift_frame(60) == TimeFrame(
        None, 67
    )


def test_a_text_that_is_no_text_is_refused() -> None:
    with pytest.raises(TraceError, match="text: cannot be written as UTF-8 at character 1"):
        InsertOperation(0, 0, "x", as_tags(["goal"]), 4, 0, "a\ud800")


@given(traces(), st.dictionaries(st.integers(0, USERS - 1), st.integers(0, 12)))
def test_s7_who_crashed_does_nothing_more_and_the_rest_is_sound(
    trace: Trace, crashes_us: dict[int, int]
) -> None:
    left = truncate_at_crashes(trace, crashes_us)
    gone = [each for each in trace.operations if each not in left.operations]
    assert all(each.at_us < crashes_us.get(each.user, 99) for each in left.operations)
    assert all(each.at_us >= crashes_us[each.user] for each in gone)
