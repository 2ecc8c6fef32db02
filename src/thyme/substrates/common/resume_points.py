"""Resume points: how far back a subscription must read after a restart of its subscriber.

Entry point: `ResumePoints`. A resumed subscription reads the objects published since the newest one
that its application consumed. Missed objects are emitted later than newer ones, so those that were
emitted and not consumed may be older; the store keeps the earliest of their publication times.
Clauses: M27, M34.
"""

from __future__ import annotations

import msgspec

from thyme.model.ids import Key, SubscriptionId
from thyme.storage.store import RecordTable, Store


class ResumePoint(msgspec.Struct, frozen=True, array_like=True):
    """A publication time from which on objects may not have been consumed."""

    sid: SubscriptionId
    since_us: int


RESUME_POINTS = RecordTable("resume point", ResumePoint)


class ResumePoints:
    """The missed objects of all subscriptions that were emitted and not consumed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unconsumed: dict[SubscriptionId, dict[Key, int]] = {}
        self._stored = {point.sid: point.since_us for _, point in store.load(RESUME_POINTS)}

    def since_us(self, sid: SubscriptionId) -> int | None:
        """The publication time from which on a subscription must read; None if it is not known."""
        return self._stored.get(sid)

    def add(self, sid: SubscriptionId, key: Key, published_us: int) -> None:
        """Adds an object that was missed before and is emitted now."""
        self._unconsumed.setdefault(sid, {})[key] = published_us
        stored_us = self._stored.get(sid)
        if stored_us is None or published_us < stored_us:
            self._stored[sid] = published_us
            self._store.put(RESUME_POINTS, sid, ResumePoint(sid, published_us))

    def discard(self, sid: SubscriptionId, key: Key) -> None:
        """Removes an object that was consumed, or refused by the application."""
        unconsumed = self._unconsumed.get(sid)
        if unconsumed is not None and unconsumed.pop(key, None) is not None and not unconsumed:
            self.remove(sid)

    def remove_if_consumed(self, sid: SubscriptionId) -> None:
        """Removes the resume point of a subscription that has read everything, if all objects from
        there on are consumed."""
        if not self._unconsumed.get(sid):
            self.remove(sid)

    def remove(self, sid: SubscriptionId) -> None:
        """Removes the resume point of a subscription."""
        self._unconsumed.pop(sid, None)
        if self._stored.pop(sid, None) is not None:
            self._store.remove(RESUME_POINTS, sid)
