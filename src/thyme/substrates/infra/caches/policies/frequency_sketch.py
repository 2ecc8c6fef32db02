"""Frequency sketch: estimates how often keys were recently used, without storing the keys.

A count-min sketch with two counters per key in one table of bytes, conservative updates, and
ageing: all counters are halved from time to time (TinyLFU). The table grows with the number of keys
that the cache holds, and growing preserves every estimate.
"""

from __future__ import annotations

COUNT_MAX = 15
COUNTERS_PER_ENTRY = 32
"""With 10 uses per entry between two halvings, about one estimate in five is too high."""
_ENTRIES_MIN = 128
_ODD = bytes(count & 1 for count in range(256))
_HALVED = bytes(count >> 1 for count in range(256))


class FrequencySketch:
    """Approximate counts, up to 15, of recent uses of keys, by two hashes of each key."""

    __slots__ = ("entries", "mask", "table")

    def __init__(self) -> None:
        self.entries = _ENTRIES_MIN
        """The number of cache entries for which the table is large enough."""
        # The cache works on the table directly where a call would cost too much.
        self.table = bytearray(_ENTRIES_MIN * COUNTERS_PER_ENTRY)
        self.mask = len(self.table) - 1

    def record(self, first: int, second: int) -> None:
        """Counts one use of the key with these two hashes."""
        table = self.table
        first &= self.mask
        second &= self.mask
        count = table[first]
        other = table[second]
        # Only the lower counter rises: the higher one contains uses of other keys.
        if count < other:
            table[first] = count + 1
        elif other < count:
            table[second] = other + 1
        elif count < COUNT_MAX:
            table[first] = table[second] = count + 1

    def estimate(self, first: int, second: int) -> int:
        """The number of recent uses; never too low, except for the halvings."""
        count = self.table[first & self.mask]
        other = self.table[second & self.mask]
        return count if count < other else other

    def age(self) -> int:
        """Halves all counters; returns how many counters were odd, which lose half a use."""
        odd = self.table.translate(_ODD).count(1)
        self.table = self.table.translate(_HALVED)
        return odd

    def grow(self) -> None:
        """Doubles the table; each counter is copied to both places where its keys may now be."""
        self.entries *= 2
        self.table = self.table + self.table
        self.mask = len(self.table) - 1
