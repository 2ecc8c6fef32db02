"""The naive W-TinyLFU: lists, and sums computed anew every time; the cache is compared with it.

Clauses: I12, I13, I14.
"""

from __future__ import annotations

from thyme.substrates.infra.caches.policies.frequency_sketch import COUNT_MAX, COUNTERS_PER_ENTRY
from thyme.substrates.infra.caches.policies.interface import EvictionCause
from thyme.substrates.infra.caches.policies.key_hash import hash_pair
from thyme.substrates.infra.caches.policies.window_climber import WindowClimber


class SketchTwin:
    """A list of counters."""

    def __init__(self) -> None:
        self.entries = 128
        self.counters = [0] * (self.entries * COUNTERS_PER_ENTRY)

    def _places(self, key: object) -> set[int]:
        return {hashed % len(self.counters) for hashed in hash_pair(key)}

    def estimate(self, key: object) -> int:
        return min(self.counters[place] for place in self._places(key))

    def record(self, key: object) -> None:
        count = self.estimate(key)
        if count < COUNT_MAX:
            for place in self._places(key):
                self.counters[place] = max(self.counters[place], count + 1)

    def age(self) -> int:
        odd = sum(count % 2 for count in self.counters)
        self.counters = [count // 2 for count in self.counters]
        return odd

    def grow(self) -> None:
        self.entries *= 2
        self.counters = self.counters * 2


class WTinyLfuTwin:
    """Has the interface of `WTinyLfuCache`; least recently used keys are first in each list."""

    def __init__(self, capacity: int, window_share: float | None = None) -> None:
        self.evictions: list[tuple[int, str, EvictionCause]] = []
        self.values: dict[int, str] = {}
        self.weights: dict[int, int] = {}
        self.window: list[int] = []
        self.probation: list[int] = []
        self.protected: list[int] = []
        self.sketch = SketchTwin()
        self.window_share = window_share
        self.climber = None if window_share is not None else WindowClimber()
        self.capacity = capacity
        self.hits = self.misses = 0
        self.seen = (0, 0)
        self.set_window(0)
        self.age_after = 10 * self.entries_when_full()
        self.climb_after = self.sample_length()
        self.planned = self.left = 0
        self.plan()

    @property
    def weight(self) -> int:
        return sum(self.weights.values())

    def weigh(self, segment: list[int]) -> int:
        return sum(self.weights[key] for key in segment)

    def get(self, key: int) -> str | None:
        if key not in self.values:
            self.misses += 1
            return None
        self.hits += 1
        value = self.values[key]
        self.touch(key)
        self.use()
        return value

    def touch(self, key: int) -> None:
        self.sketch.record(key)
        if key in self.window:
            self.window.remove(key)
            self.window.append(key)
            return
        (self.probation if key in self.probation else self.protected).remove(key)
        self.protected.append(key)
        self.demote()

    def demote(self) -> None:
        while self.weigh(self.protected) > self.protected_max:
            self.probation.append(self.protected.pop(0))

    def put(self, key: int, value: str, weight: int) -> bool:
        known = key in self.values
        if known:
            self.evictions.append((key, self.values[key], EvictionCause.REPLACED))
        if weight > self.capacity:
            if known:
                self.forget(key)
            self.evictions.append((key, value, EvictionCause.TOO_LARGE))
            return False
        self.values[key] = value
        self.weights[key] = weight
        if known:
            self.touch(key)
            self.demote()
        else:
            self.sketch.record(key)
            self.window.append(key)
        self.drain(EvictionCause.REFUSED, EvictionCause.CAPACITY)
        self.shrink(EvictionCause.CAPACITY)
        self.use()
        return key in self.values

    def drain(self, refused: EvictionCause, displaced: EvictionCause) -> None:
        while self.weigh(self.window) > self.window_max:
            candidate = self.window.pop(0)
            victims = self.victims(candidate)
            if victims is None:
                self.evict(candidate, refused)
                continue
            for victim in victims:
                self.evict(victim, displaced)
            self.probation.append(candidate)

    def victims(self, candidate: int) -> list[int] | None:
        """The entries that make space for a candidate; None if it is refused."""
        needed = min(self.weights[candidate], self.weight - self.capacity)
        victims: list[int] = []
        for victim in self.probation + self.protected:
            if self.weigh(victims) >= needed:
                break
            victims.append(victim)
        enough = self.weigh(victims) >= needed
        uses = sum(self.sketch.estimate(victim) for victim in victims)
        preferred = not victims or self.sketch.estimate(candidate) > uses
        return victims if enough and preferred else None

    def shrink(self, cause: EvictionCause) -> None:
        while self.weight > self.capacity:
            self.evict((self.probation + self.protected + self.window)[0], cause)

    def evict(self, key: int, cause: EvictionCause) -> None:
        self.evictions.append((key, self.values[key], cause))
        self.forget(key)

    def forget(self, key: int) -> None:
        for segment in (self.window, self.probation, self.protected):
            if key in segment:
                segment.remove(key)
        del self.values[key], self.weights[key]

    def remove(self, key: int) -> str | None:
        value = self.values.get(key)
        if value is not None:
            self.evict(key, EvictionCause.REMOVED)
        return value

    def resize(self, capacity: int) -> None:
        share = self.window_max / max(1, self.capacity)
        self.capacity = capacity
        self.set_window(int(share * capacity))
        if self.weight > capacity:
            self.drain(EvictionCause.RESIZE, EvictionCause.RESIZE)
        self.shrink(EvictionCause.RESIZE)
        self.demote()
        self.age_after = min(self.age_after, 10 * self.entries_when_full())
        self.climb_after = min(self.climb_after, self.sample_length())
        self.plan()

    # --- Ageing and adaptation --------------------------------------------------------------------

    def entries_when_full(self) -> int:
        if not self.values:
            return max(1, self.capacity)
        return max(1, self.capacity * len(self.values) // self.weight or self.capacity)

    def sample_length(self) -> int:
        entries = self.entries_when_full()
        return 10 * entries if self.climber is None else self.climber.sample_length(entries)

    def plan(self) -> None:
        self.planned = max(1, min(self.age_after, self.climb_after, self.sketch.entries))
        self.left = self.planned

    def use(self) -> None:
        self.left -= 1
        if self.left:
            return
        while len(self.values) > self.sketch.entries:
            self.sketch.grow()
        self.age_after -= self.planned
        self.climb_after -= self.planned
        if self.age_after <= 0:
            sample = 10 * self.entries_when_full()
            self.age_after = sample - max(0, sample - self.sketch.age() // 2) // 2
        if self.climb_after <= 0:
            if self.climber is not None and self.weight >= 0.9 * self.capacity:
                self.climb(self.climber)
            self.climb_after = self.sample_length()
        self.plan()

    def climb(self, climber: WindowClimber) -> None:
        hits, misses = self.hits - self.seen[0], self.misses - self.seen[1]
        self.seen = (self.hits, self.misses)
        step = climber.next_step(hits / max(1, hits + misses))
        target = self.window_max + int(step * self.capacity)
        self.set_window(target)
        if self.window_max != target:
            climber.reverse()
        self.demote()
        while self.probation and (
            self.weigh(self.window) + self.weights[self.probation[0]] <= self.window_max
        ):
            self.window.append(self.probation.pop(0))
        self.drain(EvictionCause.REFUSED, EvictionCause.CAPACITY)

    def set_window(self, window: int) -> None:
        if self.window_share is not None:
            window = int(self.window_share * self.capacity)
        else:
            mean = self.weight // max(1, len(self.values)) or 1
            small = min(int(0.1 * self.capacity), 16 * mean)
            window = max(window, int(0.01 * self.capacity), small)
        self.window_max = min(max(1, window), self.capacity)
        self.protected_max = int(0.8 * (self.capacity - self.window_max))
