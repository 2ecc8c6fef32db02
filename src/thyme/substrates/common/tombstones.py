"""Tombstones: records of removed objects and subscriptions.

Entry point: `TombstoneStore`. A tombstone keeps late messages from restoring a removed record.
Bounded in number, and in time except for some reasons, such as a delete by the owner. Beyond the
number, the owner with most tombstones loses its oldest one, so that nobody can push out those of
others. What it protected is then refused by a horizon: no object of this owner that was published
before the removal is accepted any more, and no subscription that was started before the removed
one.
Clauses: M14, M18, D15, B5. Decision: docs/decisions/0049-horizons.md.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

import msgspec

from thyme.model.ids import NodeId
from thyme.model.time_frames import SECOND_US
from thyme.storage.store import RecordTable, Store

TOMBSTONE_AGE_US_MAX = 24 * 3600 * SECOND_US
"""How long a tombstone is kept, if it expires."""
TOMBSTONES_MAX = 100_000
"""Maximum number of tombstones of one kind of record."""
HORIZONS_MAX = 100_000
"""Maximum number of owners with a horizon of their own; beyond, one horizon counts for all."""
_HORIZON_MARGIN_US = 10 * SECOND_US
"""An object may be stamped this much later than its removal, by a clock that is ahead."""
_AHEAD_US_MAX = 3600 * SECOND_US
"""The horizon of one owner is at most this far ahead, since its clock may be."""
_EVERYBODY = ""


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """Reason and time of a removal, with the signature that authorised it (B5)."""

    reason: str
    removed_us: int
    proof: bytes = b""


class Horizon(msgspec.Struct, frozen=True, array_like=True):
    """Records of one owner that were made until this instant are not accepted any more."""

    until_us: int


class _KeysByOwner:
    """Keys by owner, oldest first, and the owner with most keys, in constant time."""

    def __init__(self) -> None:
        self._keys: dict[str, dict[str, None]] = {}
        self._owners: dict[int, dict[str, None]] = {}
        """Owners by their number of keys."""
        self._count_max = 0

    def add(self, key: str) -> None:
        owner = owner_text(key)
        keys = self._keys.setdefault(owner, {})
        self._forget_count(owner, len(keys))
        keys[key] = None
        self._owners.setdefault(len(keys), {})[owner] = None
        self._count_max = max(self._count_max, len(keys))

    def remove(self, key: str) -> None:
        owner = owner_text(key)
        keys = self._keys[owner]
        self._forget_count(owner, len(keys))
        del keys[key]
        if keys:
            self._owners.setdefault(len(keys), {})[owner] = None
        else:
            del self._keys[owner]
        while self._count_max and self._count_max not in self._owners:
            self._count_max -= 1

    def oldest_of_largest(self) -> str:
        """The oldest key of the owner with most keys."""
        owner = next(iter(self._owners[self._count_max]))
        return next(iter(self._keys[owner]))

    def _forget_count(self, owner: str, count: int) -> None:
        if count:
            owners = self._owners[count]
            del owners[owner]
            if not owners:
                del self._owners[count]


class TombstoneStore:
    """Tombstones of one kind of record, by the record's key as text."""

    def __init__(
        self,
        store: Store,
        table: RecordTable[Tombstone],
        age_us_max: int = TOMBSTONE_AGE_US_MAX,
        *,
        horizons: RecordTable[Horizon],
        expiring: Container[str] = (),
        made_us: Callable[[str], int] | None = None,
        permanent: bool = False,
    ) -> None:
        """Tombstones with a reason in `expiring` expire. `made_us` returns the instant of a record
        by its key; without it, a horizon counts from the removal. With `permanent`, an expired
        tombstone leaves a horizon, too: for a broker that never receives records from others that
        store them longer."""
        self._store = store
        self._table = table
        self._age_us_max = age_us_max
        self._tombstones = dict(store.load(table))
        self._by_owner = _KeysByOwner()
        self._expiring: dict[str, None] = {}
        for key, tombstone in self._tombstones.items():
            self._by_owner.add(key)
            if tombstone.reason in expiring:
                self._expiring[key] = None
        self._expiring_reasons = expiring
        self._made_us = made_us
        self._permanent = permanent
        self._horizon_table = horizons
        self._horizons = dict(store.load(horizons))
        self._latest_us = 0

    def add(self, key: str, reason: str, now_us: int, proof: bytes = b"") -> str | None:
        """Adds a tombstone; replaces an earlier one of the same key. Returns the key of the
        tombstone that was evicted for it, if any."""
        if self._tombstones.pop(key, None) is not None:
            self._by_owner.remove(key)
            self._expiring.pop(key, None)
        self._tombstones[key] = Tombstone(reason, now_us, proof)
        self._by_owner.add(key)
        if reason in self._expiring_reasons:
            self._expiring[key] = None
        self._store.remove(self._table, key)
        self._store.put(self._table, key, self._tombstones[key])
        if len(self._tombstones) <= TOMBSTONES_MAX:
            return None
        evicted = self._by_owner.oldest_of_largest()
        self._raise_horizon(evicted, self._remove(evicted).removed_us)
        return evicted

    def reason_for(self, key: str) -> str | None:
        """The reason of a removal; None if there is no tombstone."""
        tombstone = self._tombstones.get(key)
        return None if tombstone is None else tombstone.reason

    def get(self, key: str) -> Tombstone | None:
        """The tombstone of a record; None if there is none."""
        return self._tombstones.get(key)

    def __len__(self) -> int:
        return len(self._tombstones)

    def is_beyond_horizon(self, owner: NodeId, made_us: int) -> bool:
        """Whether a record is so old that it may have been removed and its tombstone evicted."""
        if not self._horizons:
            return False
        horizons = (self._horizons.get(owner.hex()), self._horizons.get(_EVERYBODY))
        return any(each is not None and made_us <= each.until_us for each in horizons)

    def all(self) -> Iterator[tuple[str, Tombstone]]:
        """All tombstones, oldest first."""
        return iter(self._tombstones.items())

    def expire(self, now_us: int) -> None:
        """Removes expired tombstones."""
        self._latest_us = max(self._latest_us, now_us)
        while (at_us := self.next_expiry_us()) is not None and at_us <= now_us:
            expired = next(iter(self._expiring))
            removed_us = self._remove(expired).removed_us
            if self._permanent:
                self._raise_horizon(expired, removed_us)

    def next_expiry_us(self) -> int | None:
        """When the next tombstone expires; None if none does."""
        if not self._expiring:
            return None
        return self._tombstones[next(iter(self._expiring))].removed_us + self._age_us_max

    def _remove(self, key: str) -> Tombstone:
        self._by_owner.remove(key)
        self._expiring.pop(key, None)
        self._store.remove(self._table, key)
        return self._tombstones.pop(key)

    def _raise_horizon(self, key: str, removed_us: int) -> None:
        """Refuses from now on what an evicted tombstone protected. An owner chooses the instants of
        its records and tombstones, so none counts for others that lies in the future."""
        owner, until_us = owner_text(key), removed_us + _HORIZON_MARGIN_US
        latest_us = self._latest_us
        if self._made_us is not None:
            until_us, latest_us = self._made_us(key), latest_us + _AHEAD_US_MAX
        if owner not in self._horizons and len(self._horizons) >= HORIZONS_MAX:
            owner, latest_us = _EVERYBODY, self._latest_us
        until_us = min(until_us, latest_us)
        known = self._horizons.get(owner)
        if known is None or known.until_us < until_us:
            self._horizons[owner] = Horizon(until_us)
            self._store.put(self._horizon_table, owner, self._horizons[owner])

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._tombstones) <= TOMBSTONES_MAX
        assert len(self._horizons) <= HORIZONS_MAX + 1
        assert self._expiring.keys() <= self._tombstones.keys()


def owner_text(key: str) -> str:
    """The owner in the text of a key."""
    return key.rpartition("@")[2]
