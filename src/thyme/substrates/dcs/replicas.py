"""Replicas: the objects that a node holds: its own, those of its cell, and those it retrieved.

Whoever has an object can give it away; metadata and where it is indexed is the business of cells.
When there is no room, what was retrieved goes first, then what is held for the cell; what the
node's own application inserted stays.
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
    """Why an object is here."""

    PASSIVE = "passive"
    ACTIVE = "active"
    OWN = "own"


class HeldObject(msgspec.Struct, frozen=True, array_like=True):
    """An object that is here; of an own one, where its active replicas are."""

    metadata: Metadata
    role: Role
    active: tuple[Replica, ...] = ()

    def shared_in(self, cell: CellId | None) -> bool:
        """Whether all nodes of a cell should have it, this one being there."""
        if self.role is Role.ACTIVE:
            return not self.active or any(replica.node is None for replica in self.active)
        return any(replica == Replica(cell) for replica in self.active if cell is not None)


HELD = Shelf("replica", HeldObject)
BURIED = Shelf("buried replica", Tombstone)


class Replicas:
    """The objects of one node."""

    def __init__(
        self, store: Store, retention: Retention, burial: Burial, quota: Quota | None = None
    ) -> None:
        """The quota is for what is held on behalf of others, not for what this node wants."""
        quota = quota or Quota()
        self._shares = Shares("objects", quota.objects, quota.bytes)
        self._store = store
        self._retention = retention
        self._graveyard = Graveyard(store, BURIED, burial)
        self._held: dict[Key, HeldObject] = {}
        self._life_ends: list[tuple[int, Key]] = []
        self._cell: CellId | None = None
        self.shared = Sum()
        """Those that all nodes of the cell should have (B2)."""
        self.bytes_held = 0
        self.left: Counter[str] = Counter()
        for _, held in store.load(HELD):
            self._file(held)

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: Key) -> HeldObject | None:
        """What is known of an object that is here."""
        return self._held.get(key)

    def of_role(self, role: Role) -> Iterator[HeldObject]:
        """The objects that are here for one reason, in the order they came."""
        return (held for held in self._held.values() if held.role is role)

    def why_gone(self, key: Key) -> str | None:
        """Why an object left, if it did so lately."""
        return self._graveyard.why(str(key))

    def hold(self, held: HeldObject, data: bytes, now_us: int) -> None:
        """Keeps an object; refuses what it must not keep. One that is here stays as it is, unless
        it was held for a weaker reason."""
        metadata = held.metadata
        known = self._held.get(metadata.key)
        if known is not None:
            if known.metadata != metadata:
                raise RejectedError(f"{metadata.key} is taken: an object never changes")
            if _STRENGTH[held.role] > _STRENGTH[known.role]:
                self._held[metadata.key] = held
                self._store.put(HELD, str(metadata.key), held)
                self._count(held)
            return
        if (why := self.why_gone(metadata.key)) is not None and why != EVICTED:
            raise RejectedError(f"{metadata.key} was here and is {why}: its key cannot be used")
        if metadata.expired(now_us):
            raise RejectedError(f"the life span of {metadata.key} is over")
        if not metadata.describes(data):
            raise RejectedError(f"the bytes of {metadata.key} are not those it describes")
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
        """Lets go of an object, if it is here, and keeps it from coming back (D15)."""
        if key in self._held:
            self._remove(key, why, now_us)
        elif self.why_gone(key) in (None, EVICTED):
            self._graveyard.bury(str(key), why, now_us)

    def forget(self, key: Key) -> None:
        """Lets go of an object that should never have been here."""
        if (held := self._held.get(key)) is not None:
            self._unfile(held)

    def drop(self, role: Role) -> None:
        """Lets go of all objects that are here for one reason; they may come back."""
        for held in list(self.of_role(role)):
            self._unfile(held)

    def change_role(self, old: Role, new: Role) -> None:
        """From now on objects are here for another reason."""
        for held in list(self.of_role(old)):
            self._held[held.metadata.key] = changed = HeldObject(held.metadata, new)
            self._store.put(HELD, str(held.metadata.key), changed)
            self._count(changed)

    def expire(self, now_us: int) -> None:
        """Lets go of what is past its time."""
        while self._life_ends and self._life_ends[0][0] <= now_us:
            _, key = heapq.heappop(self._life_ends)
            held = self._held.get(key)
            if held is not None and (self._ends_us(held.metadata) or now_us + 1) <= now_us:
                self._remove(key, EXPIRED, now_us)
        self._graveyard.expire(now_us)

    def next_expiry_us(self) -> int | None:
        """When `expire` next has something to do."""
        life_us = self._life_ends[0][0] if self._life_ends else None
        expiries = (life_us, self._graveyard.next_expiry_us())
        return min((at_us for at_us in expiries if at_us is not None), default=None)

    def _ends_us(self, metadata: Metadata) -> int | None:
        age_us_max = self._retention.age_us_max
        aged_us = None if age_us_max is None else metadata.published_us + age_us_max
        ends = [at_us for at_us in (metadata.expires_us, aged_us) if at_us is not None]
        return min(ends, default=None)

    def _make_room(self, size: int, now_us: int) -> None:
        bytes_max = self._retention.bytes_max
        while len(self._held) >= self._retention.objects_max or (
            bytes_max is not None and self.bytes_held + size > bytes_max
        ):
            weakest = next(self.of_role(Role.PASSIVE), None) or next(
                self.of_role(Role.ACTIVE), None
            )
            if weakest is None:
                raise RejectedError(f"no room for an object of {size} bytes")
            self._remove(weakest.metadata.key, EVICTED, now_us)

    def few(self) -> Iterator[HeldObject]:
        """The objects of which the holders are named, since there are few of them (B6)."""
        named = (held for held in self._held.values() if held.active)
        return (held for held in named if all(at.node is not None for at in held.active))

    def name_holders(self, key: Key, active: tuple[Replica, ...]) -> None:
        """Remembers who holds an object, beside this node."""
        held = self._held[key] = HeldObject(self._held[key].metadata, self._held[key].role, active)
        self._store.put(HELD, str(key), held)
        self._count(held)

    def settle(self, cell: CellId) -> None:
        """This node is in a cell, or in another one."""
        self._cell = cell
        for held in self._held.values():
            self._count(held)

    def shares(self) -> Iterator[Metadata]:
        """The objects that all nodes of the cell should have."""
        return (held.metadata for held in self._held.values() if held.shared_in(self._cell))

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
        if (ends_us := self._ends_us(held.metadata)) is not None:
            heapq.heappush(self._life_ends, (ends_us, held.metadata.key))

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
        # Removed objects leave their entry here; such entries must not outnumber the living.
        if len(self._life_ends) > 2 * len(self._held) + 64:
            self._life_ends = [entry for entry in self._life_ends if entry[1] in self._held]
            heapq.heapify(self._life_ends)

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        self._graveyard.check()
        assert len(self._held) <= self._retention.objects_max
        assert self._retention.bytes_max is None or self.bytes_held <= self._retention.bytes_max
        assert len(self._life_ends) <= 2 * len(self._held) + 64 + 1


_STRENGTH = {Role.PASSIVE: 0, Role.ACTIVE: 1, Role.OWN: 2}
