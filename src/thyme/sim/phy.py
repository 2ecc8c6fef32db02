"""The physical layer: who hears whom, how well, and how long a frame takes.

Log-distance propagation, thermal noise, and the NIST error model for OFDM with binary phase shift
keying at rate 1/2 (802.11g at 6 Mb/s); all as in the profile that the reference measurements were
made with. Power is in milliwatts, time in microseconds.
Clauses: S1, S2.
"""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec

OVERHEAD_BYTES = 64
"""What UDP (8), IPv4 (20), LLC/SNAP (8) and the MAC with its checksum (28) add to a payload."""
ACK_BYTES, RTS_BYTES, CTS_BYTES = 14, 20, 14


class Phy(msgspec.Struct, frozen=True, kw_only=True):
    """The radio's parameters; the default is 802.11g at 6 Mb/s with a range of about 113 m."""

    power_dbm: float = 17.318
    loss_reference_db: float = 46.6777
    loss_exponent: float = 3.0
    noise_dbm: float = -93.966
    """Thermal noise of 20 MHz at 290 K, and 7 dB of the receiver's own."""
    lock_dbm: float = -96.0
    sense_dbm: float = -99.0
    notice_dbm: float = -101.0
    """Weaker signals are ignored altogether, as interference too."""
    bits_per_us: int = 6
    bits_per_symbol: int = 24
    symbol_us: int = 4
    preamble_us: int = 20
    """Training and the header that says how long the frame is."""
    detect_us: int = 4
    """How long a preamble must be heard before a node knows of it."""
    header_bits: int = 24
    extension_us: int = 6
    slot_us: int = 20
    sifs_us: int = 10
    difs_us: int = 50
    eifs_us: int = 364
    """The wait after a frame that could not be decoded, in place of `difs_us`."""

    def duration_us(self, mpdu_bytes: int) -> int:
        """How long a frame is on the air."""
        symbols = -(-(22 + 8 * mpdu_bytes) // self.bits_per_symbol)
        return self.preamble_us + self.symbol_us * symbols + self.extension_us

    def received_mw(self, distance_m: float) -> float:
        """The power of a frame at a distance."""
        loss_db = self.loss_reference_db + 10 * self.loss_exponent * math.log10(
            max(1.0, distance_m)
        )
        return milliwatts(self.power_dbm - loss_db)

    def reach_m(self, threshold_dbm: float) -> float:
        """How far a frame is received with at least this power."""
        budget_db = self.power_dbm - self.loss_reference_db - threshold_dbm
        return float(10 ** (budget_db / (10 * self.loss_exponent)))

    def for_range(self, range_m: float) -> Phy:
        """The same radio with its power set so that its range changes from 113 m to this one."""
        gain_db = 10 * self.loss_exponent * math.log10(range_m / RANGE_M)
        return msgspec.structs.replace(self, power_dbm=self.power_dbm + gain_db)


RANGE_M = 113.0
"""Where the default radio delivers half of its frames with 300 bytes of payload."""


def milliwatts(dbm: float) -> float:
    """Decibel-milliwatts as milliwatts."""
    return float(10 ** (dbm / 10))


def log_bit_success(sinr: float) -> float:
    """The logarithm of the probability that one more bit is decoded, at a signal-to-noise ratio.

    The union bound of the convolutional code's error events (free distance 10), with the distance
    spectrum of the industry-standard code of rate 1/2.
    """
    # A thousandth of a decibel is far below what tells two links apart, and makes for few values.
    return _log_bit_success(round(10_000 * math.log10(sinr)))


@lru_cache(maxsize=100_000)
def _log_bit_success(sinr_mdb: int) -> float:
    error = 0.5 * math.erfc(math.sqrt(10 ** (sinr_mdb / 10_000)))
    if error == 0.0:
        return 0.0
    square = 4.0 * error * (1.0 - error)
    power = square**5
    bound = 0.0
    for weight in _SPECTRUM:
        bound += weight * power
        power *= square
    event = min(0.5 * bound, 1.0)
    return math.log1p(-event) if event < 1.0 else -math.inf


_SPECTRUM = (36, 211, 1404, 11633, 77433, 502690, 3322763, 21292910, 134365911)
