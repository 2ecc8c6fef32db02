"""Broker: stores objects and subscriptions, and matches them with each other.

Entry point: `Broker`. A new object is matched against the active subscriptions, a new subscription
against the history of objects. Both are atomic, so no match is missed between the two (M26). The
substrate decides which node is the broker of an object or subscription; requests are handled by
`broker_service`, objects are stored by `catalogue`.
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
    """Settings of a broker."""

    skew_us: int = 0
    """Maximum difference between clocks (M12): timestamps further ahead are rejected, and a
    subscription stays active this much longer for late objects published inside its frame."""
    limits: Limits = Limits()
    retention: Retention = Retention()
    subscriptions_max: int = 1_000_000
    page_max: int = 1_000
    burial: Burial = Burial()
    metadata_only: bool = False
    """Whether only metadata is stored here, and object data elsewhere (D11)."""
    quota: Quota = Quota()
    """Maximum that the broker stores for one peer (B5)."""


class PastPage(msgspec.Struct, frozen=True):
    """A page of stored matches: total count, items (newest first), whether there are older ones."""

    total: int
    items: tuple[Metadata, ...]
    more: bool


SUBSCRIPTIONS = Shelf("subscription", Subscription)
BURIED_SUBSCRIPTIONS = Shelf("buried subscription", Tombstone)


class Broker:
    """Stores and matches objects and active subscriptions."""

    def __init__(
        self, store: Store, config: BrokerConfig, now_us: int, own: NodeId | None = None
    ) -> None:
        """`own_id` is the node itself, which has no quota."""
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
        """Number of active subscriptions."""
        return len(self._standing)

    def insert(
        self, metadata: Metadata, by: NodeId, data: bytes, now_us: int
    ) -> list[Subscription]:
        """Stores an object; returns the subscriptions to notify, none if it was stored before."""
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
        """Removes an object on behalf of its owner."""
        self.expire(now_us)
        self.catalogue.delete(key, by, now_us, proof)

    def held(self) -> Iterator[Subscription]:
        """The active subscriptions, in the order of their arrival."""
        return (subscription for _, subscription in self._store.load(SUBSCRIPTIONS))

    def knows(self, key: SubscriptionKey) -> bool:
        """Whether a subscription is active or has a tombstone."""
        return key in self._standing or self.cancelled(key)

    def standing(self, key: SubscriptionKey) -> Subscription | None:
        """An active subscription; None if it is not active."""
        return self._standing.get(key)

    def bury(self, key: SubscriptionKey, why: str, at_us: int, proof: bytes = b"") -> None:
        """Removes a subscription that was cancelled elsewhere, and keeps a tombstone (D15)."""
        if not self.cancelled(key):
            self.forget(key)
            self._graveyard.bury(str(key), why, at_us, proof)

    def matching(self, metadata: Metadata) -> list[Subscription]:
        """The active subscriptions that match an object."""
        return self._standing.match(metadata.tags, metadata.published_us)

    def forget(self, key: SubscriptionKey) -> None:
        """Removes a subscription for which another broker is responsible.

        No tombstone is kept, so it can be activated again (D20, D24).
        """
        if key in self._standing:
            self._shares.remove(key.subscriber)
        self._standing.remove(key)
        self._store.remove(SUBSCRIPTIONS, str(key))

    def graves(self) -> Iterator[tuple[str, Tombstone]]:
        """The tombstones of cancelled subscriptions, oldest first."""
        return self._graveyard.all()

    def cancelled(self, key: SubscriptionKey) -> bool:
        """Whether a subscription has a tombstone."""
        return self._graveyard.why(str(key)) is not None

    def subscribe(
        self, subscription: Subscription, by: NodeId, batch: int, now_us: int
    ) -> PastPage:
        """Activates a subscription; returns the first page of stored matches."""
        self.take_up(subscription, by, now_us)
        return self.page(subscription.conjunctions, subscription.frame, batch, None, now_us)

    def take_up(self, subscription: Subscription, by: NodeId, now_us: int) -> None:
        """Activates a subscription, unless its time frame has ended."""
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
        """Removes a subscription, and keeps a tombstone against late messages."""
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
        """The most recent stored matches before a cursor."""
        self.expire(now_us)
        count = max(0, min(count, self._config.page_max))
        history = self.catalogue.history
        # One item more than requested shows whether there is a next page.
        found = history.latest(conjunctions, frame, count + 1, before)
        total = history.total(conjunctions, frame)
        return PastPage(total, tuple(found[:count]), len(found) > count)

    def known(self, key: Key, now_us: int) -> KnownObject:
        """The state of a key, and its metadata if the object is stored."""
        self.expire(now_us)
        return KnownObject(self.catalogue.state(key), self.catalogue.history.get(key))

    def expire(self, now_us: int) -> None:
        """Removes expired objects, subscriptions and tombstones."""
        self.catalogue.expire(now_us)
        for subscription in self._standing.expire(now_us):
            self._shares.remove(subscription.key.subscriber)
            self._store.remove(SUBSCRIPTIONS, str(subscription.key))
        self._graveyard.expire(now_us)

    def next_expiry_us(self) -> int | None:
        """When the next object, subscription or tombstone expires; None if none does."""
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
        """Asserts the invariants that hold between inputs."""
        self.catalogue.check()
        assert len(self._standing) <= self._config.subscriptions_max
        self._graveyard.check()
