"""Graveyard: tombstones, so that a late message cannot bring back what has left.

Bounded in number and in time; the oldest go first.
Clauses: M14, M18, D15, B5.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from thyme.model.frames import SECOND_US
from thyme.storage.store import Shelf, Store


class Burial(msgspec.Struct, frozen=True, kw_only=True):
    """How long and how many tombstones are kept."""

    life_us: int = 24 * 3600 * SECOND_US
    graves_max: int = 100_000


class Tombstone(msgspec.Struct, frozen=True, array_like=True):
    """Why and when something left; with the proof of whoever wanted it so (B5)."""

    why: str
    at_us: int
    proof: bytes = b""


class Graveyard:
    """The tombstones of one kind of thing, by their written key."""

    def __init__(self, store: Store, shelf: Shelf[Tombstone], burial: Burial) -> None:
        self._store = store
        self._shelf = shelf
        self._burial = burial
        self._graves = dict(store.load(shelf))

    def bury(self, key: str, why: str, now_us: int, proof: bytes = b"") -> None:
        """Remembers that something left."""
        self._graves.pop(key, None)
        self._graves[key] = Tombstone(why, now_us, proof)
        self._store.remove(self._shelf, key)
        self._store.put(self._shelf, key, self._graves[key])
        if len(self._graves) > self._burial.graves_max:
            self._forget_oldest()

    def why(self, key: str) -> str | None:
        """Why something left, if it did so lately."""
        grave = self._graves.get(key)
        return None if grave is None else grave.why

    def all(self) -> Iterator[tuple[str, Tombstone]]:
        """Every tombstone, oldest first."""
        return iter(self._graves.items())

    def expire(self, now_us: int) -> None:
        """Forgets what left long ago."""
        while (at_us := self.next_expiry_us()) is not None and at_us <= now_us:
            self._forget_oldest()

    def next_expiry_us(self) -> int | None:
        """When the oldest tombstone may go."""
        if not self._graves:
            return None
        return next(iter(self._graves.values())).at_us + self._burial.life_us

    def _forget_oldest(self) -> None:
        key = next(iter(self._graves))
        del self._graves[key]
        self._store.remove(self._shelf, key)

    def check(self) -> None:
        """Asserts what must hold between any two inputs."""
        assert len(self._graves) <= self._burial.graves_max


def earliest(*instants_us: int | None) -> int | None:
    """The first of some instants, of which some may never come."""
    first_us: int | None = None
    for at_us in instants_us:
        if at_us is not None and (first_us is None or at_us < first_us):
            first_us = at_us
    return first_us
