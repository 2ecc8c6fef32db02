"""The oracle said plainly: every subscription beside every object."""

from __future__ import annotations

from thyme.query.query import Query
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.oracle import Expected
from thyme.traces.trace import Trace


def plain_notifications(trace: Trace) -> list[Expected]:
    """What a perfect execution notifies."""
    rows = list(enumerate(trace.operations))
    deleted = {each.oid: row for row, each in rows if isinstance(each, DeleteOperation)}
    revoked = {each.sid: row for row, each in rows if isinstance(each, UnsubscribeOperation)}
    never = len(rows)
    found = []
    for sub_row, sub in rows:
        if not isinstance(sub, SubscribeOperation):
            continue
        query = Query(sub.query)
        for row, obj in rows:
            if not isinstance(obj, InsertOperation) or not query.matches(obj.tags):
                continue
            if not sub.frame.contains(obj.at_us):
                continue
            past = row < sub_row
            if past:
                there = sub_row < deleted.get(obj.oid, never) and not obj.has_expired(sub.at_us)
            else:
                there = row < revoked.get(sub.sid, never)
            if there:
                at_us = max(sub.at_us, obj.at_us)
                found.append(Expected(at_us, sub.user, sub.sid, obj.oid, obj.user, past))
    return sorted(found)
