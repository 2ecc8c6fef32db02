"""Catalogue: the objects stored by a broker.

Entry point: `Catalogue`. Metadata is kept in the history index and in a table of the store, object
data in the store, those of large objects in the chunk cache, unless object data is stored elsewhere
(D11). An object is removed when its owner
deletes it, when its time to live ends, or when the limits of age or bytes are reached; a tombstone
remains (`tombstones`).
Clauses: M3, M14, M25, M29, M37, D15.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from thyme.model.errors import DiskFullError, NotFoundError, NotOwnerError, RejectedError
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Limits, Metadata
from thyme.model.time_frames import earliest
from thyme.storage.store import RecordTable, Store
from thyme.substrates.chunks.cache import ChunkCache
from thyme.substrates.common.quotas import Quota, UsageTable
from thyme.substrates.common.tombstones import (
    TOMBSTONE_AGE_US_MAX,
    Horizon,
    Tombstone,
    TombstoneStore,
)

THERE, UNKNOWN = "there", "unknown"
DELETED, EXPIRED, EVICTED = "deleted", "expired", "evicted"


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much a broker stores, and for how long (M29); None means no limit."""

    age_us_max: int | None = None
    bytes_max: int | None = None
    objects_max: int = 10_000_000

    def is_too_old(self, metadata: Metadata, now_us: int) -> bool:
        """Whether an object has reached the age limit."""
        return self.age_us_max is not None and metadata.published_us + self.age_us_max <= now_us


OBJECTS = RecordTable("object", Metadata)
OBJECT_TOMBSTONES = RecordTable("buried object", Tombstone)
OBJECT_HORIZONS = RecordTable("object horizon", Horizon)


class Catalogue:
    """The stored objects of one broker."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        retention: Retention,
        *,
        metadata_only: bool = False,
        quota: Quota | None = None,
        own_id: NodeId | None = None,
        chunk_cache: ChunkCache | None = None,
        tombstone_age_us_max: int = TOMBSTONE_AGE_US_MAX,
    ) -> None:
        """`own_id` is the node itself, which has no quota."""
        quota = quota or Quota()
        self.usage = UsageTable("objects", quota.objects, quota.bytes, exempt=own_id, store=store)
        self._store = store
        self._metadata_only = metadata_only
        self._chunk_cache = chunk_cache
        self._limits = limits
        self._retention = retention
        self._tombstones = TombstoneStore(
            store,
            OBJECT_TOMBSTONES,
            tombstone_age_us_max,
            horizons=OBJECT_HORIZONS,
            expiring=(EXPIRED, EVICTED),
            permanent=not metadata_only,
        )
        self.history = store.open_history(OBJECTS)
        self.removed: Counter[str] = Counter()
        self.on_removed: Callable[[Metadata, str], None] = lambda metadata, reason: None
        """Called with each object that was removed with a tombstone, and the reason."""

    def __len__(self) -> int:
        return len(self.history)

    @property
    def stored_bytes(self) -> int:
        """Bytes that count against `Retention.bytes_max`."""
        objects = 0 if self._metadata_only else self.history.object_bytes
        return self.history.summary_bytes + objects

    def add(self, metadata: Metadata, data: bytes | None, now_us: int) -> bool:
        """Stores an object; returns False if it is stored already, raises if it is not acceptable.

        The data of a large object is None: its chunks are in the cache. With `metadata_only`, the
        data is ignored.
        """
        if not self.check_new(metadata, now_us):
            return False
        name = str(metadata.key)
        if not (self._metadata_only or data is None or metadata.matches_content(data)):
            raise RejectedError(f"the bytes of {name} are not those its metadata describes")
        size = self._size(metadata)
        if not self._store.has_space(len(metadata.summary) if data is None else size):
            raise DiskFullError(f"the disk is full here: no room for {name}")
        self._evict_until_fits(size, now_us)
        if data is None and not self._metadata_only:
            self._large_objects.add_object(metadata)
        elif data is not None and not self._metadata_only:
            self._store.put_data(name, data)
        self._store.put(OBJECTS, name, metadata)
        self.history.add(metadata)
        self.usage.add(metadata.owner, size)
        return True

    def check_new(self, metadata: Metadata, now_us: int) -> bool:
        """Whether an object is not stored yet; raises if it is not acceptable."""
        if (known := self.history.get(metadata.key)) is not None:
            if known != metadata:
                raise RejectedError(f"{metadata.key} is taken: an object never changes")
            return False
        self._check_acceptable(metadata, str(metadata.key), now_us)
        self.usage.check_quota(metadata.owner, self._size(metadata))
        return True

    @property
    def _large_objects(self) -> ChunkCache:
        if self._chunk_cache is None:
            raise RejectedError("no objects in chunks are stored here")
        return self._chunk_cache

    def delete(self, key: Key, sender: NodeId, now_us: int, proof: bytes = b"") -> None:
        """Removes an object for its owner permanently; a repeated delete succeeds, too."""
        if key.owner != sender:
            raise NotOwnerError(f"{key} belongs to another node: only its owner may delete it")
        match self.state(key):
            case "there":
                self._remove(key, DELETED, now_us, proof)
            case "deleted":
                return
            case state:
                raise NotFoundError(f"{key} is not stored here ({state})")

    def remove_with_tombstone(
        self, key: Key, reason: str, removed_us: int, proof: bytes = b""
    ) -> None:
        """Removes an object that was removed at another broker, and keeps a tombstone even if the
        object is not stored here: it may still be in transit (D15)."""
        if key in self.history:
            self._remove(key, reason, removed_us, proof)
        elif self._tombstones.reason_for(str(key)) is None:
            self._tombstones.add(str(key), reason, removed_us, proof)

    def remove_without_tombstone(self, key: Key) -> None:
        """Removes an object for which another broker is responsible.

        No tombstone is kept, so it can be added again (D20, D24).
        """
        if key in self.history:
            self._remove_record(key)

    def tombstones(self) -> Iterator[tuple[str, Tombstone]]:
        """The tombstones of removed objects, oldest first."""
        return self._tombstones.all()

    def data(self, key: Key) -> bytes:
        """The data of an object."""
        data = self._store.get_data(str(key)) if key in self.history else None
        if data is None:
            raise NotFoundError(f"{key} is not stored here ({self.state(key)})")
        return data

    def state(self, key: Key) -> str:
        """State of a key: `there`, the reason of its removal, or `unknown`."""
        return THERE if key in self.history else self._tombstones.reason_for(str(key)) or UNKNOWN

    def expire(self, now_us: int) -> None:
        """Removes objects past their time to live or the age limit, objects beyond limits that were
        lowered, and expired tombstones."""
        end_us = self.history.next_expiry_us()
        if end_us is not None and end_us <= now_us:
            for key in self.history.expired_keys(now_us):
                self._remove(key, EXPIRED, now_us)
        while (
            oldest_expires_us := self._oldest_expires_us()
        ) is not None and oldest_expires_us <= now_us:
            self._remove_oldest(EXPIRED, now_us)
        while self._is_over_limit():
            self._remove_oldest(EVICTED, now_us)
        self._tombstones.expire(now_us)

    def next_expiry_us(self) -> int | None:
        """When the next object or tombstone expires; None if none does."""
        return earliest(
            self.history.next_expiry_us(),
            self._oldest_expires_us(),
            self._tombstones.next_expiry_us(),
        )

    def _oldest_expires_us(self) -> int | None:
        age_us_max = self._retention.age_us_max
        oldest = self.history.oldest() if age_us_max is not None else None
        return None if oldest is None or age_us_max is None else oldest.published_us + age_us_max

    def _check_acceptable(self, metadata: Metadata, name: str, now_us: int) -> None:
        if (reason := self._tombstones.reason_for(name)) is not None:
            raise RejectedError(f"{name} was here and is {reason}: its key cannot be used again")
        if self._tombstones.is_beyond_horizon(metadata.owner, metadata.published_us):
            raise RejectedError(f"{name} is older than removals of its owner that are forgotten")
        if metadata.has_expired(now_us):
            raise RejectedError(f"the life span of {name} is over")
        if self._retention.is_too_old(metadata, now_us):
            raise RejectedError(f"{name} is older than the age limit of this node")
        if metadata.size > self._limits.data_bytes_max:
            raise RejectedError(f"at most {self._limits.data_bytes_max} bytes per object here")
        if len(metadata.summary) > self._limits.summary_bytes_max:
            raise RejectedError(f"at most {self._limits.summary_bytes_max} bytes per summary here")

    def _evict_until_fits(self, size: int, now_us: int) -> None:
        """Evicts the oldest objects until a new one fits."""
        bytes_max = self._retention.bytes_max
        if bytes_max is not None and size > bytes_max:
            raise RejectedError(f"an object of {size} bytes never fits: {bytes_max} bytes in all")
        while self._is_over_limit(1, size):
            self._remove_oldest(EVICTED, now_us)

    def _is_over_limit(self, objects_more: int = 0, bytes_more: int = 0) -> bool:
        bytes_max = self._retention.bytes_max
        return len(self.history) + objects_more > self._retention.objects_max or (
            bytes_max is not None and self.stored_bytes + bytes_more > bytes_max
        )

    def _remove_oldest(self, reason: str, now_us: int) -> None:
        oldest = self.history.oldest()
        assert oldest is not None, "a catalogue over its limit is not empty"
        self._remove(oldest.key, reason, now_us)

    def _remove(self, key: Key, reason: str, now_us: int, proof: bytes = b"") -> None:
        metadata = self._remove_record(key)
        self.removed[reason] += 1
        self._tombstones.add(str(key), reason, now_us, proof)
        self.on_removed(metadata, reason)

    def _remove_record(self, key: Key) -> Metadata:
        metadata = self.history.remove(key)
        assert metadata is not None, f"{key} is not in the history"
        self.usage.remove(metadata.owner, self._size(metadata))
        self._store.remove(OBJECTS, str(key))
        if not self._metadata_only:
            self._store.remove_data(str(key))
            if self._chunk_cache is not None and metadata.is_large:
                self._chunk_cache.remove_object(metadata)
        return metadata

    def _size(self, metadata: Metadata) -> int:
        return len(metadata.summary) + (0 if self._metadata_only else metadata.size)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self._tombstones.check()
        assert not self._is_over_limit()
