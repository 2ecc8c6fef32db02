"""Power levels: the received powers from which a reception is possible, and from which certain.

Entry point: `PowerThresholds`. Thresholds are computed once for each size class of frames, with
and without interference; `link_table` then only compares powers with them.
Clauses: S2, S5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from thyme.sim.phy import Phy, milliwatts

CERTAIN = 1e-3
"""A probability this close to 0 or 1 counts as 0 or 1."""
LEVELS = 22
"""The number of power levels, from the receiver sensitivity upwards."""
LEVEL_DB = 1.5


class Steps:
    """The powers from which a reception is possible, and from which certain, in milliwatts."""

    def __init__(self, phy: Phy) -> None:
        self._phy = phy
        self._noise_mw = milliwatts(phy.noise_dbm)
        self.header = self._bounds(phy.log_header_bit_success, phy.header_bits, phy.header_bits)
        """The powers from which a header is possibly and certainly decoded, if undisturbed."""
        self._payload: dict[int, tuple[float, float]] = {}
        self._marks: dict[tuple[int, int, int], list[tuple[int, int]]] = {}

    def payload(self, size: int) -> tuple[float, float]:
        """The powers from which a payload is possibly and certainly decoded, if undisturbed.
        A size class is the bit length of the number of payload bits."""
        cached = self._payload.get(size)
        if cached is None:
            bounds = self._bounds(self._phy.log_bit_success, 1 << size - 1, 1 << size)
            cached = self._payload[size] = bounds
        return cached

    def same(self, before_mw: float, after_mw: float, size: int) -> bool:
        """Whether frames received with either power have the same certain outcome."""
        low, high = sorted((before_mw, after_mw))
        return low >= max(self.payload(size)[1], self.header[1]) or high < self.header[0]

    def marks(self, size_most: int, size_least: int, count: int) -> list[tuple[int, int]]:
        """For each power level of the strongest interferer: the lowest signal level that is
        certainly decoded against `count` interferers, and the lowest that may be. Entry i is for
        interferers from level i up to level i + 1. A `size_class_min` of 0 stands for the
        header."""
        key = size_most, size_least, count
        cached = self._marks.get(key)
        if cached is None:
            cached = self._marks[key] = self._make_marks(size_most, size_least, count)
        return cached

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
    """The SINR from which the log-probability of a bit is at least `wanted`."""
    low_db, high_db = -20.0, 60.0
    while high_db - low_db > 0.005:
        middle_db = (low_db + high_db) / 2
        if log_bit(10 ** (middle_db / 10)) >= wanted:
            high_db = middle_db
        else:
            low_db = middle_db
    return float(10 ** (high_db / 10))
