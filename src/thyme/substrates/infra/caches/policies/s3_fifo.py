"""S3-FIFO: a small FIFO queue for new entries, a main queue, and a ghost queue of evicted keys.

A new entry starts in the small queue, which has a tenth of the capacity. At its end the entry moves
to the main queue if it was used twice meanwhile; otherwise it is evicted, and its key is remembered
in the ghost queue. A key that returns while it is remembered starts in the main queue. At the end
of the main queue, an entry that was used goes round again, at most once for each of three uses.
Source: Yang, Zhang, Qiu, Yue, Vinayak 2023, with the refinement of the authors' libCacheSim: until
the first eviction, entries that do not fit into the small queue start in the main one.
Clauses: I12, I13, I14.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic

from thyme.substrates.infra.caches.policies.interface import (
    EvictionCause,
    EvictionListener,
    K,
    V,
    check_capacity,
    check_weight,
)

SMALL_SHARE = 0.1
GHOST_SHARE = 0.9
USES_TO_MAIN = 2
"""Uses in the small queue that bring an entry to the main queue."""
USES_MAX = 3


class _Entry(Generic[K, V]):
    __slots__ = ("queue", "uses", "value", "weight")

    def __init__(self, value: V, weight: int, queue: OrderedDict[K, _Entry[K, V]]) -> None:
        self.value = value
        self.weight = weight
        self.queue = queue
        self.uses = 0


class S3FifoCache(Generic[K, V]):
    """A cache with the policy S3-FIFO; see `interface.Cache`."""

    __slots__ = (
        "_capacity",
        "_entries",
        "_filled",
        "_ghost",
        "_ghost_max",
        "_ghost_weight",
        "_listener",
        "_main",
        "_main_max",
        "_main_weight",
        "_small",
        "_small_max",
        "_small_weight",
        "hits",
        "misses",
    )

    def __init__(self, capacity: int, listener: EvictionListener[K, V] | None = None) -> None:
        self._listener = listener
        self.hits = 0
        self.misses = 0
        self._entries: dict[K, _Entry[K, V]] = {}
        self._small: OrderedDict[K, _Entry[K, V]] = OrderedDict()
        self._main: OrderedDict[K, _Entry[K, V]] = OrderedDict()
        self._ghost: OrderedDict[K, int] = OrderedDict()  # weights of evicted entries
        self._small_weight = 0
        self._main_weight = 0
        self._ghost_weight = 0
        self._filled = False  # whether an entry was evicted since the capacity last grew
        self._set_capacity(check_capacity(capacity))

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def weight(self) -> int:
        return self._small_weight + self._main_weight

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            self.misses += 1
            return None
        self.hits += 1
        if entry.uses < USES_MAX:
            entry.uses += 1
        return entry.value

    def peek(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def put(self, key: K, value: V, weight: int = 1) -> bool:
        if not 0 < weight <= self._capacity:
            return self._refuse_too_large(key, value, weight)
        entry = self._entries.get(key)
        if entry is not None:
            return self._update(key, entry, value, weight)
        ghost_weight = self._ghost.pop(key, 0)
        self._ghost_weight -= ghost_weight
        if self._small_weight + self._main_weight + weight > self._capacity:
            self._make_space(weight, EvictionCause.CAPACITY)
        if ghost_weight or (not self._filled and self._small_weight + weight > self._small_max):
            queue = self._main
            self._main_weight += weight
        else:
            queue = self._small
            self._small_weight += weight
        self._entries[key] = queue[key] = _Entry(value, weight, queue)
        return True

    def remove(self, key: K, cause: EvictionCause = EvictionCause.REMOVED) -> V | None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return None
        del entry.queue[key]
        if entry.queue is self._small:
            self._small_weight -= entry.weight
        else:
            self._main_weight -= entry.weight
        if self._listener is not None:
            self._listener(key, entry.value, cause)
        return entry.value

    def resize(self, capacity: int) -> None:
        check_capacity(capacity)
        self._filled = self._filled and capacity <= self._capacity
        self._set_capacity(capacity)
        self._make_space(0, EvictionCause.RESIZE)
        self._trim_ghost()

    def _set_capacity(self, capacity: int) -> None:
        self._capacity = capacity
        self._small_max = int(capacity * SMALL_SHARE)
        self._main_max = capacity - self._small_max
        self._ghost_max = int(capacity * GHOST_SHARE)

    def _refuse_too_large(self, key: K, value: V, weight: int) -> bool:
        check_weight(weight)
        self.remove(key, EvictionCause.REPLACED)
        if self._listener is not None:
            self._listener(key, value, EvictionCause.TOO_LARGE)
        return False

    def _update(self, key: K, entry: _Entry[K, V], value: V, weight: int) -> bool:
        """Replaces the value and weight of an entry; this is a use of it."""
        replaced, entry.value = entry.value, value
        if entry.queue is self._small:
            self._small_weight += weight - entry.weight
        else:
            self._main_weight += weight - entry.weight
        entry.weight = weight
        entry.uses = min(entry.uses + 1, USES_MAX)
        if self._listener is not None:
            self._listener(key, replaced, EvictionCause.REPLACED)
        self._make_space(0, EvictionCause.CAPACITY)
        return key in self._entries

    def _make_space(self, weight: int, cause: EvictionCause) -> None:
        """Evicts entries until an entry of this weight fits."""
        while self._small_weight + self._main_weight + weight > self._capacity:
            self._filled = True
            if self._main_weight > self._main_max or not self._small:
                self._evict_main(cause)
            else:
                self._evict_small(cause)

    def _evict_small(self, cause: EvictionCause) -> None:
        """Evicts the first little used entry of the small queue; moves those before it to main."""
        small, main = self._small, self._main
        while small:
            key, entry = small.popitem(last=False)
            self._small_weight -= entry.weight
            if entry.uses < USES_TO_MAIN:
                del self._entries[key]
                self._ghost[key] = entry.weight
                self._ghost_weight += entry.weight
                self._trim_ghost()
                if self._listener is not None:
                    self._listener(key, entry.value, cause)
                return
            entry.uses = 0
            entry.queue = main
            main[key] = entry
            self._main_weight += entry.weight

    def _evict_main(self, cause: EvictionCause) -> None:
        """Evicts the first unused entry of the main queue; moves those before it to the end."""
        main = self._main
        while True:
            key, entry = main.popitem(last=False)
            if not entry.uses:
                break
            entry.uses -= 1
            main[key] = entry
        del self._entries[key]
        self._main_weight -= entry.weight
        if self._listener is not None:
            self._listener(key, entry.value, cause)

    def _trim_ghost(self) -> None:
        while self._ghost_weight > self._ghost_max:
            self._ghost_weight -= self._ghost.popitem(last=False)[1]
