"""Link model: the parameters of log-distance propagation, computed once for a radio.

Entry point: `LinkModel`. `LinkTable` and its twin in C (`native/links.c`) read them, so that both
compute with the same numbers.
Clauses: S2, S5.
"""

from __future__ import annotations

from thyme.sim.radio.phy import Phy, dbm_to_mw
from thyme.sim.radio.power_levels import LEVEL_DB, LEVELS, PowerThresholds

BUCKETS_PER_REACH = 4
"""The size of the buckets in which nodes are found by position: this many per reach."""
SINR_STEPS_PER_DECADE = 1_000
"""The resolution of SINR values: a hundredth of a decibel."""


class LinkModel:
    """The parameters of propagation; powers in milliwatts."""

    def __init__(self, phy: Phy) -> None:
        self.noise_mw = dbm_to_mw(phy.noise_dbm)
        self.preamble_detection_mw = dbm_to_mw(phy.preamble_detection_dbm)
        self.carrier_sense_mw = dbm_to_mw(phy.carrier_sense_dbm)
        self.rx_sensitivity_mw = dbm_to_mw(phy.rx_sensitivity_dbm)
        self.reference_mw = phy.received_mw(1.0)
        """The received power at a distance of one metre."""
        self.square_exponent = -phy.loss_exponent / 2
        """The exponent of the square of the distance."""
        reach_m = phy.reach_m(phy.rx_sensitivity_dbm)
        self.reach_square = reach_m**2
        self.bucket_m = reach_m / BUCKETS_PER_REACH
        self.bucket_offsets = _offsets_within(BUCKETS_PER_REACH)
        self.levels_mw = [
            dbm_to_mw(phy.rx_sensitivity_dbm + LEVEL_DB * level) for level in range(LEVELS)
        ]
        """The lowest power of each level."""
        self.level_scale = 10 / LEVEL_DB
        """Power levels per factor of ten."""
        self.sinr_scale = SINR_STEPS_PER_DECADE
        self.thresholds = PowerThresholds(phy)
        self.header_bits = phy.header_bits
        self.log_header_bit_success = phy.log_header_bit_success
        self.log_bit_success = phy.log_bit_success


def _offsets_within(reach: int) -> list[tuple[int, int]]:
    """The offsets of the buckets that may hold a node within a reach, given in buckets."""
    steps = range(-reach - 1, reach + 2)
    return [
        (dx, dy)
        for dx in steps
        for dy in steps
        if max(0, abs(dx) - 1) ** 2 + max(0, abs(dy) - 1) ** 2 <= reach**2
    ]
