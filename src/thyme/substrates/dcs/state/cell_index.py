"""Cell index: one node's copy of its cell's metadata, replication lists and subscriptions.

Entry point: `CellIndex`. The nodes of a cell keep equal copies, as far as the radio permits.
Metadata and subscriptions are stored in a metadata-only `Broker`; this module adds the replication
list of each object and the cell of each subscriber. The proxy of empty cells stores their records,
too: a subscription that is keyed to several of these cells is one subscription here, with the
conjunctions of all of them.
Clauses: D6, D12, D15, D16, D17, D23, B2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from thyme.model.bounded import BoundedDict
from thyme.model.errors import NotOwnerError, OperationError
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import SubscriptionKey, SubscriptionRecord
from thyme.protocol.messages.cell_records import (
    CellId,
    CellSubscription,
    ClaimedInstant,
    IndexedMetadata,
    Replica,
    SignedInstant,
    TombstoneRecord,
    instant_of,
    proof_of,
)
from thyme.storage.store import RecordTable, Store
from thyme.substrates.common.broker import Broker, BrokerConfig
from thyme.substrates.common.catalogue import DELETED, EVICTED, UNKNOWN
from thyme.substrates.common.tombstones import TOMBSTONES_MAX, Tombstone
from thyme.substrates.dcs.state.cell_digest import (
    SetDigest,
    cancelled_name,
    conjunction_names,
    deleted_name,
    object_name,
)
from thyme.substrates.dcs.state.replication_lists import PASSIVE_MAX, ReplicationLists


class SubscriberCell(msgspec.Struct, frozen=True, array_like=True):
    """The cell in which a subscriber was last seen, and those key cells of its subscription that
    this node stores."""

    key: SubscriptionKey
    cell: CellId
    key_cells: tuple[CellId, ...] = ()
    located: ClaimedInstant | None = None


SUBSCRIBER_CELLS = RecordTable("subscriber cell", SubscriberCell)


class CellIndex:
    """The state that one node stores for its cell."""

    def __init__(
        self,
        store: Store,
        config: BrokerConfig,
        passive_max: int = PASSIVE_MAX,
        now_us: int = 0,
        *,
        merge_lists: bool = False,
    ) -> None:
        """`merge_lists` says whether replication lists of other nodes are merged with the own
        ones."""
        self._store = store
        self.broker = Broker(store, config, now_us)
        self._replication_lists = ReplicationLists(store, passive_max, merged=merge_lists)
        self._subscriber_cells = {
            stored.key: stored.cell for _, stored in store.load(SUBSCRIBER_CELLS)
        }
        self._key_cells = {
            stored.key: stored.key_cells for _, stored in store.load(SUBSCRIBER_CELLS)
        }
        self._located = {stored.key: stored.located for _, stored in store.load(SUBSCRIBER_CELLS)}
        self._object_digest = SetDigest(
            (object_name(metadata.key), metadata.key) for metadata in self.all_metadata()
        )
        self._conjunction_digest = SetDigest()
        self._conjunction_names: dict[SubscriptionKey, tuple[str, ...]] = {}
        self._tombstone_digest = SetDigest()
        self._tombstone_names: BoundedDict[str, None] = BoundedDict(2 * TOMBSTONES_MAX)
        self._build_digests()

    # Objects

    def add_object(
        self, indexed: IndexedMetadata, by: NodeId, now_us: int
    ) -> list[SubscriptionRecord]:
        """Stores the metadata of an object; returns the subscriptions to notify, none if the object
        was already indexed."""
        key = indexed.metadata.key
        matched = self.broker.insert(indexed.metadata, by, b"", now_us)
        self._replication_lists.merge(indexed)
        self._prune_replication_lists()
        self._object_digest.add(object_name(key), key)
        return matched

    def add_replica(self, key: Key, replica: Replica) -> bool:
        """Adds a passive replica to an object's replication list; False if the object is not
        indexed (D13)."""
        if not self.has_object(key):
            return False
        self._replication_lists.add_passive(key, replica)
        return True

    def is_active_replica(self, key: Key, replica: Replica) -> bool:
        """Whether a replica is one of the active replicas of an object; also True if the object is
        not indexed."""
        return not self.has_object(key) or self._replication_lists.get(key).has_active(replica)

    def get_object(self, key: Key) -> Metadata | None:
        """The metadata of an indexed object."""
        return self.broker.catalogue.history.get(key)

    def has_metadata(self, metadata: Metadata) -> bool:
        """Whether an object is indexed with exactly this metadata."""
        return self.broker.catalogue.history.get(metadata.key) == metadata

    def has_object(self, key: Key) -> bool:
        """Whether an object is indexed."""
        return key in self.broker.catalogue.history

    def all_metadata(self) -> Iterator[Metadata]:
        """The metadata of all indexed objects, oldest first."""
        return iter(self.broker.catalogue.history)

    def latest_matches(self, subscription: SubscriptionRecord, count: int) -> list[Metadata]:
        """The most recent indexed objects that match a subscription, at most `count`."""
        return self.broker.catalogue.history.latest_matches(
            subscription.conjunctions, subscription.frame, count, None
        )

    def is_deleted(self, key: Key) -> bool:
        """Whether there is a tombstone of a deleted object."""
        return self.broker.catalogue.state(key) == DELETED

    def has_seen_object(self, key: Key) -> bool:
        """Whether an object is, or was, indexed here."""
        return self.broker.catalogue.state(key) != UNKNOWN

    def delete_object(self, key: Key, by: NodeId, now_us: int, proof: bytes = b"") -> None:
        """Deletes an object for its owner. An object that was never indexed gets a tombstone, too,
        so that a late insert is rejected (D15)."""
        if key.owner != by:
            raise NotOwnerError(f"{key} belongs to another node: only its owner may delete it")
        self.broker.expire(now_us)
        self.broker.catalogue.remove_with_tombstone(key, DELETED, now_us, proof)
        self._drop_replication_list(key)
        self._digest_tombstone(deleted_name(str(key)))

    def with_replication_list(self, metadata: Metadata) -> IndexedMetadata:
        """The metadata with its replication list."""
        replication_list = self._replication_lists.get(metadata.key)
        return IndexedMetadata(metadata, replication_list.active, replication_list.passive)

    # Subscriptions

    def get_subscription(self, key: SubscriptionKey) -> SubscriptionRecord | None:
        """The active subscription with this key, as the subscriber sent it."""
        return self.broker.get_active(key)

    def matching_subscriptions(self, metadata: Metadata) -> list[SubscriptionRecord]:
        """The active subscriptions that match an object."""
        return self.broker.matching_subscriptions(metadata)

    def add_subscription(
        self, cell_subscription: CellSubscription, by: NodeId, now_us: int
    ) -> None:
        """Activates a subscription, with the conjunctions stored here before and the new ones."""
        subscription, key = cell_subscription.subscription, cell_subscription.subscription.key
        if (active := self.broker.get_active(key)) is not None:
            merged = dict.fromkeys((*active.conjunctions, *subscription.conjunctions))
            subscription = subscription.with_conjunctions(tuple(merged))
        if subscription != active:
            self.broker.activate(subscription, by, now_us)
        if self.broker.get_active(key) is not None:
            self._digest_subscription(subscription)
            key_cells = tuple(
                dict.fromkeys((*self._key_cells.get(key, ()), *cell_subscription.key_cells))
            )
            located, cell = self._located.get(key), cell_subscription.cell
            if (
                key in self._subscriber_cells
                and instant_of(located or 0) > cell_subscription.located_us
            ):
                cell = self._subscriber_cells[key]
            else:
                located = cell_subscription.located
            self._store_subscriber_cell(SubscriberCell(key, cell, key_cells, located))
            self._prune_subscriber_cells()

    def update_location(self, key: SubscriptionKey, cell: CellId, located: ClaimedInstant) -> bool:
        """Updates the cell of a subscriber (D21); False if its subscription is not active here. Of
        two signed locations, the later one is kept (B5)."""
        if self.broker.get_active(key) is None:
            return False
        known = self._located.get(key) or 0
        if not (isinstance(located, SignedInstant) and instant_of(known) > located.at_us):
            self._store_subscriber_cell(
                SubscriberCell(key, cell, self._key_cells.get(key, ()), located)
            )
        return True

    def _store_subscriber_cell(self, subscriber_cell: SubscriberCell) -> None:
        key = subscriber_cell.key
        current = (
            self._subscriber_cells.get(key),
            self._key_cells.get(key),
            self._located.get(key),
        )
        if current != (subscriber_cell.cell, subscriber_cell.key_cells, subscriber_cell.located):
            self._subscriber_cells[key], self._key_cells[key] = (
                subscriber_cell.cell,
                subscriber_cell.key_cells,
            )
            self._located[key] = subscriber_cell.located
            self._store.put(SUBSCRIBER_CELLS, str(key), subscriber_cell)

    def unsubscribe(
        self, key: SubscriptionKey, by: NodeId, now_us: int, proof: bytes = b""
    ) -> None:
        """Removes a subscription with a tombstone."""
        self.broker.unsubscribe(key, by, now_us, proof)
        self._drop_subscriber_cell(key)
        self._digest_tombstone(cancelled_name(str(key)))

    def subscriber_cell(self, key: SubscriptionKey) -> CellId:
        """The cell in which the subscriber of an active subscription was last seen."""
        return self._subscriber_cells[key]

    def recipients(
        self, matched: list[SubscriptionRecord]
    ) -> dict[tuple[CellId, NodeId], list[SubscriptionId]]:
        """The subscribers to notify: cell and node, each with the matching subscriptions."""
        recipients: dict[tuple[CellId, NodeId], list[SubscriptionId]] = {}
        for subscription in matched:
            key = subscription.key
            recipients.setdefault((self._subscriber_cells[key], key.subscriber), []).append(key.sid)
        return recipients

    # Reading and merging state

    def objects(self) -> Iterator[IndexedMetadata]:
        """All indexed objects, oldest first."""
        return map(self.with_replication_list, self.all_metadata())

    def cell_subscriptions(self) -> Iterator[CellSubscription]:
        """All active subscriptions, in the order of their activation."""
        return (
            self._to_cell_subscription(subscription)
            for subscription in self.broker.active_subscriptions()
        )

    def cell_subscription(self, key: SubscriptionKey) -> CellSubscription | None:
        """The active subscription with this key, or None."""
        subscription = self.broker.get_active(key)
        return None if subscription is None else self._to_cell_subscription(subscription)

    def _to_cell_subscription(self, subscription: SubscriptionRecord) -> CellSubscription:
        key = subscription.key
        key_cells, located = self._key_cells.get(key, ()), self._located.get(key)
        return CellSubscription(subscription, self._subscriber_cells[key], key_cells, located)

    def object_tombstones(self) -> Iterator[TombstoneRecord]:
        """The tombstones of deleted and expired objects. Evicted objects are left out: another node
        may have space for them."""
        tombstones = self.broker.catalogue.tombstones()
        return (
            _tombstone_record(key, tombstone)
            for key, tombstone in tombstones
            if tombstone.reason != EVICTED
        )

    def subscription_tombstones(self) -> Iterator[TombstoneRecord]:
        """The tombstones of cancelled subscriptions."""
        return (_tombstone_record(key, tombstone) for key, tombstone in self.broker.tombstones())

    def reindex_object(self, indexed: IndexedMetadata, now_us: int) -> list[SubscriptionRecord]:
        """Indexes an object that this cell had lost; returns the subscriptions to notify."""
        try:
            return self.add_object(indexed, indexed.metadata.owner, now_us)
        except OperationError:
            return []

    def merge_object(self, indexed: IndexedMetadata, now_us: int) -> bool:
        """Merges an object from another node's state; returns whether it was accepted."""
        return _is_accepted(lambda: self.add_object(indexed, indexed.metadata.owner, now_us))

    def merge_subscription(self, cell_subscription: CellSubscription, now_us: int) -> bool:
        """Merges a subscription from another node's state; returns whether it was accepted."""
        subscriber = cell_subscription.subscription.key.subscriber
        return _is_accepted(lambda: self.add_subscription(cell_subscription, subscriber, now_us))

    def merge_object_tombstone(self, key: Key, tombstone: TombstoneRecord) -> None:
        """Merges the tombstone of an object from another node's state."""
        proof = proof_of(tombstone.removed)
        reason = DELETED if proof else tombstone.reason  # only a delete is signed
        self.broker.catalogue.remove_with_tombstone(key, reason, tombstone.removed_us, proof)
        self._drop_replication_list(key)
        if reason == DELETED:
            self._digest_tombstone(deleted_name(str(key)))

    def merge_subscription_tombstone(
        self, key: SubscriptionKey, tombstone: TombstoneRecord
    ) -> None:
        """Merges the tombstone of a subscription from another node's state."""
        self.broker.remove_with_tombstone(
            key, tombstone.reason, tombstone.removed_us, proof_of(tombstone.removed)
        )
        self._drop_subscriber_cell(key)
        self._digest_tombstone(cancelled_name(str(key)))

    # Removing records that other cells store

    def forget_object(self, key: Key) -> None:
        """Removes an object without a tombstone; it may be indexed again (D24)."""
        self.broker.catalogue.remove_without_tombstone(key)
        self._drop_replication_list(key)

    def forget_subscription(self, key: SubscriptionKey) -> None:
        """Removes a subscription without a tombstone; it may be activated again (D22, D24)."""
        self.broker.remove_without_tombstone(key)
        self._drop_subscriber_cell(key)

    def narrow_subscription(self, cell_subscription: CellSubscription, now_us: int) -> None:
        """Reduces a subscription to the given conjunctions and key cells (D24)."""
        key = cell_subscription.subscription.key
        self.forget_subscription(key)
        self.add_subscription(cell_subscription, key.subscriber, now_us)

    def clear(self) -> None:
        """Removes all objects and subscriptions without tombstones: this node will serve another
        cell (D20)."""
        for key in [metadata.key for metadata in self.all_metadata()]:
            self.forget_object(key)
        for sub_key in [subscription.key for subscription in self.broker.active_subscriptions()]:
            self.forget_subscription(sub_key)

    # Digests

    def digests(self) -> tuple[SetDigest, ...]:
        """The digests of objects, conjunctions and tombstones, to compare with cell peers (B2)."""
        history = self.broker.catalogue.history
        if len(self._object_digest) != len(history):
            self._object_digest.retain(object_name(metadata.key) for metadata in history)
        if len(self._conjunction_names) != self.broker.subscription_count:
            active = {subscription.key for subscription in self.broker.active_subscriptions()}
            for key in [key for key in self._conjunction_names if key not in active]:
                self._undigest_subscription(key)
        return self._object_digest, self._conjunction_digest, self._tombstone_digest

    def _build_digests(self) -> None:
        """Adds the subscriptions and tombstones loaded from the store to the digests."""
        for subscription in self.broker.active_subscriptions():
            self._digest_subscription(subscription)
        for tombstone in self.object_tombstones():
            if tombstone.reason == DELETED:
                self._digest_tombstone(deleted_name(tombstone.key))
        for tombstone in self.subscription_tombstones():
            self._digest_tombstone(cancelled_name(tombstone.key))

    def _digest_subscription(self, subscription: SubscriptionRecord) -> None:
        names = conjunction_names(subscription.key, subscription.conjunctions)
        self._conjunction_names[subscription.key] = names
        for name in names:
            self._conjunction_digest.add(name, subscription.key)

    def _undigest_subscription(self, key: SubscriptionKey) -> None:
        for name in self._conjunction_names.pop(key, ()):
            self._conjunction_digest.remove(name)

    def _digest_tombstone(self, name: str) -> None:
        self._tombstone_digest.add(name, None)
        if name in self._tombstone_names:
            return
        evicted = self._tombstone_names.put(name, None)
        if evicted is not None:
            self._tombstone_digest.remove(evicted)

    def _drop_replication_list(self, key: Key) -> None:
        self._object_digest.remove(object_name(key))
        self._replication_lists.remove(key)

    def _drop_subscriber_cell(self, key: SubscriptionKey) -> None:
        self._undigest_subscription(key)
        self._key_cells.pop(key, None)
        self._located.pop(key, None)
        if self._subscriber_cells.pop(key, None) is not None:
            self._store.remove(SUBSCRIBER_CELLS, str(key))

    def _prune_replication_lists(self) -> None:
        """Drops replication lists of objects that expired or were evicted, once there are too many
        of them."""
        history = self.broker.catalogue.history
        if len(self._replication_lists) > 2 * len(history) + 64:
            for key in self._replication_lists.unindexed(self.has_object):
                self._drop_replication_list(key)

    def _prune_subscriber_cells(self) -> None:
        if len(self._subscriber_cells) > 2 * self.broker.subscription_count + 64:
            for key in [
                key for key in self._subscriber_cells if self.broker.get_active(key) is None
            ]:
                self._drop_subscriber_cell(key)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self.broker.check()
        history = self.broker.catalogue.history
        assert all(metadata.key in self._replication_lists for metadata in history)
        assert all(
            subscription.key in self._subscriber_cells
            for subscription in self.broker.active_subscriptions()
        )


def _tombstone_record(key: str, tombstone: Tombstone) -> TombstoneRecord:
    removed = (
        SignedInstant(tombstone.removed_us, tombstone.proof)
        if tombstone.proof
        else tombstone.removed_us
    )
    return TombstoneRecord(key, tombstone.reason, removed)


def _is_accepted(merge: Callable[[], object]) -> bool:
    try:
        merge()
    except OperationError:
        return False
    return True
