"""W-TinyLFU: an LRU window in front of a segmented LRU, with admission by frequency.

A new entry starts in the window. An entry that falls out of the full window is a candidate: it
enters the main part if it was used more often, by the frequency sketch, than the entries that would
have to make space for it. The main part has a probation segment for candidates and a protected one
for entries that were used again. The size of the window adapts to the hit ratio, unless it is
fixed.
Sources: Einziger, Friedman, Manes 2017 (policy), 2018 (adaptive window), 2022 (weights).
Clauses: I12, I13, I14.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic

from thyme.substrates.infra.caches.policies.frequency_sketch import COUNT_MAX, FrequencySketch
from thyme.substrates.infra.caches.policies.interface import (
    EvictionCause,
    EvictionListener,
    K,
    V,
    check_capacity,
    check_weight,
)
from thyme.substrates.infra.caches.policies.key_hash import hash_pair
from thyme.substrates.infra.caches.policies.window_climber import WindowClimber

WINDOW_SHARE_MIN = 0.01
WINDOW_SHARE_SMALL = 0.1
WINDOW_ENTRIES_SMALL = 16
"""The smallest window: 1 % of the cache, but in a small cache 10 % of it, up to 16 entries."""
PROTECTED_SHARE = 0.8
"""The share of the main part that is protected."""
SAMPLE_FACTOR = 10
"""Uses per entry that the frequency sketch counts before it is aged."""


class _Entry(Generic[K, V]):
    __slots__ = ("first", "key", "second", "segment", "value", "weight")

    def __init__(
        self,
        key: K,
        value: V,
        weight: int,
        first: int,
        second: int,
        segment: OrderedDict[K, _Entry[K, V]],
    ) -> None:
        self.key = key
        self.value = value
        self.weight = weight
        self.first = first
        self.second = second
        self.segment = segment


class WTinyLfuCache(Generic[K, V]):
    """A cache with the policy W-TinyLFU; see `interface.Cache`.

    With `window_share`, the window has this share of the capacity and does not adapt.
    """

    __slots__ = (
        "_age_after",
        "_capacity",
        "_climb_after",
        "_climber",
        "_entries",
        "_hits_before",
        "_listener",
        "_misses_before",
        "_probation",
        "_protected",
        "_protected_max",
        "_protected_weight",
        "_sketch",
        "_uses_left",
        "_uses_planned",
        "_window",
        "_window_max",
        "_window_share",
        "_window_weight",
        "hits",
        "misses",
        "weight",
    )

    def __init__(
        self,
        capacity: int,
        listener: EvictionListener[K, V] | None = None,
        *,
        window_share: float | None = None,
    ) -> None:
        self._capacity = check_capacity(capacity)
        self._listener = listener
        self.hits = 0
        self.misses = 0
        self.weight = 0
        self._entries: dict[K, _Entry[K, V]] = {}
        self._window: OrderedDict[K, _Entry[K, V]] = OrderedDict()
        self._probation: OrderedDict[K, _Entry[K, V]] = OrderedDict()
        self._protected: OrderedDict[K, _Entry[K, V]] = OrderedDict()
        self._window_weight = 0
        self._protected_weight = 0
        self._sketch = FrequencySketch()
        self._climber = WindowClimber() if window_share is None else None
        self._window_share = window_share or 0.0
        self._hits_before = 0
        self._misses_before = 0
        self._set_window(0)
        self._age_after = SAMPLE_FACTOR * self._entries_when_full()
        self._climb_after = self._sample_length()
        self._plan_maintenance()

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def window_capacity(self) -> int:
        """The present size of the window."""
        return self._window_max

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
        # As `FrequencySketch.record`, without the call.
        sketch = self._sketch
        table = sketch.table
        first = entry.first & sketch.mask
        second = entry.second & sketch.mask
        count = table[first]
        other = table[second]
        if count < other:
            table[first] = count + 1
        elif other < count:
            table[second] = other + 1
        elif count < COUNT_MAX:
            table[first] = table[second] = count + 1
        segment = entry.segment
        if segment is self._probation:
            self._promote(entry)
        else:
            segment.move_to_end(key)
        self._uses_left -= 1
        if not self._uses_left:
            self._maintain()
        return entry.value

    def peek(self, key: K) -> V | None:
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def put(self, key: K, value: V, weight: int = 1) -> bool:
        if not 0 < weight <= self._capacity:
            return self._refuse_too_large(key, value, weight)
        entry = self._entries.get(key)
        if entry is not None:
            return self._update(entry, value, weight)
        first, second = hash_pair(key)
        self._sketch.record(first, second)
        window = self._window
        self._entries[key] = window[key] = _Entry(key, value, weight, first, second, window)
        self.weight += weight
        self._window_weight += weight
        if self._window_weight > self._window_max:
            self._drain_window()
        if self.weight > self._capacity:
            self._evict_until_it_fits(EvictionCause.CAPACITY)
        self._uses_left -= 1
        if not self._uses_left:
            self._maintain()
        return key in self._entries

    def remove(self, key: K, cause: EvictionCause = EvictionCause.REMOVED) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        self._evict(entry, cause)
        return entry.value

    def resize(self, capacity: int) -> None:
        window_share = self._window_max / max(1, self._capacity)
        self._capacity = check_capacity(capacity)
        self._set_window(int(window_share * capacity))
        if self.weight > capacity:
            self._drain_window(EvictionCause.RESIZE, EvictionCause.RESIZE)
        self._evict_until_it_fits(EvictionCause.RESIZE)
        self._demote()
        self._age_after = min(self._age_after, SAMPLE_FACTOR * self._entries_when_full())
        self._climb_after = min(self._climb_after, self._sample_length())
        self._plan_maintenance()

    # --- Puts that are not new entries ------------------------------------------------------------

    def _refuse_too_large(self, key: K, value: V, weight: int) -> bool:
        check_weight(weight)
        self.remove(key, EvictionCause.REPLACED)
        if self._listener is not None:
            self._listener(key, value, EvictionCause.TOO_LARGE)
        return False

    def _update(self, entry: _Entry[K, V], value: V, weight: int) -> bool:
        """Replaces the value and weight of an entry; this is a use of it."""
        key = entry.key
        segment = entry.segment
        replaced, entry.value = entry.value, value
        change = weight - entry.weight
        entry.weight = weight
        self.weight += change
        if segment is self._window:
            self._window_weight += change
        elif segment is self._protected:
            self._protected_weight += change
        if self._listener is not None:
            self._listener(key, replaced, EvictionCause.REPLACED)
        self._sketch.record(entry.first, entry.second)
        if segment is self._probation:
            self._promote(entry)
        else:
            segment.move_to_end(key)
            self._demote()
        self._drain_window()
        self._evict_until_it_fits(EvictionCause.CAPACITY)
        self._uses_left -= 1
        if not self._uses_left:
            self._maintain()
        return key in self._entries

    # --- Moves between segments, and evictions ----------------------------------------------------

    def _promote(self, entry: _Entry[K, V]) -> None:
        key = entry.key
        del self._probation[key]
        self._protected[key] = entry
        entry.segment = self._protected
        self._protected_weight += entry.weight
        if self._protected_weight > self._protected_max:
            self._demote()

    def _demote(self) -> None:
        """Moves the least recently used protected entries to probation until the others fit."""
        while self._protected_weight > self._protected_max:
            key, entry = self._protected.popitem(last=False)
            self._protected_weight -= entry.weight
            self._probation[key] = entry
            entry.segment = self._probation

    def _drain_window(
        self,
        refused: EvictionCause = EvictionCause.REFUSED,
        displaced: EvictionCause = EvictionCause.CAPACITY,
    ) -> None:
        """Offers the least recently used entries of the window to the main part until it fits."""
        probation = self._probation
        while self._window_weight > self._window_max:
            key, candidate = self._window.popitem(last=False)
            self._window_weight -= candidate.weight
            if self.weight <= self._capacity or self._displace(candidate, displaced):
                probation[key] = candidate
                candidate.segment = probation
                continue
            del self._entries[key]
            self.weight -= candidate.weight
            if self._listener is not None:
                self._listener(key, candidate.value, refused)

    def _displace(self, candidate: _Entry[K, V], cause: EvictionCause) -> bool:
        """Evicts entries of the main part if the sketch prefers the candidate to all of them.

        A candidate that is as heavy as several entries must have been used more often than all of
        them together.
        """
        sketch = self._sketch
        table = sketch.table
        mask = sketch.mask
        count = table[candidate.first & mask]
        other = table[candidate.second & mask]
        uses = count if count < other else other
        if not uses:
            return False
        space = min(candidate.weight, self.weight - self._capacity)
        if self._probation:
            first = next(iter(self._probation.values()))
            count = table[first.first & mask]
            other = table[first.second & mask]
            if uses <= (count if count < other else other):
                return False
            if first.weight >= space:  # always so if all entries have the same weight
                self._evict(first, cause)
                return True
        victims = []
        for segment in (self._probation, self._protected):
            for victim in segment.values():
                count, other = table[victim.first & mask], table[victim.second & mask]
                uses -= count if count < other else other
                if uses <= 0:
                    return False
                victims.append(victim)
                space -= victim.weight
                if space <= 0:
                    for each in victims:
                        self._evict(each, cause)
                    return True
        return False

    def _evict_until_it_fits(self, cause: EvictionCause) -> None:
        while self.weight > self._capacity:
            segment = self._probation or self._protected or self._window
            entry = next(iter(segment.values()))
            self._evict(entry, cause)

    def _evict(self, entry: _Entry[K, V], cause: EvictionCause) -> None:
        """Removes an entry and reports it."""
        key, segment, weight = entry.key, entry.segment, entry.weight
        del segment[key]
        del self._entries[key]
        self.weight -= weight
        if segment is self._window:
            self._window_weight -= weight
        elif segment is self._protected:
            self._protected_weight -= weight
        if self._listener is not None:
            self._listener(key, entry.value, cause)

    # --- Ageing and adaptation --------------------------------------------------------------------

    def _entries_when_full(self) -> int:
        """The number of entries in a full cache, by their mean weight so far."""
        return max(1, self._capacity * len(self._entries) // max(1, self.weight) or self._capacity)

    def _sample_length(self) -> int:
        entries = self._entries_when_full()
        return self._climber.sample_length(entries) if self._climber else SAMPLE_FACTOR * entries

    def _plan_maintenance(self) -> None:
        # The sketch is checked more often while it is small: the cache may be growing.
        soonest = min(self._age_after, self._climb_after, self._sketch.entries)
        self._uses_left = self._uses_planned = max(1, soonest)

    def _maintain(self) -> None:
        """Grows or ages the sketch and changes the window, if these are due."""
        while len(self._entries) > self._sketch.entries:
            self._sketch.grow()
        self._age_after -= self._uses_planned
        self._climb_after -= self._uses_planned
        if self._age_after <= 0:
            sample = SAMPLE_FACTOR * self._entries_when_full()
            odd = self._sketch.age()
            # The uses that remain in the sketch count for the next sample; a use has two counters.
            self._age_after = sample - max(0, sample - odd // 2) // 2
        if self._climb_after <= 0:
            self._climb()
            self._climb_after = self._sample_length()
        self._plan_maintenance()

    def _climb(self) -> None:
        """Changes the window by a step of the climber; a cache with free space needs no change."""
        if self._climber is None or self.weight < 0.9 * self._capacity:
            return
        hits = self.hits - self._hits_before
        misses = self.misses - self._misses_before
        self._hits_before, self._misses_before = self.hits, self.misses
        step = self._climber.next_step(hits / max(1, hits + misses))
        target = self._window_max + int(step * self._capacity)
        self._set_window(target)
        if self._window_max != target:
            self._climber.reverse()
        self._demote()
        while self._probation:
            key, entry = next(iter(self._probation.items()))
            if self._window_weight + entry.weight > self._window_max:
                break
            del self._probation[key]
            self._window[key] = entry
            entry.segment = self._window
            self._window_weight += entry.weight
        self._drain_window()

    def _set_window(self, window: int) -> None:
        """Sets the size of the window, within its limits, and the size of the protected segment."""
        capacity = self._capacity
        if self._climber is None:
            window = int(self._window_share * capacity)
        else:
            entry = self.weight // max(1, len(self._entries)) or 1
            small = min(int(WINDOW_SHARE_SMALL * capacity), WINDOW_ENTRIES_SMALL * entry)
            window = max(window, int(WINDOW_SHARE_MIN * capacity), small)
        self._window_max = min(max(1, window), capacity)
        self._protected_max = int(PROTECTED_SHARE * (capacity - self._window_max))
