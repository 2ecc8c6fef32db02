"""Broker: whoever looks after objects and subscriptions, and matches one with the other.

The two triggers of notifications meet here: a new object is matched against the standing
subscriptions, a new subscription against history. Both happen at one instant, so nothing slips
through between them (M26). Which node is a broker for what, and how it is asked, is the substrate's
business.
Clauses: M11, M12, M15, M17, M18, M23, M26, B5.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from thyme.model.errors import EndedError, NotOwnerError, RejectedError
from thyme.model.frames import TimeFrame
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Limits, Metadata
from thyme.model.subscriptions import Conjunction, Subscription, SubscriptionKey
from thyme.protocol.requests import KnownObject
from thyme.query.cursor import Cursor
from thyme.query.standing import StandingIndex
from thyme.storage.store import Shelf, Store
from thyme.substrates.catalogue import Catalogue, Retention
from thyme.substrates.graveyard import Burial, Graveyard, Tombstone, earliest
from thyme.substrates.quotas import Quota, Shares


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A broker's settings."""

    skew_us: int = 0
    """How far clocks may differ (M12): stamps further ahead are refused, and a subscription
    waits this much longer for stragglers published inside its frame."""
    limits: Limits = Limits()
    retention: Retention = Retention()
    subscriptions_max: int = 1_000_000
    page_max: int = 1_000
    burial: Burial = Burial()
    metadata_only: bool = False
    """Whether the objects themselves are kept elsewhere (D11)."""
    quota: Quota = Quota()
    """What it keeps for one peer (B5)."""


class PastPage(msgspec.Struct, frozen=True):
    """Some of the past: the total, the items newest first, whether there are older ones."""

    total: int
    items: tuple[Metadata, ...]
    more: bool


SUBSCRIPTIONS = Shelf("subscription", Subscription)
BURIED_SUBSCRIPTIONS = Shelf("buried subscription", Tombstone)


class Broker:
    """Objects, standing subscriptions, and their matches."""

    def __init__(
        self, store: Store, config: BrokerConfig, now_us: int, own: NodeId | None = None
    ) -> None:
        """`own` is the node itself, for which there is no quota."""
        self._store = store
        self._config = config
        self.catalogue = Catalogue(
            store,
            config.limits,
            config.retention,
            config.burial,
            metadata_only=config.metadata_only,
            quota=config.quota,
            own=own,
        )
        self._shares = Shares("subscriptions", config.quota.subscriptions, exempt=own)
        self._graveyard = Graveyard(store, BURIED_SUBSCRIPTIONS, config.burial)
        self._standing: StandingIndex[Subscription] = StandingIndex(tolerance_us=config.skew_us)
        for _, subscription in store.load(SUBSCRIPTIONS):
            self._stand(subscription, now_us)
        self.expire(now_us)

    @property
    def subscriptions(self) -> int:
        """How many subscriptions stand."""
        return len(self._standing)

    def insert(
        self, metadata: Metadata, by: NodeId, data: bytes, now_us: int
    ) -> list[Subscription]:
        """Stores an object; returns the subscriptions to notify, none when it was here before."""
        if metadata.owner != by:
            raise NotOwnerError(f"{metadata.key} names another node as its owner")
        if metadata.published_us > now_us + self._config.skew_us:
            ahead_us = metadata.published_us - now_us
            raise RejectedError(f"{metadata.key} is stamped {ahead_us} µs ahead of this clock")
        self.expire(now_us)
        if not self.catalogue.add(metadata, data, now_us):
            return []
        return self._standing.match(metadata.tags, metadata.published_us)

    def delete(self, key: Key, by: NodeId, now_us: int, proof: bytes = b"") -> None:
        """Removes an object for its owner."""
        self.expire(now_us)
        self.catalogue.delete(key, by, now_us, proof)

    def held(self) -> Iterator[Subscription]:
        """The subscriptions that stand, in the order they came."""
        return (subscription for _, subscription in self._store.load(SUBSCRIPTIONS))

    def knows(self, key: SubscriptionKey) -> bool:
        """Whether a subscription stands here, or did so until it was cancelled."""
        return key in self._standing or self.cancelled(key)

    def standing(self, key: SubscriptionKey) -> Subscription | None:
        """A subscription that stands here."""
        return self._standing.get(key)

    def bury(self, key: SubscriptionKey, why: str, at_us: int, proof: bytes = b"") -> None:
        """Forgets a subscription that was cancelled elsewhere (D15)."""
        if not self.cancelled(key):
            self.forget(key)
            self._graveyard.bury(str(key), why, at_us, proof)

    def matching(self, metadata: Metadata) -> list[Subscription]:
        """The subscriptions that stand here and match an object."""
        return self._standing.match(metadata.tags, metadata.published_us)

    def forget(self, key: SubscriptionKey) -> None:
        """Lets go of a subscription that others look after; it may come back (D20, D24)."""
        if key in self._standing:
            self._shares.remove(key.subscriber)
        self._standing.remove(key)
        self._store.remove(SUBSCRIPTIONS, str(key))

    def graves(self) -> Iterator[tuple[str, Tombstone]]:
        """The tombstones of subscriptions, oldest first."""
        return self._graveyard.all()

    def cancelled(self, key: SubscriptionKey) -> bool:
        """Whether a subscription was cancelled lately."""
        return self._graveyard.why(str(key)) is not None

    def subscribe(
        self, subscription: Subscription, by: NodeId, batch: int, now_us: int
    ) -> PastPage:
        """Takes a subscription up, and returns the first batch."""
        self.take_up(subscription, by, now_us)
        return self.page(subscription.conjunctions, subscription.frame, batch, None, now_us)

    def take_up(self, subscription: Subscription, by: NodeId, now_us: int) -> None:
        """Lets a subscription stand, unless its frame is over."""
        key = subscription.key
        if key.subscriber != by:
            raise NotOwnerError(f"subscription {key} belongs to another node")
        if self.cancelled(key):
            raise EndedError(f"subscription {key} was cancelled")
        self.expire(now_us)
        if not subscription.frame.over(now_us - self._config.skew_us):
            if key not in self._standing:
                self._refuse(key.subscriber)
            self._stand(subscription, now_us)
            self._store.put(SUBSCRIPTIONS, str(key), subscription)

    def unsubscribe(
        self, key: SubscriptionKey, by: NodeId, now_us: int, proof: bytes = b""
    ) -> None:
        """Forgets a subscription, and remembers that it did, against late messages."""
        if key.subscriber != by:
            raise NotOwnerError(f"subscription {key} belongs to another node")
        self.forget(key)
        self._graveyard.bury(str(key), "cancelled", now_us, proof)

    def page(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None,
        now_us: int,
    ) -> PastPage:
        """The most recent matches before a cursor."""
        self.expire(now_us)
        count = max(0, min(count, self._config.page_max))
        history = self.catalogue.history
        # One more than asked for tells whether there is a next page.
        found = history.latest(conjunctions, frame, count + 1, before)
        total = history.total(conjunctions, frame)
        return PastPage(total, tuple(found[:count]), len(found) > count)

    def known(self, key: Key, now_us: int) -> KnownObject:
        """What can be said of a key."""
        self.expire(now_us)
        return KnownObject(self.catalogue.state(key), self.catalogue.history.get(key))

    def expire(self, now_us: int) -> None:
        """Lets go of what is past its time: objects, subscriptions, tombstones."""
        self.catalogue.expire(now_us)
        for subscription in self._standing.expire(now_us):
            self._shares.remove(subscription.key.subscriber)
            self._store.remove(SUBSCRIPTIONS, str(subscription.key))
        self._graveyard.expire(now_us)

    def next_expiry_us(self) -> int | None:
        """When `expire` next has something to do."""
        return earliest(
            self.catalogue.next_expiry_us(),
            self._standing.next_expiry_us(),
            self._graveyard.next_expiry_us(),
        )

    def _refuse(self, subscriber: NodeId) -> None:
        if len(self._standing) >= self._config.subscriptions_max:
            raise RejectedError(f"at most {self._config.subscriptions_max} subscriptions here")
        self._shares.refuse(subscriber)

    def _stand(self, subscription: Subscription, now_us: int) -> None:
        if subscription.key not in self._standing:
            self._shares.add(subscription.key.subscriber)
        self._standing.add(
            subscription.key, subscription, subscription.conjunctions, subscription.frame, now_us
        )

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        self.catalogue.check()
        assert len(self._standing) <= self._config.subscriptions_max
        self._graveyard.check()
