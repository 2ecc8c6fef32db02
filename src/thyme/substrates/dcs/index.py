"""The index of a cell, as one of its nodes keeps it: metadata, where objects are, subscriptions.

All nodes of a cell keep the same, as far as the radio lets them. A broker (`thyme.substrates.
broker`) of metadata alone, with the replication list of each object and the cell of each
subscriber. A cell that stands in for empty ones keeps theirs, too; what is keyed to two of them is
one subscription here, with the conjunctions of both.
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
    """Where an object is: the active replicas for good, then the latest passive ones (D12)."""

    active: tuple[Replica, ...]
    passive: tuple[Replica, ...] = ()


class SubscriberCell(msgspec.Struct, frozen=True, array_like=True):
    """Where a subscriber was when it was last heard, and the cells that its subscription is keyed
    to, as far as they are kept here."""

    key: SubscriptionKey
    cell: CellId
    homes: tuple[CellId, ...] = ()
    heard: Said | None = None


LISTS = Shelf("replication list", ReplicationList)
SUBSCRIBER_CELLS = Shelf("subscriber cell", SubscriberCell)
NOWHERE = ReplicationList(())


class CellIndex:
    """What one node knows on behalf of its cell."""

    def __init__(
        self, store: Store, config: BrokerConfig, passive_max: int, now_us: int = 0
    ) -> None:
        self._store = store
        self._passive_max = passive_max
        self.broker = Broker(store, config, now_us)
        self._lists = {Key.parse(key): listed for key, listed in store.load(LISTS)}
        self._cells = {at.key: at.cell for _, at in store.load(SUBSCRIBER_CELLS)}
        self._homes = {at.key: at.homes for _, at in store.load(SUBSCRIBER_CELLS)}
        self._heard = {at.key: at.heard for _, at in store.load(SUBSCRIBER_CELLS)}
        self._burial = config.burial
        self._objects = Sum(object_name(metadata.key) for metadata in self.broker.catalogue.history)
        self._interests = Sum()
        self._conjunctions: dict[SubscriptionKey, tuple[str, ...]] = {}
        self._graves = Sum()
        self._buried_us: dict[str, int] = {}
        self._sum_up()

    # Objects

    def add(self, indexed: Indexed, by: NodeId, now_us: int) -> list[Subscription]:
        """Keeps the metadata of an object; returns the subscriptions to notify, none when it was
        here before."""
        key = indexed.metadata.key
        matched = self.broker.insert(indexed.metadata, by, b"", now_us)
        if key not in self._lists:
            self._put_list(key, ReplicationList(indexed.active, indexed.passive))
            self._prune_lists()
        self._objects.add(object_name(key))
        return matched

    def announce(self, key: Key, replica: Replica) -> bool:
        """One more has an object; False if nothing is known of the object (D13)."""
        if key not in self.broker.catalogue.history:
            return False
        listed = self._lists.get(key, NOWHERE)
        if replica in listed.active or Replica(replica.cell) in listed.active:
            return True
        others = [known for known in listed.passive if known.node != replica.node]
        latest = (replica, *others)[: self._passive_max]
        self._put_list(key, ReplicationList(listed.active, latest))
        return True

    def is_active(self, key: Key, replica: Replica) -> bool:
        """Whether this is one of the active replicas of an object; so it is where nothing is known
        of the object."""
        if key not in self.broker.catalogue.history:
            return True
        active = self._lists.get(key, NOWHERE).active
        return replica in active or Replica(replica.cell) in active

    def knows(self, key: Key) -> bool:
        """Whether an object is, or was, indexed here."""
        return self.broker.catalogue.state(key) != UNKNOWN

    def delete(self, key: Key, by: NodeId, now_us: int, proof: bytes = b"") -> None:
        """Removes an object for its owner. One that never came must not come later (D15)."""
        if key.owner != by:
            raise NotOwnerError(f"{key} belongs to another node: only its owner may delete it")
        self.broker.expire(now_us)
        self.broker.catalogue.bury(key, DELETED, now_us, proof)
        self._drop_list(key)
        self._count_grave(gone_name(str(key)), now_us)

    def indexed(self, metadata: Metadata) -> Indexed:
        """Metadata with its replication list."""
        listed = self._lists.get(metadata.key, NOWHERE)
        return Indexed(metadata, listed.active, listed.passive)

    # Subscriptions

    def take_up(self, interest: Interest, by: NodeId, now_us: int) -> None:
        """Lets a subscription stand, with the conjunctions it had here and those it brings."""
        subscription, key = interest.subscription, interest.subscription.key
        if (known := self.broker.standing(key)) is not None:
            both = dict.fromkeys((*known.conjunctions, *subscription.conjunctions))
            subscription = subscription.with_conjunctions(tuple(both))
        if subscription != known:
            self.broker.take_up(subscription, by, now_us)
        if self.broker.standing(key) is not None:
            self._count_interest(subscription)
            homes = tuple(dict.fromkeys((*self._homes.get(key, ()), *interest.homes)))
            heard, cell = self._heard.get(key), interest.cell
            if key in self._cells and instant_of(heard or 0) > interest.heard_us:
                cell = self._cells[key]
            else:
                heard = interest.heard
            self._put_cell(SubscriberCell(key, cell, homes, heard))
            self._prune_cells()

    def relocate(self, key: SubscriptionKey, cell: CellId, heard: Said) -> bool:
        """A subscriber is in another cell (D21); False if its subscription does not stand here.
        Of two places that it proves, the later counts (B5)."""
        if self.broker.standing(key) is None:
            return False
        known = self._heard.get(key) or 0
        if not (isinstance(heard, Proven) and instant_of(known) > heard.at_us):
            self._put_cell(SubscriberCell(key, cell, self._homes.get(key, ()), heard))
        return True

    def _put_cell(self, at: SubscriberCell) -> None:
        key = at.key
        known = (self._cells.get(key), self._homes.get(key), self._heard.get(key))
        if known != (at.cell, at.homes, at.heard):
            self._cells[key], self._homes[key] = at.cell, at.homes
            self._heard[key] = at.heard
            self._store.put(SUBSCRIBER_CELLS, str(key), at)

    def unsubscribe(
        self, key: SubscriptionKey, by: NodeId, now_us: int, proof: bytes = b""
    ) -> None:
        """Forgets a subscription."""
        self.broker.unsubscribe(key, by, now_us, proof)
        self._drop_cell(key)
        self._count_grave(over_name(str(key)), now_us)

    def cell_of(self, key: SubscriptionKey) -> CellId:
        """Where the subscriber of a subscription that stands was last heard."""
        return self._cells[key]

    def audience(
        self, matched: list[Subscription]
    ) -> dict[tuple[CellId, NodeId], list[SubscriptionId]]:
        """Who is to be notified, where, and for which subscriptions."""
        found: dict[tuple[CellId, NodeId], list[SubscriptionId]] = {}
        for subscription in matched:
            key = subscription.key
            found.setdefault((self._cells[key], key.subscriber), []).append(key.sid)
        return found

    # State

    def objects(self) -> Iterator[Indexed]:
        """All objects, oldest first."""
        return map(self.indexed, self.broker.catalogue.history)

    def interests(self) -> Iterator[Interest]:
        """All subscriptions, in the order they came."""
        return (self._interest(held) for held in self.broker.held())

    def interest(self, key: SubscriptionKey) -> Interest | None:
        """A subscription that stands here."""
        held = self.broker.standing(key)
        return None if held is None else self._interest(held)

    def _interest(self, held: Subscription) -> Interest:
        key = held.key
        homes, heard = self._homes.get(key, ()), self._heard.get(key)
        return Interest(held, self._cells[key], homes, heard)

    def buried_objects(self) -> Iterator[Grave]:
        """What was deleted or is past its time; what had no room here may have room elsewhere."""
        graves = self.broker.catalogue.graves()
        return (_grave(key, stone) for key, stone in graves if stone.why != EVICTED)

    def buried_subscriptions(self) -> Iterator[Grave]:
        """What was cancelled."""
        return (_grave(key, stone) for key, stone in self.broker.graves())

    def relearn(self, indexed: Indexed, now_us: int) -> list[Subscription]:
        """An object that this cell should have known; returns the subscriptions to notify."""
        try:
            return self.add(indexed, indexed.metadata.owner, now_us)
        except OperationError:
            return []

    def learn_object(self, indexed: Indexed, now_us: int) -> bool:
        """An object that another node of the cell knows of; whether it may stay."""
        return _allowed(lambda: self.add(indexed, indexed.metadata.owner, now_us))

    def learn_interest(self, interest: Interest, now_us: int) -> bool:
        """A subscription that another node of the cell knows of; whether it may stay."""
        subscriber = interest.subscription.key.subscriber
        return _allowed(lambda: self.take_up(interest, subscriber, now_us))

    def learn_burial(self, key: Key, grave: Grave) -> None:
        """An object that another node of the cell knows to be gone."""
        self.broker.catalogue.bury(key, grave.why, grave.at_us, proof_of(grave.left))
        self._drop_list(key)
        if grave.why == DELETED:
            self._count_grave(gone_name(str(key)), grave.at_us)

    def learn_cancellation(self, key: SubscriptionKey, grave: Grave) -> None:
        """A subscription that another node of the cell knows to be cancelled."""
        self.broker.bury(key, grave.why, grave.at_us, proof_of(grave.left))
        self._drop_cell(key)
        self._count_grave(over_name(str(key)), grave.at_us)

    # What others look after

    def forget_object(self, key: Key) -> None:
        """Lets go of an object; it may come back (D24)."""
        self.broker.catalogue.forget(key)
        self._drop_list(key)

    def forget_interest(self, key: SubscriptionKey) -> None:
        """Lets go of a subscription; it may come back (D22, D24)."""
        self.broker.forget(key)
        self._drop_cell(key)

    def keep_of(self, interest: Interest, now_us: int) -> None:
        """Keeps of a subscription only these conjunctions, for these cells (D24)."""
        key = interest.subscription.key
        self.forget_interest(key)
        self.take_up(interest, key.subscriber, now_us)

    def clear(self) -> None:
        """Lets go of all objects and subscriptions: this node works for another cell (D20)."""
        for key in [metadata.key for metadata in self.broker.catalogue.history]:
            self.forget_object(key)
        for sub_key in [held.key for held in self.broker.held()]:
            self.forget_interest(sub_key)

    # The sum of it

    def sums(self, now_us: int) -> tuple[Sum, ...]:
        """What is known for the cell, to compare with others (B2)."""
        history = self.broker.catalogue.history
        if len(self._objects) != len(history):
            self._objects.keep(object_name(metadata.key) for metadata in history)
        if len(self._conjunctions) != self.broker.subscriptions:
            standing = {held.key for held in self.broker.held()}
            for key in [key for key in self._conjunctions if key not in standing]:
                self._uncount_interest(key)
        while self._buried_us:
            oldest = next(iter(self._buried_us))
            if self._buried_us[oldest] + self._burial.life_us > now_us:
                break
            del self._buried_us[oldest]
            self._graves.remove(oldest)
        return self._objects, self._interests, self._graves

    def _sum_up(self) -> None:
        """What an earlier life left."""
        for held in self.broker.held():
            self._count_interest(held)
        for grave in self.buried_objects():
            if grave.why == DELETED:
                self._count_grave(gone_name(grave.key), grave.at_us)
        for grave in self.buried_subscriptions():
            self._count_grave(over_name(grave.key), grave.at_us)

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
        """Objects that expire or are evicted leave their lists behind; not too many of them."""
        history = self.broker.catalogue.history
        if len(self._lists) > 2 * len(history) + 64:
            for key in [key for key in self._lists if key not in history]:
                self._drop_list(key)

    def _prune_cells(self) -> None:
        if len(self._cells) > 2 * self.broker.subscriptions + 64:
            for key in [key for key in self._cells if self.broker.standing(key) is None]:
                self._drop_cell(key)

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        self.broker.check()
        history = self.broker.catalogue.history
        assert all(metadata.key in self._lists for metadata in history)
        assert all(held.key in self._cells for held in self.broker.held())


def _grave(key: str, stone: Tombstone) -> Grave:
    left = Proven(stone.at_us, stone.proof) if stone.proof else stone.at_us
    return Grave(key, stone.why, left)


def _allowed(learn: Callable[[], object]) -> bool:
    try:
        learn()
    except OperationError:
        return False
    return True
