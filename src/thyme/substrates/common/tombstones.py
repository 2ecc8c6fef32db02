"""Tombstones: records of removed objects and subscriptions.

Entry point: `TombstoneStore`. A tombstone keeps late messages from restoring a removed record.
Bounded in number and time; the oldest tombstones are removed first.
Clauses: M14, M18, D15, B5.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thyme.model.time_frames import SECOND_US
from thyme.storage.store import RecordTable, Store

TOMBSTONE_AGE_US_MAX = 24 * 3600 * SECOND_US
TOMBSTONES_MAX = 100_000
"""Maximum number of tombstones of one kind of record."""


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """Reason and time of a removal, with the signature that authorised it (B5)."""

    reason: str
    removed_us: int
    proof: bytes = b""


class TombstoneStore:
    """Tombstones of one kind of record, by the record's key as text."""

    def __init__(
        self,
        store: Store,
        table: RecordTable[Tombstone],
        age_us_max: int = TOMBSTONE_AGE_US_MAX,
    ) -> None:
        self._store = store
        self._table = table
        self._age_us_max = age_us_max
        self._tombstones = dict(store.load(table))

    def add(self, key: str, reason: str, now_us: int, proof: bytes = b"") -> None:
        """Adds a tombstone; replaces an earlier one of the same key."""
        self._tombstones.pop(key, None)
        self._tombstones[key] = Tombstone(reason, now_us, proof)
        self._store.remove(self._table, key)
        self._store.put(self._table, key, self._tombstones[key])
        if len(self._tombstones) > TOMBSTONES_MAX:
            self._remove_oldest()

    def reason_for(self, key: str) -> str | None:
        """The reason of a removal; None if there is no tombstone."""
        tombstone = self._tombstones.get(key)
        return None if tombstone is None else tombstone.reason

    def all(self) -> Iterator[tuple[str, Tombstone]]:
        """All tombstones, oldest first."""
        return iter(self._tombstones.items())

    def expire(self, now_us: int) -> None:
        """Removes expired tombstones."""
        while (at_us := self.next_expiry_us()) is not None and at_us <= now_us:
            self._remove_oldest()

    def next_expiry_us(self) -> int | None:
        """When the oldest tombstone expires; None if there is none."""
        if not self._tombstones:
            return None
        return next(iter(self._tombstones.values())).removed_us + self._age_us_max

    def _remove_oldest(self) -> None:
        key = next(iter(self._tombstones))
        del self._tombstones[key]
        self._store.remove(self._table, key)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._tombstones) <= TOMBSTONES_MAX
