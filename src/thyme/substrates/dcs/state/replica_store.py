"""Replica store: the own objects, active replicas and passive replicas that a node stores.

Entry point: `ReplicaStore`. Every stored object can be retrieved from this node; metadata is
indexed by cells (`cell_index`), and chunks of large objects are in the chunk cache. If space runs
out, passive replicas are evicted first, then active ones; the objects of the node's own application
stay.
Clauses: D11, D13, D15, M29, M37, B5.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Iterator
from enum import Enum

import msgspec
from msgspec.structs import replace

from thyme.model.errors import DiskFullError, NotFoundError, RejectedError
from thyme.model.ids import Key
from thyme.model.metadata import Metadata
from thyme.model.time_frames import earliest
from thyme.protocol.messages.cell_records import CellId, Replica
from thyme.storage.store import RecordTable, Store
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.common.catalogue import EVICTED, EXPIRED, UNKNOWN, Retention
from thyme.substrates.common.quotas import Quota, UsageTable
from thyme.substrates.common.tombstones import Horizon, Tombstone, TombstoneStore
from thyme.substrates.dcs.state.cell_digest import SetDigest, replica_name


class ReplicaRole(Enum):
    """Why a node stores an object."""

    PASSIVE = "passive"
    ACTIVE = "active"
    OWN = "own"


class StoredReplica(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An object stored on this node. `active` lists its active replicas; it is empty for an active
    replica that all nodes of the cell store."""

    metadata: Metadata
    role: ReplicaRole
    active: tuple[Replica, ...] = ()

    def is_cell_wide_in(self, cell: CellId | None) -> bool:
        """Whether all nodes of the cell should store the object, if this node is in that cell."""
        if self.role is ReplicaRole.ACTIVE:
            return not self.active or any(replica.node is None for replica in self.active)
        return any(replica == Replica(cell) for replica in self.active if cell is not None)


class _BriefReplica(StoredReplica, frozen=True):
    """A stored object without its summary and its proof, which are in the store."""


REPLICAS = RecordTable("replica", StoredReplica)
REPLICAS_WANTED = RecordTable("wanted replicas", int)
"""The number of active replicas of an own object, if its insert chose it (D14)."""
REPLICA_TOMBSTONES = RecordTable("buried replica", Tombstone)
REPLICA_HORIZONS = RecordTable("replica horizon", Horizon)


_SUMMARY_BYTES_MAX = 1_024
"""Longer summaries are not kept in memory."""
COMPLETE_MAX = 2_000
"""The number of latest objects whose records are kept in memory as a whole, if the store is a file.
Older ones are kept without summary and proof."""


class ReplicaStore:
    """The objects stored on one node."""

    def __init__(
        self,
        store: Store,
        retention: Retention,
        quota: Quota | None = None,
        chunk_cache: ChunkCache | None = None,
    ) -> None:
        """The quota applies to active replicas of other nodes' objects. Without a chunk cache, no
        objects in chunks are stored."""
        self._chunk_cache = chunk_cache
        quota = quota or Quota()
        self.usage = UsageTable("objects", quota.objects, quota.bytes)
        self._store = store
        self._retention = retention
        self._tombstones = TombstoneStore(
            store, REPLICA_TOMBSTONES, horizons=REPLICA_HORIZONS, expiring=(EXPIRED, EVICTED)
        )
        self._replicas: dict[Key, StoredReplica] = {}
        """All objects; those with a long summary, and old ones, in brief."""
        self._complete_keys: deque[Key] = deque()
        """The latest objects, which are kept as a whole."""
        self._latest_active: tuple[Replica, ...] = ()
        """The holders of the object shortened last; equal ones, of most objects, share memory."""
        self._expiries: list[tuple[int, Key]] = []
        self._cell: CellId | None = None
        self.cell_wide_digest = SetDigest()
        """The digest of the objects that all nodes of the cell should store (B2)."""
        self.stored_bytes = 0
        self.removed: Counter[str] = Counter()
        self._wanted = {Key.parse(name): count for name, count in store.load(REPLICAS_WANTED)}
        for _, stored in store.load(REPLICAS):
            self._register(stored)

    def __len__(self) -> int:
        return len(self._replicas)

    def get(self, key: Key) -> StoredReplica | None:
        """The stored replica of an object, or None."""
        stored = self._replicas.get(key)
        return None if stored is None else self._complete(stored)

    def with_role(self, role: ReplicaRole) -> Iterator[StoredReplica]:
        """The stored objects with one role, in the order in which they were stored."""
        return map(self._complete, self.brief_with_role(role))

    def brief_with_role(self, role: ReplicaRole) -> Iterator[StoredReplica]:
        """As `with_role`, but summaries and proofs may be missing: they need not be read."""
        return (stored for stored in self._replicas.values() if stored.role is role)

    def _complete(self, stored: StoredReplica) -> StoredReplica:
        """A stored object with its summary and proof."""
        if not isinstance(stored, _BriefReplica):
            return stored
        complete = self._store.get(REPLICAS, str(stored.metadata.key))
        assert complete is not None, f"{stored.metadata.key} is not in the store"
        return complete

    def _put(self, stored: StoredReplica) -> None:
        """Stores a record, new or changed."""
        self._store.put(REPLICAS, str(stored.metadata.key), stored)
        self._keep(stored)

    def _keep(self, stored: StoredReplica) -> None:
        """Keeps a stored record in memory: in brief, if it has a long summary."""
        key = stored.metadata.key
        if len(stored.metadata.summary) > _SUMMARY_BYTES_MAX:
            stored = self._shorten(stored)
        elif self._store.durable:
            self._complete_keys.append(key)
            if len(self._complete_keys) > COMPLETE_MAX:
                oldest = self._complete_keys.popleft()
                if (old := self._replicas.get(oldest)) is not None:
                    self._replicas[oldest] = self._shorten(old)
        self._replicas[key] = stored
        self._update_digest(stored)

    def _shorten(self, stored: StoredReplica) -> _BriefReplica:
        metadata = replace(stored.metadata, summary=b"", digest_and_proof=stored.metadata.digest)
        if stored.active != self._latest_active:
            self._latest_active = stored.active
        return _BriefReplica(metadata, stored.role, self._latest_active)

    def removal_reason(self, key: Key) -> str | None:
        """Why an object was removed, while its tombstone is kept."""
        return self._tombstones.reason_for(str(key))

    def add_replica(self, stored: StoredReplica, data: bytes, now_us: int) -> None:
        """Stores an object, or raises why it is rejected. An object that is already stored is
        unchanged, except that a stronger role replaces a weaker one. The data of an object in
        chunks is empty: the chunks are in the cache (M37)."""
        metadata = stored.metadata
        current = self._replicas.get(metadata.key)
        self.check_acceptable(stored, now_us)
        if current is not None:
            if _ROLE_PRIORITY[stored.role] > _ROLE_PRIORITY[current.role]:
                self._put(stored)
            return
        in_chunks = self.is_in_chunks(metadata, data)
        if not (in_chunks or metadata.matches_content(data)):
            raise RejectedError(f"the bytes of {metadata.key} do not match its metadata")
        if not self._store.has_space(0 if in_chunks else metadata.size):
            raise DiskFullError(f"the disk is full here: no room for {metadata.key}")
        self._evict_until_fits(metadata.size, now_us)
        if self._chunk_cache is not None and in_chunks:
            self._chunk_cache.add_object(metadata)
        else:
            self._store.put_data(str(metadata.key), data)
        self._store.put(REPLICAS, str(metadata.key), stored)
        self._register(stored)

    def check_acceptable(self, stored: StoredReplica, now_us: int) -> None:
        """Raises why an object would be rejected, whatever its bytes are."""
        metadata = stored.metadata
        if (current := self.get(metadata.key)) is not None:
            if current.metadata != metadata:
                raise RejectedError(f"{metadata.key} is taken: an object never changes")
            return
        if (reason := self.removal_reason(metadata.key)) is not None and reason != EVICTED:
            raise RejectedError(
                f"{metadata.key} was here and is {reason}: its key cannot be reused"
            )
        if self._tombstones.is_beyond_horizon(metadata.owner, metadata.published_us):
            raise RejectedError(f"{metadata.key} is older than forgotten removals of its owner")
        if metadata.has_expired(now_us):
            raise RejectedError(f"the life span of {metadata.key} is over")
        if self._retention.is_too_old(metadata, now_us):
            raise RejectedError(f"{metadata.key} is older than the age limit of this node")
        size, bytes_max = metadata.size, self._retention.bytes_max
        if bytes_max is not None and size > bytes_max:
            raise RejectedError(f"an object of {size} bytes never fits: {bytes_max} bytes in all")
        if stored.role is ReplicaRole.ACTIVE:
            self.usage.check_quota(metadata.owner, metadata.size)

    def is_in_chunks(self, metadata: Metadata, data: bytes) -> bool:
        """Whether an object was sent without its bytes, which are to be fetched in chunks."""
        return self._chunk_cache is not None and metadata.is_large and not data

    def read_data(self, key: Key) -> bytes:
        """The bytes of an object."""
        data = self._store.get_data(str(key)) if key in self._replicas else None
        if data is None:
            raise NotFoundError(f"{key} is not here ({self.removal_reason(key) or UNKNOWN})")
        return data

    def data_to_send(self, key: Key) -> bytes:
        """The bytes of an object for a message; empty for an object in chunks, which the receiver
        fetches (M37)."""
        if self._chunk_cache is not None and self._replicas[key].metadata.is_large:
            return b""
        return self.read_data(key)

    def remove_with_tombstone(self, key: Key, reason: str, now_us: int) -> None:
        """Removes an object, if it is stored, and keeps a tombstone so that it is not stored again
        (D15)."""
        if key in self._replicas:
            self._remove(key, reason, now_us)
        elif self.removal_reason(key) in (None, EVICTED):
            self._tombstones.add(str(key), reason, now_us)

    def remove_without_tombstone(self, key: Key) -> None:
        """Removes an object whose insert failed, without a tombstone."""
        if (stored := self._replicas.get(key)) is not None:
            self._remove_record(stored)

    def remove_role(self, role: ReplicaRole) -> None:
        """Removes all objects with one role, without tombstones; they may be stored again."""
        for stored in list(self.brief_with_role(role)):
            self._remove_record(stored)

    def change_role(self, old: ReplicaRole, new: ReplicaRole) -> None:
        """Changes the role of all objects that have the old role."""
        for stored in list(self.brief_with_role(old)):
            self._put(StoredReplica(self._complete(stored).metadata, new))

    def expire(self, now_us: int) -> None:
        """Removes expired objects and tombstones, and evicts if the limits were lowered."""
        while self._is_over_limit() and self._evict_weakest(now_us):
            pass
        while self._expiries and self._expiries[0][0] <= now_us:
            _, key = heapq.heappop(self._expiries)
            stored = self._replicas.get(key)
            if stored is not None and (self._expires_us(stored.metadata) or now_us + 1) <= now_us:
                self._remove(key, EXPIRED, now_us)
        self._tombstones.expire(now_us)

    def next_expiry_us(self) -> int | None:
        """The instant at which `expire` next has something to remove."""
        object_us = self._expiries[0][0] if self._expiries else None
        return earliest(object_us, self._tombstones.next_expiry_us())

    def _expires_us(self, metadata: Metadata) -> int | None:
        age_us_max = self._retention.age_us_max
        age_expiry_us = None if age_us_max is None else metadata.published_us + age_us_max
        expiries = [at_us for at_us in (metadata.expires_us, age_expiry_us) if at_us is not None]
        return min(expiries, default=None)

    def _evict_until_fits(self, size: int, now_us: int) -> None:
        """Evicts replicas until a new object fits; raises if it does not fit beside the own
        objects."""
        while self._is_over_limit(1, size):
            if not self._evict_weakest(now_us):
                raise RejectedError(f"no space for an object of {size} bytes")

    def _is_over_limit(self, objects_more: int = 0, bytes_more: int = 0) -> bool:
        bytes_max = self._retention.bytes_max
        return len(self._replicas) + objects_more > self._retention.objects_max or (
            bytes_max is not None and self.stored_bytes + bytes_more > bytes_max
        )

    def _evict_weakest(self, now_us: int) -> bool:
        """Evicts the oldest passive replica, else the oldest active one; False if there is none."""
        weakest = next(self.brief_with_role(ReplicaRole.PASSIVE), None) or next(
            self.brief_with_role(ReplicaRole.ACTIVE), None
        )
        if weakest is not None:
            self._remove(weakest.metadata.key, EVICTED, now_us)
        return weakest is not None

    def partially_replicated(self) -> Iterator[StoredReplica]:
        """The objects whose holders are listed by node, since not all nodes of the cell store them
        (B6)."""
        listed = (stored for stored in self._replicas.values() if stored.active)
        return (
            self._complete(stored)
            for stored in listed
            if all(replica.node is not None for replica in stored.active)
        )

    def want_replicas(self, key: Key, count: int) -> None:
        """Sets the number of active replicas of an own object."""
        self._wanted[key] = count
        self._store.put(REPLICAS_WANTED, str(key), count)

    def replicas_wanted(self, key: Key) -> int | None:
        """The number of active replicas that an insert chose; None if it left this to the world."""
        return self._wanted.get(key)

    def set_holders(self, key: Key, active: tuple[Replica, ...]) -> None:
        """Sets the holders of an object, this node included."""
        self._put(replace(self._complete(self._replicas[key]), active=active))

    def set_cell(self, cell: CellId) -> None:
        """Sets the cell of this node."""
        self._cell = cell
        for stored in self._replicas.values():
            self._update_digest(stored)

    def cell_wide_objects(self) -> Iterator[Metadata]:
        """The metadata of the objects that all nodes of the cell should store."""
        return (
            self._complete(stored).metadata
            for stored in self._replicas.values()
            if stored.is_cell_wide_in(self._cell)
        )

    def _update_digest(self, stored: StoredReplica) -> None:
        name = replica_name(stored.metadata.key)
        if stored.is_cell_wide_in(self._cell):
            self.cell_wide_digest.add(name, stored.metadata.key)
        else:
            self.cell_wide_digest.remove(name)

    def _register(self, stored: StoredReplica) -> None:
        self._keep(stored)
        self.stored_bytes += stored.metadata.size
        self.usage.add(stored.metadata.owner, stored.metadata.size)
        if (expiry_us := self._expires_us(stored.metadata)) is not None:
            heapq.heappush(self._expiries, (expiry_us, stored.metadata.key))

    def _remove(self, key: Key, reason: str, now_us: int) -> None:
        self._remove_record(self._replicas[key])
        self.removed[reason] += 1
        self._tombstones.add(str(key), reason, now_us)

    def _remove_record(self, stored: StoredReplica) -> None:
        key = stored.metadata.key
        del self._replicas[key]
        self.cell_wide_digest.remove(replica_name(key))
        self.stored_bytes -= stored.metadata.size
        self.usage.remove(stored.metadata.owner, stored.metadata.size)
        self._store.remove(REPLICAS, str(key))
        if self._wanted.pop(key, None) is not None:
            self._store.remove(REPLICAS_WANTED, str(key))
        self._store.remove_data(str(key))
        if self._chunk_cache is not None and stored.metadata.is_large:
            self._chunk_cache.remove_object(stored.metadata)
        # Removed objects leave an entry in this heap; stale entries must not outnumber the others.
        if len(self._expiries) > 2 * len(self._replicas) + 64:
            self._expiries = [entry for entry in self._expiries if entry[1] in self._replicas]
            heapq.heapify(self._expiries)

    def check(self) -> None:
        """Asserts the invariants that hold between any two inputs."""
        self._tombstones.check()
        only_own = all(stored.role is ReplicaRole.OWN for stored in self._replicas.values())
        assert only_own or not self._is_over_limit()
        assert len(self._complete_keys) <= COMPLETE_MAX
        assert len(self._expiries) <= 2 * len(self._replicas) + 64 + 1


_ROLE_PRIORITY = {ReplicaRole.PASSIVE: 0, ReplicaRole.ACTIVE: 1, ReplicaRole.OWN: 2}
