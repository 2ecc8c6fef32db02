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

from thyme.model.errors import NotOwnerError, OperationError
from thyme.model.ids import Key, NodeId, SubscriptionId
from thyme.model.metadata import Metadata
from thyme.model.subscriptions import Subscription, SubscriptionKey
from thyme.protocol.cells import (
    CellId,
    Grave,
    Indexed,
    Interest,
    Proven,
    Replica,
    Said,
    instant_of,
    proof_of,
)
from thyme.storage.store import Shelf, Store
from thyme.substrates.broker import Broker, BrokerConfig
from thyme.substrates.catalogue import DELETED, EVICTED, UNKNOWN
from thyme.substrates.dcs.digest import (
    Sum,
    gone_name,
    interest_names,
    object_name,
    over_name,
)
from thyme.substrates.graveyard import Tombstone


class ReplicationList(msgspec.Struct, frozen=True, array_like=True):
    """The replicas of an object: the permanent active entries, then the latest passive replicas
    (D12)."""

    active: tuple[Replica, ...]
    passive: tuple[Replica, ...] = ()


class SubscriberCell(msgspec.Struct, frozen=True, array_like=True):
    """The cell in which a subscriber was last seen, and those key cells of its subscription that
    this node stores."""

    key: SubscriptionKey
    cell: CellId
    homes: tuple[CellId, ...] = ()
    heard: Said | None = None


LISTS = Shelf("replication list", ReplicationList)
SUBSCRIBER_CELLS = Shelf("subscriber cell", SubscriberCell)
NOWHERE = ReplicationList(())


class CellIndex:
    """The state that one node stores for its cell."""

    def __init__(
        self, store: Store, config: BrokerConfig, passive_max: int, now_us: int = 0
    ) -> None:
        self._store = store
        self._passive_max = passive_max
        self.broker = Broker(store, config, now_us)
        self._lists = {
            Key.parse(key): replication_list for key, replication_list in store.load(LISTS)
        }
        self._cells = {stored.key: stored.cell for _, stored in store.load(SUBSCRIBER_CELLS)}
        self._homes = {stored.key: stored.homes for _, stored in store.load(SUBSCRIBER_CELLS)}
        self._heard = {stored.key: stored.heard for _, stored in store.load(SUBSCRIBER_CELLS)}
        self._burial = config.burial
        self._objects = Sum(object_name(metadata.key) for metadata in self.broker.catalogue.history)
        self._interests = Sum()
        self._conjunctions: dict[SubscriptionKey, tuple[str, ...]] = {}
        self._graves = Sum()
        self._buried_us: dict[str, int] = {}
        self._sum_up()

    # Objects

    def add(self, indexed: Indexed, by: NodeId, now_us: int) -> list[Subscription]:
        """Stores the metadata of an object; returns the subscriptions to notify, none if the object
        was already indexed."""
        key = indexed.metadata.key
        matched = self.broker.insert(indexed.metadata, by, b"", now_us)
        if key not in self._lists:
            self._put_list(key, ReplicationList(indexed.active, indexed.passive))
            self._prune_lists()
        self._objects.add(object_name(key))
        return matched

    def announce(self, key: Key, replica: Replica) -> bool:
        """Adds a passive replica to an object's replication list; False if the object is not
        indexed (D13)."""
        if key not in self.broker.catalogue.history:
            return False
        replication_list = self._lists.get(key, NOWHERE)
        if replica in replication_list.active or Replica(replica.cell) in replication_list.active:
            return True
        others = [other for other in replication_list.passive if other.node != replica.node]
        latest = (replica, *others)[: self._passive_max]
        self._put_list(key, ReplicationList(replication_list.active, latest))
        return True

    def is_active(self, key: Key, replica: Replica) -> bool:
        """Whether a replica is one of the active replicas of an object; also True if the object is
        not indexed."""
        if key not in self.broker.catalogue.history:
            return True
        active = self._lists.get(key, NOWHERE).active
        return replica in active or Replica(replica.cell) in active

    def knows(self, key: Key) -> bool:
        """Whether an object is, or was, indexed here."""
        return self.broker.catalogue.state(key) != UNKNOWN

    def delete(self, key: Key, by: NodeId, now_us: int, proof: bytes = b"") -> None:
        """Deletes an object for its owner. An object that was never indexed gets a tombstone, too,
        so that a late insert is rejected (D15)."""
        if key.owner != by:
            raise NotOwnerError(f"{key} belongs to another node: only its owner may delete it")
        self.broker.expire(now_us)
        self.broker.catalogue.bury(key, DELETED, now_us, proof)
        self._drop_list(key)
        self._count_grave(gone_name(str(key)), now_us)

    def indexed(self, metadata: Metadata) -> Indexed:
        """The metadata with its replication list."""
        replication_list = self._lists.get(metadata.key, NOWHERE)
        return Indexed(metadata, replication_list.active, replication_list.passive)

    # Subscriptions

    def take_up(self, interest: Interest, by: NodeId, now_us: int) -> None:
        """Activates a subscription, with the conjunctions stored here before and the new ones."""
        subscription, key = interest.subscription, interest.subscription.key
        if (active := self.broker.standing(key)) is not None:
            merged = dict.fromkeys((*active.conjunctions, *subscription.conjunctions))
            subscription = subscription.with_conjunctions(tuple(merged))
        if subscription != active:
            self.broker.take_up(subscription, by, now_us)
        if self.broker.standing(key) is not None:
            self._count_interest(subscription)
            key_cells = tuple(dict.fromkeys((*self._homes.get(key, ()), *interest.homes)))
            located, cell = self._heard.get(key), interest.cell
            if key in self._cells and instant_of(located or 0) > interest.heard_us:
                cell = self._cells[key]
            else:
                located = interest.heard
            self._put_cell(SubscriberCell(key, cell, key_cells, located))
            self._prune_cells()

    def relocate(self, key: SubscriptionKey, cell: CellId, heard: Said) -> bool:
        """Updates the cell of a subscriber (D21); False if its subscription is not active here. Of
        two signed locations, the later one is kept (B5)."""
        if self.broker.standing(key) is None:
            return False
        known = self._heard.get(key) or 0
        if not (isinstance(heard, Proven) and instant_of(known) > heard.at_us):
            self._put_cell(SubscriberCell(key, cell, self._homes.get(key, ()), heard))
        return True

    def _put_cell(self, at: SubscriberCell) -> None:
        key = at.key
        current = (self._cells.get(key), self._homes.get(key), self._heard.get(key))
        if current != (at.cell, at.homes, at.heard):
            self._cells[key], self._homes[key] = at.cell, at.homes
            self._heard[key] = at.heard
            self._store.put(SUBSCRIBER_CELLS, str(key), at)

    def unsubscribe(
        self, key: SubscriptionKey, by: NodeId, now_us: int, proof: bytes = b""
    ) -> None:
        """Removes a subscription with a tombstone."""
        self.broker.unsubscribe(key, by, now_us, proof)
        self._drop_cell(key)
        self._count_grave(over_name(str(key)), now_us)

    def cell_of(self, key: SubscriptionKey) -> CellId:
        """The cell in which the subscriber of an active subscription was last seen."""
        return self._cells[key]

    def audience(
        self, matched: list[Subscription]
    ) -> dict[tuple[CellId, NodeId], list[SubscriptionId]]:
        """The subscribers to notify: cell and node, each with the matching subscriptions."""
        recipients: dict[tuple[CellId, NodeId], list[SubscriptionId]] = {}
        for subscription in matched:
            key = subscription.key
            recipients.setdefault((self._cells[key], key.subscriber), []).append(key.sid)
        return recipients

    # Reading and merging state

    def objects(self) -> Iterator[Indexed]:
        """All indexed objects, oldest first."""
        return map(self.indexed, self.broker.catalogue.history)

    def interests(self) -> Iterator[Interest]:
        """All active subscriptions, in the order of their activation."""
        return (self._interest(subscription) for subscription in self.broker.held())

    def interest(self, key: SubscriptionKey) -> Interest | None:
        """The active subscription with this key, or None."""
        subscription = self.broker.standing(key)
        return None if subscription is None else self._interest(subscription)

    def _interest(self, held: Subscription) -> Interest:
        key = held.key
        key_cells, located = self._homes.get(key, ()), self._heard.get(key)
        return Interest(held, self._cells[key], key_cells, located)

    def buried_objects(self) -> Iterator[Grave]:
        """The tombstones of deleted and expired objects. Evicted objects are left out: another node
        may have space for them."""
        tombstones = self.broker.catalogue.graves()
        return (_grave(key, tombstone) for key, tombstone in tombstones if tombstone.why != EVICTED)

    def buried_subscriptions(self) -> Iterator[Grave]:
        """The tombstones of cancelled subscriptions."""
        return (_grave(key, tombstone) for key, tombstone in self.broker.graves())

    def relearn(self, indexed: Indexed, now_us: int) -> list[Subscription]:
        """Indexes an object that this cell had lost; returns the subscriptions to notify."""
        try:
            return self.add(indexed, indexed.metadata.owner, now_us)
        except OperationError:
            return []

    def learn_object(self, indexed: Indexed, now_us: int) -> bool:
        """Merges an object from another node's state; returns whether it was accepted."""
        return _allowed(lambda: self.add(indexed, indexed.metadata.owner, now_us))

    def learn_interest(self, interest: Interest, now_us: int) -> bool:
        """Merges a subscription from another node's state; returns whether it was accepted."""
        subscriber = interest.subscription.key.subscriber
        return _allowed(lambda: self.take_up(interest, subscriber, now_us))

    def learn_burial(self, key: Key, grave: Grave) -> None:
        """Merges the tombstone of an object from another node's state."""
        self.broker.catalogue.bury(key, grave.why, grave.at_us, proof_of(grave.left))
        self._drop_list(key)
        if grave.why == DELETED:
            self._count_grave(gone_name(str(key)), grave.at_us)

    def learn_cancellation(self, key: SubscriptionKey, grave: Grave) -> None:
        """Merges the tombstone of a subscription from another node's state."""
        self.broker.bury(key, grave.why, grave.at_us, proof_of(grave.left))
        self._drop_cell(key)
        self._count_grave(over_name(str(key)), grave.at_us)

    # Removing records that other cells store

    def forget_object(self, key: Key) -> None:
        """Removes an object without a tombstone; it may be indexed again (D24)."""
        self.broker.catalogue.forget(key)
        self._drop_list(key)

    def forget_interest(self, key: SubscriptionKey) -> None:
        """Removes a subscription without a tombstone; it may be activated again (D22, D24)."""
        self.broker.forget(key)
        self._drop_cell(key)

    def keep_of(self, interest: Interest, now_us: int) -> None:
        """Reduces a subscription to the given conjunctions and key cells (D24)."""
        key = interest.subscription.key
        self.forget_interest(key)
        self.take_up(interest, key.subscriber, now_us)

    def clear(self) -> None:
        """Removes all objects and subscriptions without tombstones: this node will serve another
        cell (D20)."""
        for key in [metadata.key for metadata in self.broker.catalogue.history]:
            self.forget_object(key)
        for sub_key in [subscription.key for subscription in self.broker.held()]:
            self.forget_interest(sub_key)

    # Digests

    def sums(self, now_us: int) -> tuple[Sum, ...]:
        """The digests of objects, conjunctions and tombstones, to compare with cell peers (B2)."""
        history = self.broker.catalogue.history
        if len(self._objects) != len(history):
            self._objects.keep(object_name(metadata.key) for metadata in history)
        if len(self._conjunctions) != self.broker.subscriptions:
            active = {subscription.key for subscription in self.broker.held()}
            for key in [key for key in self._conjunctions if key not in active]:
                self._uncount_interest(key)
        while self._buried_us:
            oldest = next(iter(self._buried_us))
            if self._buried_us[oldest] + self._burial.life_us > now_us:
                break
            del self._buried_us[oldest]
            self._graves.remove(oldest)
        return self._objects, self._interests, self._graves

    def _sum_up(self) -> None:
        """Adds the subscriptions and tombstones loaded from the store to the digests."""
        for subscription in self.broker.held():
            self._count_interest(subscription)
        for tombstone in self.buried_objects():
            if tombstone.why == DELETED:
                self._count_grave(gone_name(tombstone.key), tombstone.at_us)
        for tombstone in self.buried_subscriptions():
            self._count_grave(over_name(tombstone.key), tombstone.at_us)

    def _count_interest(self, subscription: Subscription) -> None:
        names = interest_names(subscription.key, subscription.conjunctions)
        self._conjunctions[subscription.key] = names
        for name in names:
            self._interests.add(name)

    def _uncount_interest(self, key: SubscriptionKey) -> None:
        for name in self._conjunctions.pop(key, ()):
            self._interests.remove(name)

    def _count_grave(self, name: str, at_us: int) -> None:
        self._graves.add(name)
        self._buried_us.setdefault(name, at_us)
        if len(self._buried_us) > 2 * self._burial.graves_max:
            oldest = next(iter(self._buried_us))
            del self._buried_us[oldest]
            self._graves.remove(oldest)

    def _put_list(self, key: Key, listed: ReplicationList) -> None:
        self._lists[key] = listed
        self._store.put(LISTS, str(key), listed)

    def _drop_list(self, key: Key) -> None:
        self._objects.remove(object_name(key))
        if self._lists.pop(key, None) is not None:
            self._store.remove(LISTS, str(key))

    def _drop_cell(self, key: SubscriptionKey) -> None:
        self._uncount_interest(key)
        self._homes.pop(key, None)
        self._heard.pop(key, None)
        if self._cells.pop(key, None) is not None:
            self._store.remove(SUBSCRIBER_CELLS, str(key))

    def _prune_lists(self) -> None:
        """Drops replication lists of objects that expired or were evicted, once there are too many
        of them."""
        history = self.broker.catalogue.history
        if len(self._lists) > 2 * len(history) + 64:
            for key in [key for key in self._lists if key not in history]:
                self._drop_list(key)

    def _prune_cells(self) -> None:
        if len(self._cells) > 2 * self.broker.subscriptions + 64:
            for key in [key for key in self._cells if self.broker.standing(key) is None]:
                self._drop_cell(key)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self.broker.check()
        history = self.broker.catalogue.history
        assert all(metadata.key in self._lists for metadata in history)
        assert all(subscription.key in self._cells for subscription in self.broker.held())


def _grave(key: str, stone: Tombstone) -> Grave:
    removed = Proven(stone.at_us, stone.proof) if stone.proof else stone.at_us
    return Grave(key, stone.why, removed)


def _allowed(learn: Callable[[], object]) -> bool:
    try:
        learn()
    except OperationError:
        return False
    return True
