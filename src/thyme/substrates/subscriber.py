"""Subscriber: the state of a node's own subscriptions, and their notifications.

Entry point: `Subscriber`. Drops duplicate notifications (M16), buffers notifications until the
application knows the subscription, stores which notifications the application consumed so that it
can resume after a restart (M27), and ends each subscription when its time frame ends (M18).
Requests to brokers are sent by `client` and `history_reader`.
Clauses: M12, M16, M18, M27.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.records import Notary, vouched
from thyme.model.subscriptions import Notification, Subscription, SubscriptionKey
from thyme.protocol.outbox import Outbox
from thyme.protocol.requests import CaughtUp, Held, Notified, SubscriptionOver
from thyme.query.cursor import Cursor
from thyme.storage.store import Shelf, Store
from thyme.substrates.brokers import Source


class SubscriberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a subscriber."""

    skew_us: int = 0
    subscriptions_max: int = 10_000
    over_max: int = 1_000
    """Maximum number of ended subscriptions kept for reading their stored matches."""
    seen_max: int = 100_000
    """Maximum number of emitted objects that a subscription remembers, against duplicates."""
    sources_max: int = 10_000
    """Maximum number of brokers whose read position a subscription keeps."""


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """A notification that the application consumed."""

    sid: SubscriptionId
    key: Key
    published_us: int


class EndOfFrame(msgspec.Struct, frozen=True):
    """Timer at the end of a subscription's time frame."""

    sid: SubscriptionId


OWN = Shelf("own subscription", Held)
TAKEN = Shelf("taken", Taken)


class Place(msgspec.Struct, frozen=True):
    """How far back the history of one broker has been read, and whether it has older items."""

    before: Cursor | None
    more: bool


@dataclass(slots=True)
class Own:
    """State of one subscription of this node."""

    subscription: Subscription
    batch: int
    attached: bool
    """Whether the application receives its events; False after a restart until resumed."""
    begun: bool = False
    readings: int = 0
    places: dict[Source, Place] | None = None
    """Read position of each broker; None until the first pages were read."""
    after_first: list[Callable[[int], None]] = field(default_factory=list)
    """Functions to call once the first pages were read."""
    newest_taken_us: int | None = None
    paused: bool = False
    missed_us: int | None = None
    """Publication time of the oldest object not emitted because of a pause."""
    seen: dict[Key, int] = field(default_factory=dict)
    held_back: list[Metadata] = field(default_factory=list)

    @property
    def sid(self) -> SubscriptionId:
        return self.subscription.key.sid


class Subscriber:
    """The own subscriptions of one node."""

    def __init__(
        self,
        node_id: NodeId,
        outbox: Outbox,
        store: Store,
        config: SubscriberConfig,
        notary: Notary | None = None,
    ) -> None:
        self._node_id = node_id
        self._notary = notary
        self._outbox = outbox
        self._store = store
        self._config = config
        self._own: dict[SubscriptionId, Own] = {}
        self._over: dict[SubscriptionId, Own] = {}
        self.duplicates = 0
        self.spurious = 0
        self._restore()

    def __len__(self) -> int:
        return len(self._own)

    def get(self, sid: SubscriptionId) -> Own | None:
        """A subscription of this node, active or ended but still readable; None if unknown."""
        return self._own.get(sid) or self._over.get(sid)

    def full(self) -> bool:
        """Whether the maximum number of subscriptions is reached."""
        return len(self._own) >= self._config.subscriptions_max

    def held(self) -> tuple[Held, ...]:
        """The active subscriptions of this node."""
        return tuple(_held(own) for own in self._own.values())

    def open(self, subscription: Subscription, batch: int) -> Own:
        """Adds and signs a subscription before it is sent to brokers."""
        own = Own(vouched(subscription, self._notary), batch, attached=True)
        self._own[own.sid] = own
        return own

    def begin(self, own: Own, now_us: int) -> None:
        """Stores a subscription that brokers have activated, and emits buffered notifications."""
        own.begun = own.attached = True
        end_us = own.subscription.frame.end_us
        if end_us is None or end_us + self._config.skew_us >= now_us:
            self._store.put(OWN, own.sid, _held(own))
        self.set_timer(own)
        held_back, own.held_back = own.held_back, []
        for metadata in held_back:
            self._tell(own, metadata, now_us, past=False)

    def set_timer(self, own: Own) -> None:
        """Sets the timer at the end of a subscription's time frame."""
        end_us = own.subscription.frame.end_us
        if end_us is not None:
            self._outbox.set_timer(EndOfFrame(own.sid), end_us + self._config.skew_us + 1)

    def set_timers(self) -> None:
        """Sets the timers of all stored subscriptions, after a start."""
        for own in self._own.values():
            self.set_timer(own)

    def on_notify(self, sid: SubscriptionId, metadata: Metadata, now_us: int) -> bool:
        """Handles a notification from a broker; returns False if the subscription is unknown."""
        own = self._own.get(sid)
        if own is None:
            return sid in self._over
        if own.attached:
            if own.begun:
                self._tell(own, metadata, now_us, past=False)
            elif len(own.held_back) < self._config.seen_max:
                own.held_back.append(metadata)
        return True

    def tell_past(self, own: Own, items: Sequence[Metadata], now_us: int) -> int:
        """Emits stored matches; returns how many of them were new."""
        return sum(self._tell(own, metadata, now_us, past=True) for metadata in items)

    def read_to(self, own: Own, places: Mapping[Source, Place]) -> None:
        """Saves the read positions of a subscription, if they are further back than before."""
        own.places = {} if own.places is None else own.places
        for source, place in places.items():
            known = own.places.get(source)
            if known is None and len(own.places) >= self._config.sources_max:
                continue
            if known is None or not place.more or _further(place, known):
                own.places[source] = place

    def take(self, sid: SubscriptionId, key: Key) -> None:
        """Records that the application consumed a notification."""
        own = self._own.get(sid)
        if own is None or key not in own.seen:
            return
        published_us = own.seen[key]
        self._store.put(TAKEN, _taken_key(sid, key), Taken(sid, key, published_us))
        own.newest_taken_us = max(published_us, own.newest_taken_us or published_us)

    def resumes_from_us(self, own: Own) -> int | None:
        """The time back to which a resumed subscription reads.

        Includes the clock skew: an object with a slightly earlier timestamp than the last consumed
        one may have arrived later (M12).
        """
        newest_us = own.newest_taken_us
        return None if newest_us is None else newest_us - self._config.skew_us

    def pause(self, sid: SubscriptionId) -> None:
        """Stops emitting notifications, because the application's buffer is full."""
        if (own := self._own.get(sid)) is not None:
            own.paused = True

    def unpause(self, own: Own, refused: tuple[Key, ...]) -> int | None:
        """Continues after a pause; returns how far back to read, None if nothing was missed."""
        for key in refused:
            if (published_us := own.seen.pop(key, None)) is not None:
                own.missed_us = min(published_us, own.missed_us or published_us)
        missed_us, own.missed_us, own.paused = own.missed_us, None, False
        return missed_us

    def caught_up(self, own: Own, total: int, code: str, now_us: int) -> None:
        """Emits `CaughtUp`: the requested stored matches were emitted, as far as available."""
        self._outbox.tell(CaughtUp(own.sid, total, code))
        own.places = {} if own.places is None else own.places
        callbacks, own.after_first = own.after_first, []
        for callback in callbacks:
            callback(now_us)

    def on_end_of_frame(self, sid: SubscriptionId, now_us: int) -> None:
        """Ends a subscription if its time frame has ended."""
        own = self.get(sid)
        if own is not None and own.subscription.frame.over(now_us - self._config.skew_us):
            self.end(own, "its frame is over")

    def end(self, own: Own, reason: str) -> None:
        """Ends a subscription; its read state is kept so that stored matches can still be read."""
        if own.readings or self._own.pop(own.sid, None) is None:
            return
        self._forget(own)
        if own.attached:
            self._over[own.sid] = own
            self._outbox.tell(SubscriptionOver(own.sid, reason))
        if len(self._over) > self._config.over_max:
            del self._over[next(iter(self._over))]

    def cancel(self, own: Own, reason: str = "cancelled") -> None:
        """Ends a subscription at once, and removes its read state."""
        own.readings = 0
        self.end(own, reason)
        self._over.pop(own.sid, None)
        self._outbox.cancel_timer(EndOfFrame(own.sid))

    def end_all(self, reason: str) -> None:
        """Ends all subscriptions, because the world has ended."""
        for own in list(self._own.values()):
            self.cancel(own, reason)

    def _tell(self, own: Own, metadata: Metadata, now_us: int, *, past: bool) -> bool:
        if metadata.key in own.seen:
            self.duplicates += 1
            return False
        if not own.subscription.wants(metadata):
            self.spurious += 1
            return False
        if own.paused:
            own.missed_us = min(metadata.published_us, own.missed_us or metadata.published_us)
            return False
        own.seen[metadata.key] = metadata.published_us
        if len(own.seen) > self._config.seen_max:
            oldest = next(iter(own.seen))
            del own.seen[oldest]
            self._store.remove(TAKEN, _taken_key(own.sid, oldest))
        self._outbox.tell(Notified(Notification(own.sid, metadata, now_us, past)))
        return True

    def _restore(self) -> None:
        for _, held in self._store.load(OWN):
            key = SubscriptionKey(held.sid, self._node_id)
            subscription = vouched(Subscription(key, held.conjunctions, held.frame), self._notary)
            self._own[held.sid] = Own(subscription, held.batch, attached=False)
        for text, taken in self._store.load(TAKEN):
            own = self._own.get(taken.sid)
            if own is None:
                self._store.remove(TAKEN, text)
                continue
            own.seen[taken.key] = taken.published_us
            own.newest_taken_us = max(taken.published_us, own.newest_taken_us or taken.published_us)

    def _forget(self, own: Own) -> None:
        self._store.remove(OWN, own.sid)
        for key in own.seen:
            self._store.remove(TAKEN, _taken_key(own.sid, key))

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._own) <= self._config.subscriptions_max
        assert len(self._over) <= self._config.over_max
        assert all(len(own.seen) <= self._config.seen_max for own in self._own.values())


def _held(own: Own) -> Held:
    subscription = own.subscription
    return Held(own.sid, subscription.conjunctions, subscription.frame, own.batch)


def _further(place: Place, known: Place) -> bool:
    """Whether a read position is as far back as the known one, or further."""
    return known.before is None or (place.before is not None and place.before <= known.before)


def _taken_key(sid: SubscriptionId, key: Key) -> str:
    return f"{sid} {key}"
