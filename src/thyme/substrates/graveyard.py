"""Tombstones: records of removed objects and subscriptions.

Entry point: `TombstoneStore`. A tombstone keeps late messages from restoring a removed record.
Bounded in number and time; the oldest tombstones are removed first.
Clauses: M14, M18, D15, B5.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thyme.model.frames import SECOND_US
from thyme.storage.store import Shelf, Store


class Burial(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum age and number of tombstones."""

    life_us: int = 24 * 3600 * SECOND_US
    graves_max: int = 100_000


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """Reason and time of a removal, with the signature that authorised it (B5)."""

    why: str
    at_us: int
    proof: bytes = b""


class Graveyard:
    """Tombstones of one kind of record, by the record's key as text."""

    def __init__(self, store: Store, shelf: Shelf[Tombstone], burial: Burial) -> None:
        self._store = store
        self._shelf = shelf
        self._burial = burial
        self._graves = dict(store.load(shelf))

    def bury(self, key: str, why: str, now_us: int, proof: bytes = b"") -> None:
        """Adds a tombstone; replaces an earlier one of the same key."""
        self._graves.pop(key, None)
        self._graves[key] = Tombstone(why, now_us, proof)
        self._store.remove(self._shelf, key)
        self._store.put(self._shelf, key, self._graves[key])
        if len(self._graves) > self._burial.graves_max:
            self._forget_oldest()

    def why(self, key: str) -> str | None:
        """The reason of a removal; None if there is no tombstone."""
        tombstone = self._graves.get(key)
        return None if tombstone is None else tombstone.why

    def all(self) -> Iterator[tuple[str, Tombstone]]:
        """All tombstones, oldest first."""
        return iter(self._graves.items())

    def expire(self, now_us: int) -> None:
        """Removes expired tombstones."""
        while (at_us := self.next_expiry_us()) is not None and at_us <= now_us:
            self._forget_oldest()

    def next_expiry_us(self) -> int | None:
        """When the oldest tombstone expires; None if there is none."""
        if not self._graves:
            return None
        return next(iter(self._graves.values())).at_us + self._burial.life_us

    def _forget_oldest(self) -> None:
        key = next(iter(self._graves))
        del self._graves[key]
        self._store.remove(self._shelf, key)

    def check(self) -> None:
        """Asserts the invariants that hold between inputs."""
        assert len(self._graves) <= self._burial.graves_max


def earliest(*instants_us: int | None) -> int | None:
    """The earliest of several times; None means never."""
    first_us: int | None = None
    for at_us in instants_us:
        if at_us is not None and (first_us is None or at_us < first_us):
            first_us = at_us
    return first_us
