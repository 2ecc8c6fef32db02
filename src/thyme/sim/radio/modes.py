"""Modes: the rates of 802.11b and 802.11g, with their frame durations and error models.

Entry points: `get_mode` and `get_modes`; `phy` makes a radio from a mode. OFDM modes use the NIST
error model: the bit error rate of the modulation, then the union bound over the error events of the
convolutional code. DSSS modes have no such code: differential phase modulations use closed forms,
complementary code keying (CCK) an integral. All formulas are those of ns-3 built with the GNU
Scientific Library; the tests compare with its results.
Clause: S1.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

import msgspec

from thyme.model.errors import OptionError, safe_repr

Modulation = Literal["bpsk", "qpsk", "16-qam", "64-qam", "dbpsk", "dqpsk", "cck-16", "cck-256"]
CodeRate = Literal["none", "1/2", "2/3", "3/4"]


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """One rate of one standard."""

    standard: str
    modulation: Modulation
    code_rate: CodeRate
    bits_per_us: float
    """The rate in Mb/s."""
    symbol_us: int
    """The duration of a payload is a whole number of symbols; for DSSS, of microseconds."""
    service_tail_bits: int
    """Service and tail bits, which are sent with the payload at its rate."""
    preamble_us: int
    """Duration of the preamble and the PHY header."""
    header_bits: int
    signal_extension_us: int
    """The signal extension: silence after a frame that counts as part of it."""
    cw_min: int
    """The minimum contention window (CWmin) of the MAC, in slots."""

    @property
    def name(self) -> str:
        """A readable name, such as "802.11b at 5.5 Mb/s"."""
        return f"{self.standard} at {self.bits_per_us:g} Mb/s"

    def duration_us(self, mpdu_bytes: int) -> int:
        """The air time of a frame."""
        bits_per_symbol = self.bits_per_us * self.symbol_us
        symbols = -int(-(self.service_tail_bits + 8 * mpdu_bytes) // bits_per_symbol)
        return self.preamble_us + self.symbol_us * symbols + self.signal_extension_us

    def log_bit_success(self, sinr: float) -> float:
        """The logarithm of the probability that one payload bit is decoded at an SINR."""
        # The SINR is rounded to a thousandth of a decibel, so that few values are computed.
        return _log_bit_success(self.modulation, self.code_rate, round(10_000 * math.log10(sinr)))

    def log_header_bit_success(self, sinr: float) -> float:
        """The logarithm of the probability that one bit of the PHY header is decoded at an SINR."""
        modulation, code = _HEADER_MODES[self.standard]
        return _log_bit_success(modulation, code, round(10_000 * math.log10(sinr)))


def get_modes(standard: str) -> tuple[Mode, ...]:
    """The modes of a standard, slowest first."""
    if standard not in MODES:
        raise OptionError(f"standard {safe_repr(standard)} is unknown; there is {', '.join(MODES)}")
    return MODES[standard]


def get_mode(standard: str, rate_mbps: float | None = None) -> Mode:
    """The mode of a standard with a rate (default: the slowest)."""
    modes = get_modes(standard)
    if rate_mbps is None:
        return modes[0]
    for mode in modes:
        if mode.bits_per_us == rate_mbps:
            return mode
    rates = ", ".join(f"{mode.bits_per_us:g}" for mode in modes)
    raise OptionError(f"{standard} has no rate of {rate_mbps:g} Mb/s; there is {rates}")


def _ofdm_mode(bits_per_us: int, modulation: Modulation, code: CodeRate) -> Mode:
    return Mode(
        standard="802.11g",
        modulation=modulation,
        code_rate=code,
        bits_per_us=bits_per_us,
        symbol_us=4,
        service_tail_bits=22,
        preamble_us=20,
        header_bits=24,
        signal_extension_us=6,
        cw_min=15,
    )


def _dsss_mode(bits_per_us: float, modulation: Modulation) -> Mode:
    return Mode(
        standard="802.11b",
        modulation=modulation,
        code_rate="none",
        bits_per_us=bits_per_us,
        symbol_us=1,
        service_tail_bits=0,
        preamble_us=192,
        header_bits=48,
        signal_extension_us=0,
        cw_min=31,
    )


MODES: dict[str, tuple[Mode, ...]] = {
    "802.11b": (
        _dsss_mode(1, "dbpsk"),
        _dsss_mode(2, "dqpsk"),
        _dsss_mode(5.5, "cck-16"),
        _dsss_mode(11, "cck-256"),
    ),
    "802.11g": (
        _ofdm_mode(6, "bpsk", "1/2"),
        _ofdm_mode(9, "bpsk", "3/4"),
        _ofdm_mode(12, "qpsk", "1/2"),
        _ofdm_mode(18, "qpsk", "3/4"),
        _ofdm_mode(24, "16-qam", "1/2"),
        _ofdm_mode(36, "16-qam", "3/4"),
        _ofdm_mode(48, "64-qam", "2/3"),
        _ofdm_mode(54, "64-qam", "3/4"),
    ),
}
_HEADER_MODES = {
    standard: (modes[0].modulation, modes[0].code_rate) for standard, modes in MODES.items()
}


# Error models


@lru_cache(maxsize=100_000)
def _log_bit_success(modulation: Modulation, code: CodeRate, sinr_mdb: int) -> float:
    sinr = 10 ** (sinr_mdb / 10_000)
    if modulation == "cck-16":
        return _log_codeword_success(16 * sinr) / 4
    if modulation == "cck-256":
        # A code word of eight bits counts as two of four bits, each with half the energy.
        return 2 * _log_codeword_success(8 * sinr) / 8
    error = _raw_bit_error(modulation, sinr)
    if code != "none":
        error = _coded_bit_error(code, error)
    return math.log1p(-error) if error < 1.0 else -math.inf


def _raw_bit_error(modulation: Modulation, sinr: float) -> float:
    """The probability that a bit is received wrong, before decoding."""
    match modulation:
        case "bpsk":
            return 0.5 * math.erfc(math.sqrt(sinr))
        case "qpsk":
            return 0.5 * math.erfc(math.sqrt(sinr / 2))
        case "16-qam":
            return 3 / 8 * math.erfc(math.sqrt(sinr / 10))
        case "64-qam":
            return 7 / 24 * math.erfc(math.sqrt(sinr / 42))
        case "dbpsk":
            # The energy of a bit is spread over the channel's 22 MHz: here at one bit per
            # microsecond, below at two.
            return 0.5 * math.exp(-22 * sinr)
        case "dqpsk":
            root = math.sqrt(2)
            bit = 11 * sinr
            scale = (root + 1) / math.sqrt(8 * math.pi * root * bit)
            return scale * math.exp(-(2 - root) * bit)
        case _:
            raise AssertionError(modulation)


def _coded_bit_error(code: CodeRate, error: float) -> float:
    """The probability that a bit is wrong after decoding, by the union bound."""
    square = 4.0 * error * (1.0 - error)
    # The full code has error events of even distance only, the punctured codes of all distances.
    step = square if code == "1/2" else math.sqrt(square)
    share, distance_min, spectrum = _ERROR_EVENTS[code]
    power = step**distance_min
    bound = 0.0
    for weight in spectrum:
        bound += weight * power
        power *= step
    return min(share * bound, 1.0)


_ERROR_EVENTS: dict[CodeRate, tuple[float, int, tuple[int, ...]]] = {
    "1/2": (
        1 / 2,
        5,
        (36, 211, 1404, 11633, 77433, 502690, 3322763, 21292910, 134365911),
    ),
    "2/3": (
        1 / 4,
        6,
        (3, 70, 285, 1276, 6160, 27128, 117019, 498860, 2103891, 8784123),
    ),
    "3/4": (
        1 / 6,
        5,
        (42, 201, 1492, 10469, 62935, 379644, 2253373, 13073811, 75152755, 428005675),
    ),
}
"""The error events of the industry-standard convolutional code and its punctured forms: the share
of an event's wrong bits for each payload bit, the minimum distance, and the number of wrong bits in
all events of each distance from there on."""


def _log_codeword_success(energy: float) -> float:
    """The logarithm of the probability that one of 16 complementary code words is decoded: of
    eight correlations, that of the sent word must be the largest."""
    shift = math.sqrt(energy)
    error = 0.0
    for x, weight in _NORMAL_QUADRATURE:
        larger = math.erfc((x + shift) / math.sqrt(2)) if x > -shift else 1.0
        error += weight * (1.0 if larger >= 1.0 else -math.expm1(7 * math.log1p(-larger)))
    return math.log1p(-error) if error < 1.0 else -math.inf


def _normal_quadrature(reach: int = 9, steps: int = 16) -> tuple[tuple[float, float], ...]:
    """The normal distribution as points and weights for numerical integration."""
    points = [number / steps for number in range(-reach * steps, reach * steps + 1)]
    weights = [math.exp(-x * x / 2) for x in points]
    total = math.fsum(weights)
    return tuple(zip(points, (weight / total for weight in weights), strict=True))


_NORMAL_QUADRATURE = _normal_quadrature()
