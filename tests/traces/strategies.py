"""Sound traces for Hypothesis, small enough that everything meets everything."""

from __future__ import annotations

from hypothesis import strategies as st

from thyme.model.tags import as_tags
from thyme.model.time_frames import TimeFrame
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    TraceError,
    UnsubscribeOperation,
)
from thyme.traces.trace import Trace, TraceValidator

USERS = 3
QUERIES = ["a", "b", "a & b", "a | b", "a & !b", "(a | c) & !b", "a & b | b & c | c", "d"]
times = st.integers(0, 12)
users = st.integers(0, USERS - 1)
ends = st.none() | st.integers(-2, 14)
texts = st.text(st.characters(codec="utf-8"), max_size=8)


@st.composite
def inserts(draw: st.DrawFn) -> InsertOperation:
    text = draw(texts)
    size = len(text.encode()) if text else draw(st.integers(0, 500))
    tags = as_tags(draw(st.sets(st.sampled_from("abcd"), min_size=1)))
    oid = f"o{draw(st.integers(0, 9))}"
    life_us = draw(st.none() | st.integers(1, 6))
    return InsertOperation(
        draw(times), draw(users), oid, tags, size, draw(st.integers(0, 9)), text, life_us
    )


@st.composite
def subscribes(draw: st.DrawFn) -> SubscribeOperation:
    start_us, end_us = draw(ends), draw(ends)
    if start_us is not None and end_us is not None:
        start_us, end_us = sorted((start_us, end_us))
    sid = f"s{draw(st.integers(0, 9))}"
    frame = TimeFrame(start_us, end_us)
    return SubscribeOperation(draw(times), draw(users), sid, draw(st.sampled_from(QUERIES)), frame)


deletes = st.builds(DeleteOperation, times, users, st.integers(0, 9).map("o{}".format))
unsubscribes = st.builds(UnsubscribeOperation, times, users, st.integers(0, 9).map("s{}".format))
operations: st.SearchStrategy[Operation] = st.one_of(
    inserts(), inserts(), subscribes(), subscribes(), deletes, unsubscribes
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Operations in order of time, without those that could not succeed."""
    drafts = sorted(draw(st.lists(operations, max_size=40)), key=lambda each: each.at_us)
    ledger = TraceValidator(USERS)
    kept: list[Operation] = []
    for draft in drafts:
        try:
            ledger.check(draft)
        except TraceError:
            continue
        kept.append(draft)
    return Trace(USERS, tuple(kept))
