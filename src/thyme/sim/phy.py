"""The physical layer: who hears whom, how well, and how long a frame takes.

Log-distance propagation and thermal noise, with the rates and error models of `rates`; all as in
the profile that the reference measurements were made with. `phy_of` makes the radio of a standard
and a rate. Power is in milliwatts, time in microseconds.
Clauses: S1, S2.
"""

from __future__ import annotations

import math

import msgspec

from thyme.sim.rates import Mode, mode_of

OVERHEAD_BYTES = 64
"""What UDP (8), IPv4 (20), LLC/SNAP (8) and the MAC with its checksum (28) add to a payload."""
ACK_BYTES, RTS_BYTES, CTS_BYTES = 14, 20, 14
RANGE_BYTES = 300
"""The payload that a radio's range is about."""
POWER_DBM = 17.318
"""What every radio sends with, unless its range is asked for: 113 m at 6 Mb/s."""
SLOT_US, SIFS_US, DIFS_US = 20, 10, 50
_G6, _B1 = mode_of("802.11g", 6), mode_of("802.11b", 1)


class Phy(msgspec.Struct, frozen=True, kw_only=True):
    """The radio's parameters; the default is 802.11g at 6 Mb/s with a range of about 113 m."""

    mode: Mode = _G6
    """Of all frames: data, broadcasts, acknowledgements and requests."""
    power_dbm: float = POWER_DBM
    loss_reference_db: float = 46.6777
    loss_exponent: float = 3.0
    noise_dbm: float = -93.966
    """Thermal noise of 20 MHz at 290 K, and 7 dB of the receiver's own. Also for 802.11b: ns-3
    gives its channels 22 MHz, but measures their noise in 20."""
    lock_dbm: float = -96.0
    sense_dbm: float = -99.0
    notice_dbm: float = -101.0
    """Weaker signals are ignored altogether, as interference too."""
    detect_us: int = 4
    """How long a preamble must be heard before a node knows of it."""
    slot_us: int = SLOT_US
    sifs_us: int = SIFS_US
    difs_us: int = DIFS_US
    eifs_us: int = SIFS_US + _B1.duration_us(ACK_BYTES) + DIFS_US
    """The wait after a frame that could not be decoded, in place of `difs_us`: leaves time for an
    acknowledgement at the lowest rate that anybody on the channel may use, whatever our own is."""

    @property
    def bits_per_us(self) -> float:
        """The rate in Mb/s."""
        return self.mode.bits_per_us

    @property
    def preamble_us(self) -> int:
        """Training and the header that says how long the frame is."""
        return self.mode.preamble_us

    @property
    def header_bits(self) -> int:
        """Of the header, which goes at the standard's lowest rate."""
        return self.mode.header_bits

    @property
    def extension_us(self) -> int:
        """Silence after a frame that counts as part of it."""
        return self.mode.extension_us

    @property
    def window_min(self) -> int:
        """The back-off window before anything was lost, in slots."""
        return self.mode.window_min

    def duration_us(self, mpdu_bytes: int) -> int:
        """How long a frame is on the air."""
        return self.mode.duration_us(mpdu_bytes)

    def log_bit_success(self, sinr: float) -> float:
        """The logarithm of the probability that one more bit of payload is decoded."""
        return self.mode.log_bit_success(sinr)

    def log_header_bit_success(self, sinr: float) -> float:
        """The same for a bit of the header."""
        return self.mode.log_header_bit_success(sinr)

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

    def delivery(self, received_dbm: float, payload_bytes: int = RANGE_BYTES) -> float:
        """The chance of a frame received with this power on a silent medium."""
        if received_dbm < self.lock_dbm:
            return 0.0
        sinr = milliwatts(received_dbm - self.noise_dbm)
        payload_us = self.duration_us(payload_bytes + OVERHEAD_BYTES)
        payload_us -= self.preamble_us + self.extension_us
        return math.exp(
            self.header_bits * self.log_header_bit_success(sinr)
            + payload_us * self.bits_per_us * self.log_bit_success(sinr)
        )

    def range_m(self) -> float:
        """Where half of the frames with 300 bytes of payload are delivered, or the last of them.

        The slowest rates outlast the noise further than a receiver notices that a frame begins
        (`lock_dbm`): there, all arrive up to this distance and none beyond.
        """
        lost_dbm, got_dbm = self.noise_dbm - 20, self.noise_dbm + 60
        while got_dbm - lost_dbm > 1e-6:
            middle_dbm = (lost_dbm + got_dbm) / 2
            if self.delivery(middle_dbm) >= 0.5:
                got_dbm = middle_dbm
            else:
                lost_dbm = middle_dbm
        return self.reach_m(got_dbm)

    def for_range(self, range_m: float) -> Phy:
        """The same radio with its power set so that its `range_m` is this one."""
        # To the centimetre, so that the default's 113 m are no more and no less.
        usual_m = round(msgspec.structs.replace(self, power_dbm=POWER_DBM).range_m(), 2)
        gain_db = 10 * self.loss_exponent * math.log10(range_m / usual_m)
        return msgspec.structs.replace(self, power_dbm=POWER_DBM + gain_db)


def phy_of(standard: str, rate_mbps: float | None = None) -> Phy:
    """The radio of a standard, 802.11b or 802.11g, at one of its rates; the lowest if none is
    named. It sends with the usual power: a faster one does not reach as far."""
    return Phy(mode=mode_of(standard, rate_mbps))


def milliwatts(dbm: float) -> float:
    """Decibel-milliwatts as milliwatts."""
    return float(10 ** (dbm / 10))
