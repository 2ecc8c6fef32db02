"""Steps: the powers at which a reception becomes possible, or sure, with or without interference.

Worked out once for each size of frame, so that what a power means for a receiver is a comparison.
Clauses: S2, S5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from thyme.sim.phy import Phy, milliwatts

CERTAIN = 1e-3
"""A probability this close to 0 or 1 is taken for it."""
LEVELS = 22
"""How many levels of power are told apart, from the weakest that is noticed."""
LEVEL_DB = 1.5


class Steps:
    """The powers at which something becomes possible, or sure, in milliwatts."""

    def __init__(self, phy: Phy) -> None:
        self._phy = phy
        self._noise_mw = milliwatts(phy.noise_dbm)
        self.header = self._bounds(phy.log_header_bit_success, phy.header_bits, phy.header_bits)
        """From where the header may be got on a silent medium, and from where it surely is."""
        self._payload: dict[int, tuple[float, float]] = {}
        self._marks: dict[tuple[int, int, int], list[tuple[int, int]]] = {}

    def payload(self, size: int) -> tuple[float, float]:
        """The same for payloads of a size, which is the length of their number of bits."""
        known = self._payload.get(size)
        if known is None:
            bounds = self._bounds(self._phy.log_bit_success, 1 << size - 1, 1 << size)
            known = self._payload[size] = bounds
        return known

    def same(self, before_mw: float, after_mw: float, size: int) -> bool:
        """Whether two powers are alike in what is sure for them."""
        low, high = sorted((before_mw, after_mw))
        return low >= max(self.payload(size)[1], self.header[1]) or high < self.header[0]

    def marks(self, size_most: int, size_least: int, count: int) -> list[tuple[int, int]]:
        """For receivers whose strongest interferer is below each level and not below the one
        before: the level that makes a sender immune to `count` of them, and the one that it
        must reach in order not to be lost."""
        key = size_most, size_least, count
        known = self._marks.get(key)
        if known is None:
            known = self._marks[key] = self._make_marks(size_most, size_least, count)
        return known

    def _make_marks(self, size_most: int, size_least: int, count: int) -> list[tuple[int, int]]:
        phy = self._phy
        log_bit = phy.log_bit_success if size_least else phy.log_header_bit_success
        sure = _sinr_for(log_bit, -CERTAIN / (1 << size_most))
        some = _sinr_for(log_bit, math.log(CERTAIN) / (1 << (size_least or size_most) - 1))
        powers = [milliwatts(phy.notice_dbm + LEVEL_DB * level) for level in range(LEVELS)]
        marks = []
        for level in range(1, LEVELS + 1):
            most_mw = self._noise_mw + count * powers[level] if level < LEVELS else math.inf
            least_mw = self._noise_mw + powers[level - 1]
            immune = next((k for k in range(LEVELS) if powers[k] >= sure * most_mw), LEVELS)
            doomed = max((k for k in range(LEVELS) if powers[k] <= some * least_mw), default=0)
            marks.append((immune, doomed))
        return marks

    def _bounds(
        self, log_bit: Callable[[float], float], bits_least: int, bits_most: int
    ) -> tuple[float, float]:
        some = _sinr_for(log_bit, math.log(CERTAIN) / bits_least)
        sure = _sinr_for(log_bit, -CERTAIN / bits_most)
        return self._noise_mw * some, self._noise_mw * sure


def _sinr_for(log_bit: Callable[[float], float], wanted: float) -> float:
    """The signal-to-noise ratio from which on a bit's chance is what is wanted."""
    low_db, high_db = -20.0, 60.0
    while high_db - low_db > 0.005:
        middle_db = (low_db + high_db) / 2
        if log_bit(10 ** (middle_db / 10)) >= wanted:
            high_db = middle_db
        else:
            low_db = middle_db
    return float(10 ** (high_db / 10))
