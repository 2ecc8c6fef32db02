"""Replica store: the own objects, active replicas and passive replicas that a node stores.

Entry point: `ReplicaStore`. Every stored object can be retrieved from this node; metadata is
indexed by cells (`cell_index`). If space runs out, passive replicas are evicted first, then active
ones; the objects of the node's own application stay.
Clauses: D11, D13, D15, M29, B5.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator
from enum import Enum

import msgspec

from thyme.model.errors import FullError, NotFoundError, RejectedError
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.protocol.cells import CellId, Replica
from thyme.storage.store import Shelf, Store
from thyme.substrates.catalogue import EVICTED, EXPIRED, UNKNOWN, Retention
from thyme.substrates.dcs.digest import Sum, held_name
from thyme.substrates.graveyard import Burial, Graveyard, Tombstone
from thyme.substrates.quotas import Quota, Shares


class Role(Enum):
    """Why a node stores an object."""

    PASSIVE = "passive"
    ACTIVE = "active"
    OWN = "own"


class HeldObject(msgspec.Struct, frozen=True, array_like=True):
    """An object stored on this node. `active` lists its active replicas; it is empty for an active
    replica that all nodes of the cell store."""

    metadata: Metadata
    role: Role
    active: tuple[Replica, ...] = ()

    def shared_in(self, cell: CellId | None) -> bool:
        """Whether all nodes of the cell should store the object, if this node is in that cell."""
        if self.role is Role.ACTIVE:
            return not self.active or any(replica.node is None for replica in self.active)
        return any(replica == Replica(cell) for replica in self.active if cell is not None)


HELD = Shelf("replica", HeldObject)
BURIED = Shelf("buried replica", Tombstone)


class Replicas:
    """The objects stored on one node."""

    def __init__(
        self, store: Store, retention: Retention, burial: Burial, quota: Quota | None = None
    ) -> None:
        """The quota applies to active replicas of other nodes' objects."""
        quota = quota or Quota()
        self._shares = Shares("objects", quota.objects, quota.bytes)
        self._store = store
        self._retention = retention
        self._graveyard = Graveyard(store, BURIED, burial)
        self._held: dict[Key, HeldObject] = {}
        self._life_ends: list[tuple[int, Key]] = []
        self._cell: CellId | None = None
        self.shared = Sum()
        """The digest of the objects that all nodes of the cell should store (B2)."""
        self.bytes_held = 0
        self.left: Counter[str] = Counter()
        for _, stored in store.load(HELD):
            self._file(stored)

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Key) -> HeldObject | None:
        """The stored replica of an object, or None."""
        return self._held.get(key)

    def of_role(self, role: Role) -> Iterator[HeldObject]:
        """The stored objects with one role, in the order in which they were stored."""
        return (stored for stored in self._held.values() if stored.role is role)

    def why_gone(self, key: Key) -> str | None:
        """Why an object was removed, while its tombstone is kept."""
        return self._graveyard.why(str(key))

    def hold(self, held: HeldObject, data: bytes, now_us: int) -> None:
        """Stores an object, or raises why it is rejected. An object that is already stored is
        unchanged, except that a stronger role replaces a weaker one."""
        metadata = held.metadata
        current = self._held.get(metadata.key)
        if current is not None:
            if current.metadata != metadata:
                raise RejectedError(f"{metadata.key} is taken: an object never changes")
            if _STRENGTH[held.role] > _STRENGTH[current.role]:
                self._held[metadata.key] = held
                self._store.put(HELD, str(metadata.key), held)
                self._count(held)
            return
        if (reason := self.why_gone(metadata.key)) is not None and reason != EVICTED:
            raise RejectedError(
                f"{metadata.key} was here and is {reason}: its key cannot be reused"
            )
        if metadata.expired(now_us):
            raise RejectedError(f"the life span of {metadata.key} is over")
        if not metadata.describes(data):
            raise RejectedError(f"the bytes of {metadata.key} do not match its metadata")
        if held.role is Role.ACTIVE:
            self._shares.refuse(metadata.owner, metadata.size)
        if not self._store.has_room(metadata.size):
            raise FullError(f"the disk is full here: no room for {metadata.key}")
        self._make_room(metadata.size, now_us)
        self._store.put(HELD, str(metadata.key), held)
        self._store.put_data(str(metadata.key), data)
        self._file(held)

    def data(self, key: Key) -> bytes:
        """The bytes of an object."""
        data = self._store.data(str(key)) if key in self._held else None
        if data is None:
            raise NotFoundError(f"{key} is not here ({self.why_gone(key) or UNKNOWN})")
        return data

    def bury(self, key: Key, why: str, now_us: int) -> None:
        """Removes an object, if it is stored, and keeps a tombstone so that it is not stored again
        (D15)."""
        if key in self._held:
            self._remove(key, why, now_us)
        elif self.why_gone(key) in (None, EVICTED):
            self._graveyard.bury(str(key), why, now_us)

    def forget(self, key: Key) -> None:
        """Removes an object whose insert failed, without a tombstone."""
        if (stored := self._held.get(key)) is not None:
            self._unfile(stored)

    def drop(self, role: Role) -> None:
        """Removes all objects with one role, without tombstones; they may be stored again."""
        for stored in list(self.of_role(role)):
            self._unfile(stored)

    def change_role(self, old: Role, new: Role) -> None:
        """Changes the role of all objects that have the old role."""
        for stored in list(self.of_role(old)):
            self._held[stored.metadata.key] = changed = HeldObject(stored.metadata, new)
            self._store.put(HELD, str(stored.metadata.key), changed)
            self._count(changed)

    def expire(self, now_us: int) -> None:
        """Removes expired objects and tombstones."""
        while self._life_ends and self._life_ends[0][0] <= now_us:
            _, key = heapq.heappop(self._life_ends)
            stored = self._held.get(key)
            if stored is not None and (self._ends_us(stored.metadata) or now_us + 1) <= now_us:
                self._remove(key, EXPIRED, now_us)
        self._graveyard.expire(now_us)

    def next_expiry_us(self) -> int | None:
        """The instant at which `expire` next has something to remove."""
        object_us = self._life_ends[0][0] if self._life_ends else None
        expiries = (object_us, self._graveyard.next_expiry_us())
        return min((at_us for at_us in expiries if at_us is not None), default=None)

    def _ends_us(self, metadata: Metadata) -> int | None:
        age_us_max = self._retention.age_us_max
        age_expiry_us = None if age_us_max is None else metadata.published_us + age_us_max
        expiries = [at_us for at_us in (metadata.expires_us, age_expiry_us) if at_us is not None]
        return min(expiries, default=None)

    def _make_room(self, size: int, now_us: int) -> None:
        bytes_max = self._retention.bytes_max
        while len(self._held) >= self._retention.objects_max or (
            bytes_max is not None and self.bytes_held + size > bytes_max
        ):
            weakest = next(self.of_role(Role.PASSIVE), None) or next(
                self.of_role(Role.ACTIVE), None
            )
            if weakest is None:
                raise RejectedError(f"no space for an object of {size} bytes")
            self._remove(weakest.metadata.key, EVICTED, now_us)

    def few(self) -> Iterator[HeldObject]:
        """The objects whose holders are listed by node, since not all nodes of the cell store them
        (B6)."""
        listed = (stored for stored in self._held.values() if stored.active)
        return (
            stored
            for stored in listed
            if all(replica.node is not None for replica in stored.active)
        )

    def name_holders(self, key: Key, active: tuple[Replica, ...]) -> None:
        """Sets the holders of an object, this node included."""
        stored = self._held[key] = HeldObject(
            self._held[key].metadata, self._held[key].role, active
        )
        self._store.put(HELD, str(key), stored)
        self._count(stored)

    def settle(self, cell: CellId) -> None:
        """Sets the cell of this node."""
        self._cell = cell
        for stored in self._held.values():
            self._count(stored)

    def shares(self) -> Iterator[Metadata]:
        """The metadata of the objects that all nodes of the cell should store."""
        return (stored.metadata for stored in self._held.values() if stored.shared_in(self._cell))

    def _count(self, held: HeldObject) -> None:
        name = held_name(held.metadata.key)
        if held.shared_in(self._cell):
            self.shared.add(name)
        else:
            self.shared.remove(name)

    def _file(self, held: HeldObject) -> None:
        self._held[held.metadata.key] = held
        self._count(held)
        self.bytes_held += held.metadata.size
        self._shares.add(held.metadata.owner, held.metadata.size)
        if (expiry_us := self._ends_us(held.metadata)) is not None:
            heapq.heappush(self._life_ends, (expiry_us, held.metadata.key))

    def _remove(self, key: Key, why: str, now_us: int) -> None:
        self._unfile(self._held[key])
        self.left[why] += 1
        self._graveyard.bury(str(key), why, now_us)

    def _unfile(self, held: HeldObject) -> None:
        key = held.metadata.key
        del self._held[key]
        self.shared.remove(held_name(key))
        self.bytes_held -= held.metadata.size
        self._shares.remove(held.metadata.owner, held.metadata.size)
        self._store.remove(HELD, str(key))
        self._store.remove_data(str(key))
        # Removed objects leave an entry in this heap; stale entries must not outnumber the others.
        if len(self._life_ends) > 2 * len(self._held) + 64:
            self._life_ends = [entry for entry in self._life_ends if entry[1] in self._held]
            heapq.heapify(self._life_ends)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self._graveyard.check()
        assert len(self._held) <= self._retention.objects_max
        assert self._retention.bytes_max is None or self.bytes_held <= self._retention.bytes_max
        assert len(self._life_ends) <= 2 * len(self._held) + 64 + 1


_STRENGTH = {Role.PASSIVE: 0, Role.ACTIVE: 1, Role.OWN: 2}
