"""Subscriber: a node's own subscriptions, and what it has heard for each.

Drops what it heard before (M16), holds news back until the application knows the subscription,
remembers what the application took so that a later life of the node can go on from there (M27),
and ends each subscription when its frame ends (M18). Asking brokers is the business of `client`
and `past`.
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
    """A subscriber's settings."""

    skew_us: int = 0
    subscriptions_max: int = 10_000
    over_max: int = 1_000
    """How many subscriptions that are over are kept for reading on in their past."""
    seen_max: int = 100_000
    """How many objects a subscription remembers to have been told, against duplicates."""
    sources_max: int = 10_000
    """How many brokers a subscription reads on from in their past."""


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """A notification that the application took."""

    sid: SubscriptionId
    key: Key
    published_us: int


class EndOfFrame(msgspec.Struct, frozen=True):
    """The timer at a subscription's end."""

    sid: SubscriptionId


OWN = Shelf("own subscription", Held)
TAKEN = Shelf("taken", Taken)


class Place(msgspec.Struct, frozen=True):
    """How far into the past one broker has been read, and whether it has older ones."""

    before: Cursor | None
    more: bool


@dataclass(slots=True)
class Own:
    """One of this node's subscriptions."""

    subscription: Subscription
    batch: int
    attached: bool
    """Whether the application listens; not so for those of an earlier life until resumed."""
    begun: bool = False
    readings: int = 0
    places: dict[Source, Place] | None = None
    """How far each broker has been read; None until the first batch has come."""
    after_first: list[Callable[[int], None]] = field(default_factory=list)
    """What waits for the first batch."""
    newest_taken_us: int | None = None
    paused: bool = False
    missed_us: int | None = None
    """The oldest publication that was not told because of a pause."""
    seen: dict[Key, int] = field(default_factory=dict)
    held_back: list[Metadata] = field(default_factory=list)

    @property
    def sid(self) -> SubscriptionId:
        return self.subscription.key.sid


class Subscriber:
    """The subscriptions of one node, seen from its application's side."""

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
        """A subscription of this node, also one that is over but still read from."""
        return self._own.get(sid) or self._over.get(sid)

    def full(self) -> bool:
        """Whether one more would be too many."""
        return len(self._own) >= self._config.subscriptions_max

    def held(self) -> tuple[Held, ...]:
        """The subscriptions that are not over."""
        return tuple(_held(own) for own in self._own.values())

    def open(self, subscription: Subscription, batch: int) -> Own:
        """Prepares for a subscription that is about to be asked for."""
        own = Own(vouched(subscription, self._notary), batch, attached=True)
        self._own[own.sid] = own
        return own

    def begin(self, own: Own, now_us: int) -> None:
        """The broker has it: from now on news go to the application."""
        own.begun = own.attached = True
        end_us = own.subscription.frame.end_us
        if end_us is None or end_us + self._config.skew_us >= now_us:
            self._store.put(OWN, own.sid, _held(own))
        self.set_timer(own)
        held_back, own.held_back = own.held_back, []
        for metadata in held_back:
            self._tell(own, metadata, now_us, past=False)

    def set_timer(self, own: Own) -> None:
        """Asks for the instant after the last that belongs to the frame."""
        end_us = own.subscription.frame.end_us
        if end_us is not None:
            self._outbox.set_timer(EndOfFrame(own.sid), end_us + self._config.skew_us + 1)

    def set_timers(self) -> None:
        """After a start: the ends of subscriptions from before."""
        for own in self._own.values():
            self.set_timer(own)

    def on_notify(self, sid: SubscriptionId, metadata: Metadata, now_us: int) -> bool:
        """News from a broker; False if no such subscription is known here."""
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
        """A page of the past; returns how many of it were new."""
        return sum(self._tell(own, metadata, now_us, past=True) for metadata in items)

    def read_to(self, own: Own, places: Mapping[Source, Place]) -> None:
        """Remembers how far into the past this subscription has read."""
        own.places = {} if own.places is None else own.places
        for source, place in places.items():
            known = own.places.get(source)
            if known is None and len(own.places) >= self._config.sources_max:
                continue
            if known is None or not place.more or _further(place, known):
                own.places[source] = place

    def take(self, sid: SubscriptionId, key: Key) -> None:
        """The application took a notification."""
        own = self._own.get(sid)
        if own is None or key not in own.seen:
            return
        published_us = own.seen[key]
        self._store.put(TAKEN, _taken_key(sid, key), Taken(sid, key, published_us))
        own.newest_taken_us = max(published_us, own.newest_taken_us or published_us)

    def resumes_from_us(self, own: Own) -> int | None:
        """How far back a resumed subscription reads: an object stamped a little before the last
        one taken may have arrived a little after it (M12)."""
        newest_us = own.newest_taken_us
        return None if newest_us is None else newest_us - self._config.skew_us

    def pause(self, sid: SubscriptionId) -> None:
        """The application has no room: what comes is left for later."""
        if (own := self._own.get(sid)) is not None:
            own.paused = True

    def unpause(self, own: Own, refused: tuple[Key, ...]) -> int | None:
        """There is room again; returns how far back to read, None if nothing was missed."""
        for key in refused:
            if (published_us := own.seen.pop(key, None)) is not None:
                own.missed_us = min(published_us, own.missed_us or published_us)
        missed_us, own.missed_us, own.paused = own.missed_us, None, False
        return missed_us

    def caught_up(self, own: Own, total: int, code: str, now_us: int) -> None:
        """Tells that the past has been told as far as it was asked for, or could be had."""
        self._outbox.tell(CaughtUp(own.sid, total, code))
        own.places = {} if own.places is None else own.places
        waiting, own.after_first = own.after_first, []
        for go_on in waiting:
            go_on(now_us)

    def on_end_of_frame(self, sid: SubscriptionId, now_us: int) -> None:
        """The frame is over: nothing new can come."""
        own = self.get(sid)
        if own is not None and own.subscription.frame.over(now_us - self._config.skew_us):
            self.end(own, "its frame is over")

    def end(self, own: Own, reason: str) -> None:
        """Frees a subscription, except for what reading on in its past needs."""
        if own.readings or self._own.pop(own.sid, None) is None:
            return
        self._forget(own)
        if own.attached:
            self._over[own.sid] = own
            self._outbox.tell(SubscriptionOver(own.sid, reason))
        if len(self._over) > self._config.over_max:
            del self._over[next(iter(self._over))]

    def cancel(self, own: Own, reason: str = "cancelled") -> None:
        """Forgets a subscription at once."""
        own.readings = 0
        self.end(own, reason)
        self._over.pop(own.sid, None)
        self._outbox.cancel_timer(EndOfFrame(own.sid))

    def end_all(self, reason: str) -> None:
        """Ends every subscription: the world is over."""
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
        """Asserts what must hold between any two inputs."""
        assert len(self._own) <= self._config.subscriptions_max
        assert len(self._over) <= self._config.over_max
        assert all(len(own.seen) <= self._config.seen_max for own in self._own.values())


def _held(own: Own) -> Held:
    subscription = own.subscription
    return Held(own.sid, subscription.conjunctions, subscription.frame, own.batch)


def _further(place: Place, known: Place) -> bool:
    """Whether a place lies further in the past than the one known."""
    return known.before is None or (place.before is not None and place.before <= known.before)


def _taken_key(sid: SubscriptionId, key: Key) -> str:
    return f"{sid} {key}"
