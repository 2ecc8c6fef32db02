"""Catalogue: the objects stored by a broker.

Entry point: `Catalogue`. Metadata is kept in the history index and in a table of the store, object
data in the store, unless object data is stored elsewhere (D11). An object is removed when its owner
deletes it, when its time to live ends, or when the limits of age or bytes are reached; a tombstone
remains (`tombstones`).
Clauses: M3, M14, M25, M29, D15.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from thyme.model.errors import FullError, NotFoundError, NotOwnerError, RejectedError
from thyme.model.ids import Key, NodeId
from thyme.model.metadata import Limits, Metadata
from thyme.storage.store import Shelf, Store
from thyme.substrates.graveyard import Burial, Graveyard, Tombstone, earliest
from thyme.substrates.quotas import Quota, Shares

THERE, UNKNOWN = "there", "unknown"
DELETED, EXPIRED, EVICTED = "deleted", "expired", "evicted"


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How much a broker stores, and for how long (M29); None means no limit."""

    age_us_max: int | None = None
    bytes_max: int | None = None
    objects_max: int = 10_000_000


OBJECTS = Shelf("object", Metadata)
BURIED_OBJECTS = Shelf("buried object", Tombstone)


class Catalogue:
    """The stored objects of one broker."""

    def __init__(
        self,
        store: Store,
        limits: Limits,
        retention: Retention,
        burial: Burial,
        *,
        metadata_only: bool = False,
        quota: Quota | None = None,
        own: NodeId | None = None,
    ) -> None:
        """`own_id` is the node itself, which has no quota."""
        quota = quota or Quota()
        self._shares = Shares("objects", quota.objects, quota.bytes, exempt=own, store=store)
        self._store = store
        self._metadata_only = metadata_only
        self._limits = limits
        self._retention = retention
        self._graveyard = Graveyard(store, BURIED_OBJECTS, burial)
        self.history = store.history(OBJECTS)
        self.left: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.history)

    @property
    def bytes_held(self) -> int:
        """Bytes that count against `Retention.bytes_max`."""
        objects = 0 if self._metadata_only else self.history.object_bytes
        return self.history.summary_bytes + objects

    def add(self, metadata: Metadata, data: bytes, now_us: int) -> bool:
        """Stores an object; returns False if it is stored already, raises if it is not acceptable.

        With `metadata_only`, the data is ignored.
        """
        if (known := self.history.get(metadata.key)) is not None:
            if known != metadata:
                raise RejectedError(f"{metadata.key} is taken: an object never changes")
            return False
        name, weight = str(metadata.key), self._weight(metadata)
        self._refuse(metadata, name, data, now_us)
        self._shares.refuse(metadata.owner, weight)
        if not self._store.has_room(weight):
            raise FullError(f"the disk is full here: no room for {name}")
        self._make_room(weight, now_us)
        self._store.put(OBJECTS, name, metadata)
        if not self._metadata_only:
            self._store.put_data(name, data)
        self.history.add(metadata)
        self._shares.add(metadata.owner, weight)
        return True

    def delete(self, key: Key, by: NodeId, now_us: int, proof: bytes = b"") -> None:
        """Removes an object for its owner permanently; a repeated delete succeeds, too."""
        if key.owner != by:
            raise NotOwnerError(f"{key} belongs to another node: only its owner may delete it")
        match self.state(key):
            case "there":
                self._remove(key, DELETED, now_us, proof)
            case "deleted":
                return
            case state:
                raise NotFoundError(f"{key} is not stored here ({state})")

    def bury(self, key: Key, why: str, at_us: int, proof: bytes = b"") -> None:
        """Removes an object that was removed at another broker, and keeps a tombstone even if the
        object is not stored here: it may still be in transit (D15)."""
        if key in self.history:
            self._remove(key, why, at_us, proof)
        elif self._graveyard.why(str(key)) is None:
            self._graveyard.bury(str(key), why, at_us, proof)

    def forget(self, key: Key) -> None:
        """Removes an object for which another broker is responsible.

        No tombstone is kept, so it can be added again (D20, D24).
        """
        if key in self.history:
            self._take_out(key)

    def graves(self) -> Iterator[tuple[str, Tombstone]]:
        """The tombstones of removed objects, oldest first."""
        return self._graveyard.all()

    def data(self, key: Key) -> bytes:
        """The data of an object."""
        data = self._store.data(str(key)) if key in self.history else None
        if data is None:
            raise NotFoundError(f"{key} is not stored here ({self.state(key)})")
        return data

    def state(self, key: Key) -> str:
        """State of a key: `there`, the reason of its removal, or `unknown`."""
        return THERE if key in self.history else self._graveyard.why(str(key)) or UNKNOWN

    def expire(self, now_us: int) -> None:
        """Removes objects past their time to live or the age limit, and expired tombstones."""
        end_us = self.history.next_end_us()
        if end_us is not None and end_us <= now_us:
            for key in self.history.ended(now_us):
                self._remove(key, EXPIRED, now_us)
        while (ends_us_oldest := self._oldest_ends_us()) is not None and ends_us_oldest <= now_us:
            self._remove_oldest(EXPIRED, now_us)
        self._graveyard.expire(now_us)

    def next_expiry_us(self) -> int | None:
        """When the next object or tombstone expires; None if none does."""
        return earliest(
            self.history.next_end_us(),
            self._oldest_ends_us(),
            self._graveyard.next_expiry_us(),
        )

    def _oldest_ends_us(self) -> int | None:
        age_us_max = self._retention.age_us_max
        oldest = self.history.oldest() if age_us_max is not None else None
        return None if oldest is None or age_us_max is None else oldest.published_us + age_us_max

    def _refuse(self, metadata: Metadata, name: str, data: bytes, now_us: int) -> None:
        if (why := self._graveyard.why(name)) is not None:
            raise RejectedError(f"{name} was here and is {why}: its key cannot be used again")
        if metadata.expired(now_us):
            raise RejectedError(f"the life span of {name} is over")
        if not (self._metadata_only or metadata.describes(data)):
            raise RejectedError(f"the bytes of {name} are not those its metadata describes")
        if metadata.size > self._limits.data_bytes_max:
            raise RejectedError(f"at most {self._limits.data_bytes_max} bytes per object here")
        if len(metadata.summary) > self._limits.summary_bytes_max:
            raise RejectedError(f"at most {self._limits.summary_bytes_max} bytes per summary here")

    def _make_room(self, weight: int, now_us: int) -> None:
        """Evicts the oldest objects until a new one fits."""
        bytes_max = self._retention.bytes_max
        if bytes_max is not None and weight > bytes_max:
            raise RejectedError(f"an object of {weight} bytes never fits: {bytes_max} bytes in all")
        while len(self.history) >= self._retention.objects_max or (
            bytes_max is not None and self.bytes_held + weight > bytes_max
        ):
            self._remove_oldest(EVICTED, now_us)

    def _remove_oldest(self, why: str, now_us: int) -> None:
        oldest = self.history.oldest()
        assert oldest is not None, "a catalogue over its limit is not empty"
        self._remove(oldest.key, why, now_us)

    def _remove(self, key: Key, why: str, now_us: int, proof: bytes = b"") -> None:
        self._take_out(key)
        self.left[why] += 1
        self._graveyard.bury(str(key), why, now_us, proof)

    def _take_out(self, key: Key) -> None:
        metadata = self.history.remove(key)
        assert metadata is not None, f"{key} is not in the history"
        self._shares.remove(metadata.owner, self._weight(metadata))
        self._store.remove(OBJECTS, str(key))
        if not self._metadata_only:
            self._store.remove_data(str(key))

    def _weight(self, metadata: Metadata) -> int:
        return len(metadata.summary) + (0 if self._metadata_only else metadata.size)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        self._graveyard.check()
        assert len(self.history) <= self._retention.objects_max
        assert self._retention.bytes_max is None or self.bytes_held <= self._retention.bytes_max
