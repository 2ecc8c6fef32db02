"""The naive S3-FIFO: lists, and sums computed anew every time; the cache is compared with it.

Clauses: I12, I13, I14.
"""

from __future__ import annotations

from thyme.substrates.infra.caches.policies.interface import EvictionCause


class S3FifoTwin:
    """Has the interface of `S3FifoCache`; the next key to leave is first in each list."""

    def __init__(self, capacity: int) -> None:
        self.evictions: list[tuple[int, str, EvictionCause]] = []
        self.values: dict[int, str] = {}
        self.weights: dict[int, int] = {}
        self.uses: dict[int, int] = {}
        self.small: list[int] = []
        self.main: list[int] = []
        self.ghost: list[tuple[int, int]] = []
        self.filled = False
        self.capacity = capacity
        self.hits = self.misses = 0

    @property
    def weight(self) -> int:
        return sum(self.weights.values())

    def weigh(self, queue: list[int]) -> int:
        return sum(self.weights[key] for key in queue)

    @property
    def small_max(self) -> int:
        return int(self.capacity * 0.1)

    def get(self, key: int) -> str | None:
        if key not in self.values:
            self.misses += 1
            return None
        self.hits += 1
        self.uses[key] = min(3, self.uses[key] + 1)
        return self.values[key]

    def put(self, key: int, value: str, weight: int) -> bool:
        known = key in self.values
        if known:
            self.evictions.append((key, self.values[key], EvictionCause.REPLACED))
        if weight > self.capacity:
            if known:
                self.forget(key)
            self.evictions.append((key, value, EvictionCause.TOO_LARGE))
            return False
        if known:
            self.values[key] = value
            self.weights[key] = weight
            self.uses[key] = min(3, self.uses[key] + 1)
            self.shrink(0, EvictionCause.CAPACITY)
            return key in self.values
        remembered = any(key == other for other, _ in self.ghost)
        self.ghost = [(other, size) for other, size in self.ghost if other != key]
        self.shrink(weight, EvictionCause.CAPACITY)
        full = self.weigh(self.small) + weight > self.small_max
        (self.main if remembered or (full and not self.filled) else self.small).append(key)
        self.values[key] = value
        self.weights[key] = weight
        self.uses[key] = 0
        return True

    def shrink(self, weight: int, cause: EvictionCause) -> None:
        while self.weight + weight > self.capacity:
            self.filled = True
            if self.weigh(self.main) > self.capacity - self.small_max or not self.small:
                self.evict_main(cause)
            else:
                self.evict_small(cause)

    def evict_small(self, cause: EvictionCause) -> None:
        while self.small and self.uses[self.small[0]] >= 2:
            key = self.small.pop(0)
            self.uses[key] = 0
            self.main.append(key)
        if self.small:
            key = self.small[0]
            self.ghost.append((key, self.weights[key]))
            self.trim_ghost()
            self.evict(key, cause)

    def evict_main(self, cause: EvictionCause) -> None:
        while self.uses[self.main[0]]:
            key = self.main.pop(0)
            self.uses[key] -= 1
            self.main.append(key)
        self.evict(self.main[0], cause)

    def trim_ghost(self) -> None:
        while sum(size for _, size in self.ghost) > int(self.capacity * 0.9):
            self.ghost.pop(0)

    def evict(self, key: int, cause: EvictionCause) -> None:
        self.evictions.append((key, self.values[key], cause))
        self.forget(key)

    def forget(self, key: int) -> None:
        for queue in (self.small, self.main):
            if key in queue:
                queue.remove(key)
        del self.values[key], self.weights[key], self.uses[key]

    def remove(self, key: int) -> str | None:
        value = self.values.get(key)
        if value is not None:
            self.evict(key, EvictionCause.REMOVED)
        return value

    def resize(self, capacity: int) -> None:
        self.filled = self.filled and capacity <= self.capacity
        self.capacity = capacity
        self.shrink(0, EvictionCause.RESIZE)
        self.trim_ghost()
