"""Broker: stores objects and subscriptions, and matches them with each other.

Entry point: `Broker`. A new object is matched against the active subscriptions, a new subscription
against the history of objects. Both are atomic, so no match is missed between the two (M26). The
substrate decides which node is the broker of an object or subscription; requests are handled by
`broker_service`, objects are stored by `catalogue`.
Clauses: M11, M12, M15, M17, M18, M23, M26, B5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from thyme.model.errors import ClosedError, NotOwnerError, RejectedError
from thyme.model.ids import Key, NodeId, SubscriptionId, subscription_started_us
from thyme.model.metadata import Limits, Metadata
from thyme.model.subscriptions import Conjunction, SubscriptionKey, SubscriptionRecord
from thyme.model.time_frames import TimeFrame, earliest
from thyme.protocol.app_interface import LookupResult
from thyme.protocol.messages.list_limits import RECORDS_MAX
from thyme.query.cursor import Cursor
from thyme.query.subscription_index.index import SubscriptionIndex
from thyme.storage.store import RecordTable, Store
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.common.catalogue import Catalogue, Retention
from thyme.substrates.common.quotas import Quota, UsageTable
from thyme.substrates.common.tombstones import Horizon, Tombstone, TombstoneStore

_PAGE_MAX = RECORDS_MAX
"""Maximum number of stored matches in one page."""
_PAGE_BYTES_MAX = 2**20
"""Maximum number of bytes of the summaries in one page; the rest is on the next one."""


class BrokerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a broker."""

    skew_us: int = 0
    """Maximum difference between clocks (M12): timestamps further ahead are rejected, and a
    subscription stays active this much longer for late objects published inside its frame."""
    limits: Limits = Limits()
    retention: Retention = Retention()
    subscriptions_max: int = 1_000_000
    metadata_only: bool = False
    """Whether only metadata is stored here, and object data elsewhere (D11)."""
    quota: Quota = Quota()
    """Maximum that the broker stores for one peer (B5)."""


class HistoryPage(msgspec.Struct, frozen=True):
    """A page of stored matches: total count, items (newest first), whether there are older ones."""

    total: int
    items: tuple[Metadata, ...]
    more: bool


SUBSCRIPTIONS = RecordTable("subscription", SubscriptionRecord)
SUBSCRIPTION_TOMBSTONES = RecordTable("buried subscription", Tombstone)
SUBSCRIPTION_HORIZONS = RecordTable("subscription horizon", Horizon)


OnActive = Callable[[SubscriptionKey, bool], None]
"""Called with a subscription, and whether it is active from now on."""


def _ignore_change(_key: SubscriptionKey, _is_active: bool) -> None:
    """The default `OnActive`."""


def _started_us(key: str) -> int:
    return subscription_started_us(SubscriptionId(key.rpartition("@")[0]))


def _cut_page(items: list[Metadata]) -> tuple[Metadata, ...]:
    """The first items, as many as fit into one message, and at least one."""
    size = 0
    for index, metadata in enumerate(items):
        size += len(metadata.summary)
        if index and size > _PAGE_BYTES_MAX:
            return tuple(items[:index])
    return tuple(items)


class Broker:
    """Stores and matches objects and active subscriptions."""

    def __init__(
        self,
        store: Store,
        config: BrokerConfig,
        now_us: int,
        own_id: NodeId | None = None,
        chunk_cache: ChunkCache | None = None,
    ) -> None:
        """`own_id` is the node itself, which has no quota."""
        self._store = store
        self._config = config
        self.catalogue = Catalogue(
            store,
            config.limits,
            config.retention,
            metadata_only=config.metadata_only,
            quota=config.quota,
            own_id=own_id,
            chunk_cache=chunk_cache,
        )
        self.on_active: OnActive = _ignore_change
        """Called with each subscription that becomes active, or is no longer active."""
        self._ahead_us = 0
        self.usage = UsageTable("subscriptions", config.quota.subscriptions, exempt=own_id)
        self._tombstones = TombstoneStore(
            store, SUBSCRIPTION_TOMBSTONES, horizons=SUBSCRIPTION_HORIZONS, made_us=_started_us
        )
        self._active: SubscriptionIndex[SubscriptionRecord] = SubscriptionIndex(
            tolerance_us=config.skew_us
        )
        for _, subscription in store.load(SUBSCRIPTIONS):
            self._add_active(subscription, now_us)
        self.expire(now_us)

    def set_clock_ahead(self, ahead_us: int) -> None:
        """Counts with the time of most clocks, which are so far ahead of this node's, if they
        differ by more than the maximum skew (M36)."""
        self._ahead_us = ahead_us if abs(ahead_us) > self._config.skew_us else 0

    def _world_us(self, now_us: int) -> int:
        return now_us + self._ahead_us

    @property
    def subscription_count(self) -> int:
        """Number of active subscriptions."""
        return len(self._active)

    def insert(
        self, metadata: Metadata, sender: NodeId, data: bytes | None, now_us: int
    ) -> list[SubscriptionRecord]:
        """Stores an object; returns the subscriptions to notify, none if it was stored before. The
        data of a large object is None (M37)."""
        self._check_insert(metadata, sender, now_us)
        if not self.catalogue.add(metadata, data, self._world_us(now_us)):
            return []
        return self._active.match(metadata.tags, metadata.published_us)

    def is_new(self, metadata: Metadata, sender: NodeId, now_us: int) -> bool:
        """Whether an object is not stored yet; raises if it is not acceptable."""
        self._check_insert(metadata, sender, now_us)
        return self.catalogue.check_new(metadata, self._world_us(now_us))

    def _check_insert(self, metadata: Metadata, sender: NodeId, now_us: int) -> None:
        if metadata.owner != sender:
            raise NotOwnerError(f"{metadata.key} names another node as its owner")
        ahead_us = metadata.published_us - self._world_us(now_us)
        if ahead_us > self._config.skew_us:
            raise RejectedError(f"{metadata.key} is stamped {ahead_us} µs ahead of this clock")
        self.expire(now_us)

    def delete(self, key: Key, sender: NodeId, now_us: int, proof: bytes = b"") -> None:
        """Removes an object on behalf of its owner."""
        self.expire(now_us)
        self.catalogue.delete(key, sender, self._world_us(now_us), proof)

    def active_subscriptions(self) -> Iterator[SubscriptionRecord]:
        """The active subscriptions, in the order of their arrival."""
        return (subscription for _, subscription in self._store.load(SUBSCRIPTIONS))

    def is_known(self, key: SubscriptionKey) -> bool:
        """Whether a subscription is active or has a tombstone."""
        return key in self._active or self.is_cancelled(key)

    def get_active(self, key: SubscriptionKey) -> SubscriptionRecord | None:
        """An active subscription; None if it is not active."""
        return self._active.get(key)

    def remove_with_tombstone(
        self, key: SubscriptionKey, reason: str, removed_us: int, proof: bytes = b""
    ) -> None:
        """Removes a subscription that was cancelled elsewhere, and keeps a tombstone (D15)."""
        if not self.is_cancelled(key):
            self.remove_without_tombstone(key)
            self._tombstones.add(str(key), reason, removed_us, proof)

    def matching_subscriptions(self, metadata: Metadata) -> list[SubscriptionRecord]:
        """The active subscriptions that match an object."""
        return self._active.match(metadata.tags, metadata.published_us)

    def remove_without_tombstone(self, key: SubscriptionKey) -> None:
        """Removes a subscription for which another broker is responsible.

        No tombstone is kept, so it can be activated again (D20, D24).
        """
        if key in self._active:
            self.usage.remove(key.subscriber)
            self.on_active(key, False)
        self._active.remove(key)
        self._store.remove(SUBSCRIPTIONS, str(key))

    def tombstones(self) -> Iterator[tuple[str, Tombstone]]:
        """The tombstones of cancelled subscriptions, oldest first."""
        return self._tombstones.all()

    def tombstone_of(self, key: SubscriptionKey) -> Tombstone | None:
        """The tombstone of a subscription; None if it has none."""
        return self._tombstones.get(str(key))

    @property
    def tombstone_count(self) -> int:
        """Number of tombstones of cancelled subscriptions."""
        return len(self._tombstones)

    def is_cancelled(self, key: SubscriptionKey) -> bool:
        """Whether a subscription has a tombstone."""
        return self._tombstones.reason_for(str(key)) is not None

    def subscribe(
        self, subscription: SubscriptionRecord, sender: NodeId, batch: int, now_us: int
    ) -> HistoryPage:
        """Activates a subscription; returns the first page of stored matches."""
        self.activate(subscription, sender, now_us)
        return self.read_page(subscription.conjunctions, subscription.frame, batch, None, now_us)

    def activate(self, subscription: SubscriptionRecord, sender: NodeId, now_us: int) -> None:
        """Activates a subscription, unless its time frame has ended."""
        key = subscription.key
        if key.subscriber != sender:
            raise NotOwnerError(f"subscription {key} belongs to another node")
        if self.is_cancelled(key):
            raise ClosedError(f"subscription {key} was cancelled")
        self.expire(now_us)
        if key not in self._active and self._tombstones.is_beyond_horizon(
            key.subscriber, subscription_started_us(key.sid)
        ):
            raise ClosedError(f"subscription {key} is older than cancelled ones that are forgotten")
        world_us = self._world_us(now_us)
        if not subscription.frame.has_ended(world_us - self._config.skew_us):
            if key not in self._active:
                self._check_limits(key.subscriber)
            self._add_active(subscription, world_us)
            self._store.put(SUBSCRIPTIONS, str(key), subscription)

    def unsubscribe(
        self, key: SubscriptionKey, sender: NodeId, now_us: int, proof: bytes = b""
    ) -> None:
        """Removes a subscription, and keeps a tombstone against late messages."""
        if key.subscriber != sender:
            raise NotOwnerError(f"subscription {key} belongs to another node")
        self.remove_without_tombstone(key)
        self._tombstones.add(str(key), "cancelled", self._world_us(now_us), proof)

    def read_page(
        self,
        conjunctions: Sequence[Conjunction],
        frame: TimeFrame,
        count: int,
        before: Cursor | None,
        now_us: int,
    ) -> HistoryPage:
        """The most recent stored matches before a cursor."""
        self.expire(now_us)
        count = max(0, min(count, _PAGE_MAX))
        history = self.catalogue.history
        # One item more than requested shows whether there is a next page.
        items = history.latest_matches(conjunctions, frame, count + 1, before)
        total = history.count_matches(conjunctions, frame)
        page = _cut_page(items[:count])
        return HistoryPage(total, page, len(items) > len(page))

    def look_up(self, key: Key, now_us: int) -> LookupResult:
        """The state of a key, and its metadata if the object is stored."""
        self.expire(now_us)
        return LookupResult(self.catalogue.state(key), self.catalogue.history.get(key))

    def expire(self, now_us: int) -> None:
        """Removes expired objects, subscriptions and tombstones."""
        world_us = self._world_us(now_us)
        self.catalogue.expire(world_us)
        for subscription in self._active.expire(world_us):
            self.usage.remove(subscription.key.subscriber)
            self.on_active(subscription.key, False)
            self._store.remove(SUBSCRIPTIONS, str(subscription.key))
        self._tombstones.expire(world_us)

    def next_expiry_us(self) -> int | None:
        """When the next object, subscription or tombstone expires; None if none does."""
        expiry_us = earliest(
            self.catalogue.next_expiry_us(),
            self._active.next_expiry_us(),
            self._tombstones.next_expiry_us(),
        )
        return None if expiry_us is None else expiry_us - self._ahead_us

    def _check_limits(self, subscriber: NodeId) -> None:
        if len(self._active) >= self._config.subscriptions_max:
            raise RejectedError(f"at most {self._config.subscriptions_max} subscriptions here")
        self.usage.check_quota(subscriber)

    def _add_active(self, subscription: SubscriptionRecord, now_us: int) -> None:
        if subscription.key not in self._active:
            self.usage.add(subscription.key.subscriber)
            self.on_active(subscription.key, True)
        self._active.add(
            subscription.key, subscription, subscription.conjunctions, subscription.frame, now_us
        )

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self.catalogue.check()
        assert len(self._active) <= self._config.subscriptions_max
        self._tombstones.check()
