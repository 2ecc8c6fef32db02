"""The interface of all caches: bounded by weight, resizable, and reporting every eviction.

A cache holds values by key. Each entry has a weight, 1 by default: with the default, capacity
counts entries; with sizes as weights, bytes. A cache never holds more weight than its capacity.
Caches know no clock: the owner removes expired entries, with the cause `EXPIRED`.
Clauses: I12, I13, I14.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from enum import Enum
from typing import Protocol, TypeVar

from thyme.model.errors import InputError

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class EvictionCause(Enum):
    """Why an entry left a cache, or was not stored."""

    CAPACITY = "capacity"
    """Other entries needed the space."""
    REFUSED = "refused"
    """The admission filter preferred the entries that would have made space for it."""
    TOO_LARGE = "too_large"
    """Its weight exceeds the capacity of the cache."""
    RESIZE = "resize"
    """The capacity was lowered."""
    REPLACED = "replaced"
    """A new value was put under its key."""
    REMOVED = "removed"
    """The owner of the cache removed it."""
    EXPIRED = "expired"
    """The owner of the cache removed it because its time to live had ended."""


EvictionListener = Callable[[K, V, EvictionCause], None]
"""Receives each entry that left a cache, at once. A listener must not change the cache."""


class Cache(Protocol[K, V]):
    """A cache with one eviction policy."""

    hits: int
    """The number of `get` calls that found their key."""
    misses: int
    """The number of `get` calls that did not."""

    @property
    def capacity(self) -> int:
        """The maximum total weight."""

    @property
    def weight(self) -> int:
        """The total weight of all entries."""

    def __len__(self) -> int: ...

    def __contains__(self, key: K) -> bool: ...

    def __iter__(self) -> Iterator[K]:
        """All keys, in the order in which they were stored first."""

    def get(self, key: K) -> V | None:
        """Returns the value of a key, and counts a hit or a miss."""

    def peek(self, key: K) -> V | None:
        """Returns the value of a key without any effect on the cache."""

    def put(self, key: K, value: V, weight: int = 1) -> bool:
        """Stores a value, perhaps in place of another; returns whether it is stored now."""

    def remove(self, key: K, cause: EvictionCause = EvictionCause.REMOVED) -> V | None:
        """Removes an entry; returns its value, None if there was none."""

    def resize(self, capacity: int) -> None:
        """Changes the capacity; takes time in proportion to the number of evicted entries."""


def check_capacity(capacity: int) -> int:
    """Returns a valid capacity; raises `InputError` otherwise."""
    if capacity < 0:
        raise InputError(f"the capacity of a cache must not be negative: {capacity}")
    return capacity


def check_weight(weight: int) -> int:
    """Returns a valid weight; with entries of weight 0, a cache would be unbounded."""
    if weight < 1:
        raise InputError(f"the weight of a cache entry must be at least 1: {weight}")
    return weight


def hit_ratio(cache: Cache[K, V]) -> float:
    """The share of `get` calls that found their key; 0 before the first call."""
    return cache.hits / max(1, cache.hits + cache.misses)
