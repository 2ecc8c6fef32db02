"""Replication lists: which nodes and cells store the objects that a cell indexes.

Entry point: `ReplicationLists`, a part of `cell_index`. A list names the permanent active replicas
and the latest passive ones. In the profile `robust`, the lists of two nodes of a cell are merged
when one of them sends the other its state.
Clauses: D12, D13, D23, D27.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from thyme.model.ids import Key
from thyme.protocol.messages.cell_records import IndexedMetadata, Replica
from thyme.storage.store import RecordTable, Store


class ReplicationList(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The replicas of an object: the permanent active entries, then the latest passive replicas
    (D12)."""

    active: tuple[Replica, ...]
    passive: tuple[Replica, ...] = ()

    def has_active(self, replica: Replica) -> bool:
        """Whether a replica is an active one, by its node or its cell."""
        return replica in self.active or Replica(replica.cell) in self.active


PASSIVE_MAX = 5
"""The maximum number of passive replicas in a replication list; the most recent ones are kept
(D12)."""
REPLICATION_LISTS = RecordTable("replication list", ReplicationList)
EMPTY_REPLICATION_LIST = ReplicationList(())


class ReplicationLists:
    """The replication lists that one node stores for its cell."""

    def __init__(self, store: Store, passive_max: int = PASSIVE_MAX, *, merged: bool) -> None:
        """`merged` says whether a received list is merged with a stored one, or ignored."""
        self._store = store
        self._merged = merged
        self._passive_max = passive_max
        self._lists = {Key.parse(key): stored for key, stored in store.load(REPLICATION_LISTS)}
        self._latest = EMPTY_REPLICATION_LIST
        """The list that was put last; equal ones, which most objects have, share its memory."""

    def __len__(self) -> int:
        return len(self._lists)

    def __contains__(self, key: Key) -> bool:
        return key in self._lists

    def get(self, key: Key) -> ReplicationList:
        """The replication list of an object, empty if there is none."""
        return self._lists.get(key, EMPTY_REPLICATION_LIST)

    def merge(self, indexed: IndexedMetadata) -> None:
        """Stores the list of an object, or adds the replicas that a stored list lacks, behind those
        that this node knows."""
        key = indexed.metadata.key
        known = self._lists.get(key)
        if known is None:
            self._put(key, ReplicationList(indexed.active, indexed.passive))
            return
        if not self._merged:
            return
        nodes = {replica.node for replica in known.passive}
        missing = [
            replica
            for replica in (*indexed.active, *indexed.passive)
            if replica.node is not None
            and replica.node not in nodes
            and not known.has_active(replica)
        ]
        if missing and len(known.passive) < self._passive_max:
            passive = (*known.passive, *missing)[: self._passive_max]
            self._put(key, ReplicationList(known.active, passive))

    def add_passive(self, key: Key, replica: Replica) -> None:
        """Adds a passive replica, as the latest one, unless it is an active one (D13)."""
        known = self.get(key)
        if not known.has_active(replica):
            others = [other for other in known.passive if other.node != replica.node]
            latest = (replica, *others)[: self._passive_max]
            self._put(key, ReplicationList(known.active, latest))

    def remove(self, key: Key) -> None:
        """Removes the list of an object."""
        if self._lists.pop(key, None) is not None:
            self._store.remove(REPLICATION_LISTS, str(key))

    def unindexed(self, is_indexed: Callable[[Key], bool]) -> list[Key]:
        """The objects with a list that are not indexed."""
        return [key for key in self._lists if not is_indexed(key)]

    def _put(self, key: Key, replication_list: ReplicationList) -> None:
        if replication_list == self._latest:
            replication_list = self._latest
        self._latest = self._lists[key] = replication_list
        self._store.put(REPLICATION_LISTS, str(key), replication_list)
