"""Power levels: the received powers from which a reception is possible, and from which certain.

Entry point: `PowerThresholds`. Thresholds are computed once for each size class of frames, with
and without interference; `link_table` then only compares powers with them.
Clauses: S2, S5.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from thyme.sim.radio.phy import Phy, dbm_to_mw

CERTAINTY_MARGIN = 1e-3
"""A probability this close to 0 or 1 counts as 0 or 1."""
LEVELS = 22
"""The number of power levels, from the receiver sensitivity upwards."""
LEVEL_DB = 1.5


class PowerThresholds:
    """The powers from which a reception is possible, and from which certain, in milliwatts."""

    def __init__(self, phy: Phy) -> None:
        self._phy = phy
        self._noise_mw = dbm_to_mw(phy.noise_dbm)
        self.header_mw = self._possible_and_sure_mw(
            phy.log_header_bit_success, phy.header_bits, phy.header_bits
        )
        """The powers from which a header is possibly and certainly decoded, if undisturbed."""
        self._payload_cache: dict[int, tuple[float, float]] = {}
        self._level_cache: dict[tuple[int, int, int], list[tuple[int, int]]] = {}

    def payload_mw(self, size_class: int) -> tuple[float, float]:
        """The powers from which a payload is possibly and certainly decoded, if undisturbed.
        A size class is the bit length of the number of payload bits."""
        cached = self._payload_cache.get(size_class)
        if cached is None:
            bounds = self._possible_and_sure_mw(
                self._phy.log_bit_success, 1 << size_class - 1, 1 << size_class
            )
            cached = self._payload_cache[size_class] = bounds
        return cached

    def is_same_outcome(self, before_mw: float, after_mw: float, size_class: int) -> bool:
        """Whether frames received with either power have the same certain outcome."""
        low, high = sorted((before_mw, after_mw))
        return (
            low >= max(self.payload_mw(size_class)[1], self.header_mw[1])
            or high < self.header_mw[0]
        )

    def level_thresholds(
        self, size_class_max: int, size_class_min: int, count: int
    ) -> list[tuple[int, int]]:
        """For each power level of the strongest interferer: the lowest signal level that is
        certainly decoded against `count` interferers, and the lowest that may be. Entry i is for
        interferers from level i up to level i + 1. A `size_class_min` of 0 stands for the
        header."""
        key = size_class_max, size_class_min, count
        cached = self._level_cache.get(key)
        if cached is None:
            cached = self._level_cache[key] = self._make_level_thresholds(
                size_class_max, size_class_min, count
            )
        return cached

    def _make_level_thresholds(
        self, size_class_max: int, size_class_min: int, count: int
    ) -> list[tuple[int, int]]:
        phy = self._phy
        log_bit = phy.log_bit_success if size_class_min else phy.log_header_bit_success
        sinr_sure = _sinr_for(log_bit, -CERTAINTY_MARGIN / (1 << size_class_max))
        sinr_possible = _sinr_for(
            log_bit, math.log(CERTAINTY_MARGIN) / (1 << (size_class_min or size_class_max) - 1)
        )
        powers = [dbm_to_mw(phy.rx_sensitivity_dbm + LEVEL_DB * level) for level in range(LEVELS)]
        thresholds = []
        for level in range(1, LEVELS + 1):
            most_mw = self._noise_mw + count * powers[level] if level < LEVELS else math.inf
            least_mw = self._noise_mw + powers[level - 1]
            level_sure = next(
                (k for k in range(LEVELS) if powers[k] >= sinr_sure * most_mw), LEVELS
            )
            level_possible = max(
                (k for k in range(LEVELS) if powers[k] <= sinr_possible * least_mw), default=0
            )
            thresholds.append((level_sure, level_possible))
        return thresholds

    def _possible_and_sure_mw(
        self, log_bit: Callable[[float], float], bits_min: int, bits_max: int
    ) -> tuple[float, float]:
        sinr_possible = _sinr_for(log_bit, math.log(CERTAINTY_MARGIN) / bits_min)
        sinr_sure = _sinr_for(log_bit, -CERTAINTY_MARGIN / bits_max)
        return self._noise_mw * sinr_possible, self._noise_mw * sinr_sure


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
