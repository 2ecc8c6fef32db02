"""Physical layer: received power, probability of reception and duration of frames.

Entry points: `Phy` and `make_phy`. Log-distance propagation and thermal noise, with the rates and
error models of `modes`; the default parameters are those of the ns-3 reference measurements. Power
is in milliwatts or dBm, time in microseconds.
Clauses: S1, S2.
"""

from __future__ import annotations

import math

import msgspec

from thyme.sim.radio.modes import Mode, get_mode

UDP_IP_HEADER_BYTES = 28
"""Bytes that the UDP and IPv4 headers add to a message."""
PAYLOAD_BYTES_MAX = 2_296 - UDP_IP_HEADER_BYTES
"""The largest UDP payload of one frame: the MTU of 2,296 bytes minus the headers."""
OVERHEAD_BYTES = 64
"""Bytes added to a payload: UDP (8), IPv4 (20), LLC/SNAP (8), MAC header and checksum (28)."""
ACK_BYTES, RTS_BYTES, CTS_BYTES = 14, 20, 14
RANGE_PAYLOAD_BYTES = 300
"""The payload size for which `Phy.range_m` is defined."""
POWER_DBM_DEFAULT = 17.318
"""The default transmit power; gives a range of 113 m at 6 Mb/s."""
SLOT_US, SIFS_US, DIFS_US = 20, 10, 50
_G6, _B1 = get_mode("802.11g", 6), get_mode("802.11b", 1)


class Phy(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the radio; the default is 802.11g at 6 Mb/s with a range of about 113 m."""

    mode: Mode = _G6
    """The mode of all frames: data, broadcast, ACK, RTS and CTS."""
    power_dbm: float = POWER_DBM_DEFAULT
    loss_reference_db: float = 46.6777
    loss_exponent: float = 3.0
    noise_dbm: float = -93.966
    """Thermal noise of 20 MHz at 290 K, plus a noise figure of 7 dB. The same for 802.11b: ns-3
    gives its channels 22 MHz, but computes their noise over 20 MHz."""
    preamble_detection_dbm: float = -96.0
    """The weakest preamble that a receiver detects and locks on to."""
    carrier_sense_dbm: float = -99.0
    """The weakest signal for which carrier sense reports a busy medium."""
    rx_sensitivity_dbm: float = -101.0
    """Weaker signals are ignored altogether, as interference too."""
    preamble_detection_us: int = 4
    """Time from the start of a preamble until a node detects it."""
    slot_us: int = SLOT_US
    sifs_us: int = SIFS_US
    difs_us: int = DIFS_US
    eifs_us: int = SIFS_US + _B1.duration_us(ACK_BYTES) + DIFS_US
    """The interval after a frame that could not be decoded, instead of `difs_us`. It leaves time
    for an acknowledgement at the lowest rate of the channel, whatever the own rate is."""

    @property
    def bits_per_us(self) -> float:
        """The rate in Mb/s."""
        return self.mode.bits_per_us

    @property
    def preamble_us(self) -> int:
        """Duration of the preamble and the PHY header."""
        return self.mode.preamble_us

    @property
    def header_bits(self) -> int:
        """Bits of the PHY header, which is sent at the standard's lowest rate."""
        return self.mode.header_bits

    @property
    def signal_extension_us(self) -> int:
        """The signal extension: silence after a frame that counts as part of it."""
        return self.mode.signal_extension_us

    @property
    def cw_min(self) -> int:
        """The minimum contention window (CWmin), in slots."""
        return self.mode.cw_min

    def duration_us(self, mpdu_bytes: int) -> int:
        """The air time of a frame."""
        return self.mode.duration_us(mpdu_bytes)

    def log_bit_success(self, sinr: float) -> float:
        """The logarithm of the probability that one payload bit is decoded."""
        return self.mode.log_bit_success(sinr)

    def log_header_bit_success(self, sinr: float) -> float:
        """The logarithm of the probability that one bit of the PHY header is decoded."""
        return self.mode.log_header_bit_success(sinr)

    def received_mw(self, distance_m: float) -> float:
        """The received power of a frame at a distance."""
        loss_db = self.loss_reference_db + 10 * self.loss_exponent * math.log10(
            max(1.0, distance_m)
        )
        return dbm_to_mw(self.power_dbm - loss_db)

    def reach_m(self, threshold_dbm: float) -> float:
        """The distance up to which a frame is received with at least this power."""
        budget_db = self.power_dbm - self.loss_reference_db - threshold_dbm
        return float(10 ** (budget_db / (10 * self.loss_exponent)))

    def delivery_probability(
        self, received_dbm: float, payload_bytes: int = RANGE_PAYLOAD_BYTES
    ) -> float:
        """The probability to decode a frame received with this power, without interference."""
        if received_dbm < self.preamble_detection_dbm:
            return 0.0
        sinr = dbm_to_mw(received_dbm - self.noise_dbm)
        payload_us = self.duration_us(payload_bytes + OVERHEAD_BYTES)
        payload_us -= self.preamble_us + self.signal_extension_us
        return math.exp(
            self.header_bits * self.log_header_bit_success(sinr)
            + payload_us * self.bits_per_us * self.log_bit_success(sinr)
        )

    def range_m(self) -> float:
        """The distance at which half of the frames with 300 bytes of payload are decoded.

        At the slowest rates, preamble detection (`preamble_detection_dbm`) limits the range rather
        than noise: then all frames are decoded up to this distance, and none beyond.
        """
        low_dbm, high_dbm = self.noise_dbm - 20, self.noise_dbm + 60
        while high_dbm - low_dbm > 1e-6:
            middle_dbm = (low_dbm + high_dbm) / 2
            if self.delivery_probability(middle_dbm) >= 0.5:
                high_dbm = middle_dbm
            else:
                low_dbm = middle_dbm
        return self.reach_m(high_dbm)

    def with_range(self, range_m: float) -> Phy:
        """A copy of this radio with its transmit power set for a range."""
        # Rounded to the centimetre, so that a range of 113 m gives exactly the default power.
        default_m = round(msgspec.structs.replace(self, power_dbm=POWER_DBM_DEFAULT).range_m(), 2)
        gain_db = 10 * self.loss_exponent * math.log10(range_m / default_m)
        return msgspec.structs.replace(self, power_dbm=POWER_DBM_DEFAULT + gain_db)


def make_phy(standard: str, rate_mbps: float | None = None) -> Phy:
    """The radio of a standard, 802.11b or 802.11g, at one of its rates (default: the lowest). The
    transmit power is the default one, so a higher rate has a shorter range."""
    return Phy(mode=get_mode(standard, rate_mbps))


def dbm_to_mw(dbm: float) -> float:
    """Converts decibel-milliwatts to milliwatts."""
    return float(10 ** (dbm / 10))
