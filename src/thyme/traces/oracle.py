"""Oracle: the notifications of a perfect execution, in which every operation succeeds at once.

Recall is measured against these. As in a broker, a new object is matched with the subscriptions
that stand and a new subscription with the objects that are there, so an object that was deleted or
has expired is not told to those who come later; a user hears of its own objects, too; and each
object is told at most once per subscription. A subscriber is taken to ask for all of its past, in
however many batches.
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
    """One notification that a perfect execution gives."""

    at_us: int
    user: int
    """The subscriber."""
    sid: str
    oid: str
    owner: int
    """The user who inserted the object."""
    past: bool
    """Whether the object was there before the subscription."""


def expected_notifications(trace: Trace) -> list[Expected]:
    """Every notification that is due, in order of its instant, subscriber and names."""
    perfect = _Perfect()
    return sorted(note for operation in trace.operations for note in perfect.take(operation))


class _Perfect:
    """A broker without a network: what is there, and what stands."""

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
        """The objects that satisfy a conjunction, looked for under its rarest tag."""
        held = [self._by_tag.get(tag, {}) for tag in conjunction.positive]
        rarest = min(held, key=len)
        if conjunction.negative or len(held) > 1:
            return {
                oid: insert for oid, insert in rarest.items() if conjunction.matches(insert.tags)
            }
        return rarest


def _expected(subscribe: Subscribe, insert: Insert, at_us: int, *, past: bool) -> Expected:
    return Expected(at_us, subscribe.user, subscribe.sid, insert.oid, insert.user, past)
