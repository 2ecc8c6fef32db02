"""Oracle: the notifications of a perfect execution, in which each operation succeeds at once.

Entry point: `expected_notifications`; recall is measured against its result. As in a broker, a new
object is matched with the active subscriptions, and a new subscription with the stored objects, so
deleted and expired objects do not match later subscriptions. A user is notified of its own objects,
too; each object is notified at most once per subscription. Subscribers are assumed to read all past
matches, in any number of pages. `pipeline.oracle` computes the same on Spark.
Clauses: S15, P4, M10, M11, M14–M16, M18, M29.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

import msgspec

from thyme.model.subscriptions import Conjunction
from thyme.model.tags import Tag
from thyme.query.subscription_index.index import SubscriptionIndex
from thyme.traces.operations import (
    DeleteOperation,
    InsertOperation,
    Operation,
    SubscribeOperation,
    UnsubscribeOperation,
)
from thyme.traces.trace import Trace


class Expected(msgspec.Struct, frozen=True, order=True):
    """One notification of a perfect execution."""

    at_us: int
    user: int
    """The subscriber."""
    sid: str
    oid: str
    owner: int
    """The user who inserted the object."""
    past: bool
    """Whether the object was inserted before the subscription."""


def expected_notifications(trace: Trace) -> list[Expected]:
    """Every expected notification, sorted by instant, subscriber and ids."""
    broker = _PerfectBroker()
    return sorted(each for operation in trace.operations for each in broker.apply(operation))


class _PerfectBroker:
    """A broker without a network: stored objects and active subscriptions."""

    def __init__(self) -> None:
        self._objects: dict[str, InsertOperation] = {}
        self._by_tag: dict[Tag, dict[str, InsertOperation]] = {}
        self._subscriptions: SubscriptionIndex[SubscribeOperation] = SubscriptionIndex()

    def apply(self, operation: Operation) -> Iterator[Expected]:
        match operation:
            case InsertOperation():
                return self._insert(operation)
            case DeleteOperation():
                self._delete(operation.oid)
            case SubscribeOperation():
                return self._subscribe(operation)
            case UnsubscribeOperation():
                self._subscriptions.remove(operation.sid)
            case _:
                assert_never(operation)
        return iter(())

    def _insert(self, insert: InsertOperation) -> Iterator[Expected]:
        self._objects[insert.oid] = insert
        for tag in insert.tags:
            self._by_tag.setdefault(tag, {})[insert.oid] = insert
        self._subscriptions.expire(insert.at_us)
        for subscribe in self._subscriptions.match(insert.tags, insert.at_us):
            yield _make_expected(subscribe, insert, insert.at_us, past=False)

    def _delete(self, oid: str) -> None:
        for tag in self._objects.pop(oid).tags:
            del self._by_tag[tag][oid]

    def _subscribe(self, subscribe: SubscribeOperation) -> Iterator[Expected]:
        now_us, frame = subscribe.at_us, subscribe.frame
        conjunctions = subscribe.conjunctions
        if not frame.has_ended(now_us):
            self._subscriptions.add(subscribe.sid, subscribe, conjunctions, frame, now_us)
        found: dict[str, InsertOperation] = {}
        for conjunction in conjunctions:
            found |= self._find_matching(conjunction)
        for insert in found.values():
            if frame.contains(insert.at_us) and not insert.has_expired(now_us):
                yield _make_expected(subscribe, insert, now_us, past=True)

    def _find_matching(self, conjunction: Conjunction) -> dict[str, InsertOperation]:
        """The objects that satisfy a conjunction, searched among those with its rarest tag."""
        held = [self._by_tag.get(tag, {}) for tag in conjunction.positive]
        rarest = min(held, key=len)
        if conjunction.negative or len(held) > 1:
            return {
                oid: insert for oid, insert in rarest.items() if conjunction.matches(insert.tags)
            }
        return rarest


def _make_expected(
    subscribe: SubscribeOperation, insert: InsertOperation, at_us: int, *, past: bool
) -> Expected:
    return Expected(at_us, subscribe.user, subscribe.sid, insert.oid, insert.user, past)
