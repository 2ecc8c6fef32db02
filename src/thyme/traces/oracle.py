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
from thyme.query.standing import StandingIndex
from thyme.traces.operations import Delete, Insert, Operation, Subscribe, Unsubscribe
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
    perfect = _Perfect()
    return sorted(each for operation in trace.operations for each in perfect.take(operation))


class _Perfect:
    """A broker without a network: stored objects and active subscriptions."""

    def __init__(self) -> None:
        self._objects: dict[str, Insert] = {}
        self._by_tag: dict[Tag, dict[str, Insert]] = {}
        self._standing: StandingIndex[Subscribe] = StandingIndex()

    def take(self, operation: Operation) -> Iterator[Expected]:
        match operation:
            case Insert():
                return self._insert(operation)
            case Delete():
                self._delete(operation.oid)
            case Subscribe():
                return self._subscribe(operation)
            case Unsubscribe():
                self._standing.remove(operation.sid)
            case _:
                assert_never(operation)
        return iter(())

    def _insert(self, insert: Insert) -> Iterator[Expected]:
        self._objects[insert.oid] = insert
        for tag in insert.tags:
            self._by_tag.setdefault(tag, {})[insert.oid] = insert
        self._standing.expire(insert.at_us)
        for subscribe in self._standing.match(insert.tags, insert.at_us):
            yield _expected(subscribe, insert, insert.at_us, past=False)

    def _delete(self, oid: str) -> None:
        for tag in self._objects.pop(oid).tags:
            del self._by_tag[tag][oid]

    def _subscribe(self, subscribe: Subscribe) -> Iterator[Expected]:
        now_us, frame = subscribe.at_us, subscribe.frame
        conjunctions = subscribe.conjunctions
        if not frame.over(now_us):
            self._standing.add(subscribe.sid, subscribe, conjunctions, frame, now_us)
        found: dict[str, Insert] = {}
        for conjunction in conjunctions:
            found |= self._matching(conjunction)
        for insert in found.values():
            if frame.contains(insert.at_us) and not insert.expired(now_us):
                yield _expected(subscribe, insert, now_us, past=True)

    def _matching(self, conjunction: Conjunction) -> dict[str, Insert]:
        """The objects that satisfy a conjunction, searched among those with its rarest tag."""
        held = [self._by_tag.get(tag, {}) for tag in conjunction.positive]
        rarest = min(held, key=len)
        if conjunction.negative or len(held) > 1:
            return {
                oid: insert for oid, insert in rarest.items() if conjunction.matches(insert.tags)
            }
        return rarest


def _expected(subscribe: Subscribe, insert: Insert, at_us: int, *, past: bool) -> Expected:
    return Expected(at_us, subscribe.user, subscribe.sid, insert.oid, insert.user, past)
