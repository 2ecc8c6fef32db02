"""Adaptive multipart caching: one capacity, divided among worlds by their demand.

Each world has a cache of its own, its part. `put_batch` divides the capacity before it inserts
(local popularity cache). `put` follows the thesis's algorithm 1 (global cache): while there is free
space, a world's part grows; when the cache is full, it is divided again after
`max_puts_above_limit` puts into a full part. The parts together never exceed the capacity.
Clauses: I12, I14, I15, B8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Generic

from thyme.substrates.infra.caches.config import CachesConfig
from thyme.substrates.infra.caches.partition import partition_sizes
from thyme.substrates.infra.caches.policies.factory import make_cache
from thyme.substrates.infra.caches.policies.interface import (
    Cache,
    EvictionCause,
    K,
    V,
    check_capacity,
)

WorldListener = Callable[[str, K, V, EvictionCause], None]
"""Receives the world, key and value of each entry that left a cache."""


class AdaptiveMultipartCache(Generic[K, V]):
    """A cache with one part per world."""

    def __init__(
        self,
        capacity: int,
        config: CachesConfig,
        listener: WorldListener[K, V] | None = None,
    ) -> None:
        self._capacity = check_capacity(capacity)
        self._config = config
        self._listener = listener
        self._parts: dict[str, Cache[K, V]] = {}
        self._puts_above: Counter[str] = Counter()
        self._weight_above: Counter[str] = Counter()
        self.hits = 0
        self.misses = 0

    @property
    def capacity(self) -> int:
        """The capacity of all parts together."""
        return self._capacity

    @property
    def weight(self) -> int:
        """The weight of all entries."""
        return sum(part.weight for part in self._parts.values())

    def __len__(self) -> int:
        return sum(map(len, self._parts.values()))

    def sizes(self) -> dict[str, int]:
        """The size of each world's part."""
        return {world: part.capacity for world, part in self._parts.items()}

    def keys(self, world: str) -> list[K]:
        """The keys of a world."""
        return list(self._parts.get(world, ()))

    def contains(self, world: str, key: K) -> bool:
        """Whether a key of a world is cached."""
        return world in self._parts and key in self._parts[world]

    def get(self, world: str, key: K) -> V | None:
        """Returns the value of a key, and counts a hit or a miss."""
        part = self._parts.get(world)
        value = None if part is None else part.get(key)
        if value is None:
            self.misses += 1
        else:
            self.hits += 1
        return value

    def peek(self, world: str, key: K) -> V | None:
        """Returns the value of a key without any effect on the cache."""
        part = self._parts.get(world)
        return None if part is None else part.peek(key)

    def put(self, world: str, key: K, value: V, weight: int = 1) -> bool:
        """Stores one value by algorithm 1; returns whether it is stored now."""
        is_new = world not in self._parts
        part = self._part(world)
        added = 0 if key in part else weight
        above = part.weight + added - part.capacity
        if above > 0:
            if self.weight + added <= self._capacity:
                self._grow(part, above)
            elif is_new and self._config.world_size_min:
                self._divide({world: weight})
            else:
                self._count_put_above(world, weight)
        return part.put(key, value, weight)

    def put_batch(self, items: Iterable[tuple[str, K, V, int]]) -> list[bool]:
        """Divides the cache for several new entries, then stores them; tells which are stored.

        An item is a world, a key, a value and a weight.
        """
        items = list(items)
        added = {(world, key): weight for world, key, _, weight in items}
        puts: Counter[str] = Counter()
        for (world, key), weight in added.items():
            puts[world] += 0 if self.contains(world, key) else weight
        self._divide(puts)
        for world, key, value, weight in items:
            self._part(world).put(key, value, weight)
        return [self.contains(world, key) for world, key, _, _ in items]

    def remove(self, world: str, key: K, cause: EvictionCause = EvictionCause.REMOVED) -> V | None:
        """Removes an entry; returns its value, None if there was none."""
        part = self._parts.get(world)
        return None if part is None else part.remove(key, cause)

    def resize(self, capacity: int) -> None:
        """Changes the capacity; the parts shrink or grow in proportion to their entries."""
        self._capacity = check_capacity(capacity)
        demand = {world: part.weight for world, part in self._parts.items()}
        self._set_sizes(partition_sizes(demand, capacity, self._config.world_size_min))

    def check(self) -> None:
        """Asserts that the parts fit into the capacity, and the entries into the parts."""
        assert sum(self.sizes().values()) <= self._capacity
        assert all(part.weight <= part.capacity for part in self._parts.values())

    # --- Division ---------------------------------------------------------------------------------

    def _part(self, world: str) -> Cache[K, V]:
        part = self._parts.get(world)
        if part is None:
            listener = self._listener

            def report(key: K, value: V, cause: EvictionCause) -> None:
                if listener is not None:
                    listener(world, key, value, cause)

            part = self._parts[world] = make_cache(self._config.policy, 0, report)
        return part

    def _grow(self, part: Cache[K, V], amount: int) -> None:
        """Enlarges a part by space that is in no part, then by unused space of other parts."""
        free = self._capacity - sum(self.sizes().values())
        others = [other for other in self._parts.values() if other is not part]
        for other in sorted(others, key=lambda other: other.weight - other.capacity):
            if free >= amount:
                break
            unused = min(other.capacity - other.weight, amount - free)
            other.resize(other.capacity - unused)
            free += unused
        part.resize(part.capacity + min(amount, free))

    def _count_put_above(self, world: str, weight: int) -> None:
        """Counts a put into a full part, and divides the cache again when there were enough."""
        self._puts_above[world] += 1
        self._weight_above[world] += weight
        if self._puts_above[world] >= self._config.max_puts_above_limit:
            self._divide({world: self._weight_above[world]})
            del self._puts_above[world], self._weight_above[world]

    def _divide(self, puts: Mapping[str, int]) -> None:
        """Sets the sizes of all parts by their entries and next puts."""
        demand = {world: part.weight for world, part in self._parts.items()}
        for world, weight in puts.items():
            demand[world] = demand.get(world, 0) + weight
        sizes = partition_sizes(demand, self._capacity, self._config.world_size_min)
        change = max((abs(sizes[world] - self._size(world)) for world in sizes), default=0)
        is_new = any(world not in self._parts for world in sizes)
        if is_new or change >= self._config.part_change_min:
            self._set_sizes(sizes)

    def _size(self, world: str) -> int:
        return self._parts[world].capacity if world in self._parts else 0

    def _set_sizes(self, sizes: Mapping[str, int]) -> None:
        """Resizes the parts, those that shrink first; drops parts without a size."""
        for world in sorted(sizes, key=lambda world: sizes[world] - self._size(world)):
            self._part(world).resize(sizes[world])
        for world, size in sizes.items():
            if not size:
                del self._parts[world], self._puts_above[world], self._weight_above[world]
