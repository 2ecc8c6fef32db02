"""The modes of 802.11b and 802.11g against ns-3.44, figure by figure (S1, S2)."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import OptionError
from thyme.sim.engine.bitsets import members_of
from thyme.sim.engine.kernel import make_kernel
from thyme.sim.radio.mac_config import MacConfig
from thyme.sim.radio.modes import MODES, Mode, get_mode, get_modes
from thyme.sim.radio.phy import ACK_BYTES, Phy, dbm_to_mw, make_phy
from thyme.sim.radio.radio import Radio, RadioConfig
from thyme.sim.radio.station import BROADCAST

# From ns-3.44 through its Python bindings (the `ns3` package), which has the GSL built in.

# `NistErrorRateModel.GetChunkSuccessRate` of the mode, for the bits that 364 bytes take on the air:
# by SINR in decibels, the probability that all of these bits are decoded.
DECODED: dict[tuple[str, float], tuple[int, dict[float, float]]] = {
    ("802.11b", 1): (
        2912,
        {
            -5.7: 0.020102865,
            -4.9: 0.30761389,
            -4.2: 0.71221789,
            -3.1: 0.97000926,
            -1.7: 0.99949484,
        },
    ),
    ("802.11b", 2): (
        2912,
        {
            -1.4: 0.01973245,
            -0.5: 0.29895856,
            0.3: 0.70849297,
            1.5: 0.96720774,
            3.1: 0.99951905,
        },
    ),
    ("802.11b", 5.5): (
        2915,
        {
            1.4: 0.022339743,
            2.2: 0.29680643,
            2.9: 0.69182073,
            4.1: 0.97195473,
            5.5: 0.99949729,
        },
    ),
    ("802.11b", 11): (
        2915,
        {
            4.4: 0.021230356,
            5.2: 0.2910062,
            5.9: 0.68694299,
            7.1: 0.97125064,
            8.5: 0.99947959,
        },
    ),
    ("802.11g", 6): (
        2952,
        {
            2.5: 0.016300996,
            2.8: 0.23809175,
            3.2: 0.69465673,
            3.9: 0.96831136,
            5.0: 0.99953953,
        },
    ),
    ("802.11g", 9): (
        2952,
        {
            5.3: 0.010564103,
            5.7: 0.31427335,
            6.1: 0.73290062,
            6.8: 0.96935264,
            7.9: 0.99942215,
        },
    ),
    ("802.11g", 12): (
        2976,
        {
            5.5: 0.013493354,
            5.9: 0.34592099,
            6.2: 0.68356607,
            6.9: 0.96688341,
            8.0: 0.99951518,
        },
    ),
    ("802.11g", 18): (
        2952,
        {
            8.3: 0.008929211,
            8.7: 0.30179762,
            9.1: 0.72517216,
            9.8: 0.96829015,
            11.0: 0.99959572,
        },
    ),
    ("802.11g", 24): (
        2976,
        {
            11.9: 0.020217334,
            12.3: 0.32454577,
            12.7: 0.71855786,
            13.5: 0.9736998,
            14.6: 0.99946524,
        },
    ),
    ("802.11g", 36): (
        3024,
        {
            15.0: 0.016946554,
            15.4: 0.31984943,
            15.8: 0.71770907,
            16.6: 0.9728493,
            17.8: 0.99958524,
        },
    ),
    ("802.11g", 48): (
        3072,
        {
            19.7: 0.014926348,
            20.1: 0.27978728,
            20.5: 0.68204028,
            21.3: 0.96822368,
            22.5: 0.9994694,
        },
    ),
    ("802.11g", 54): (
        3024,
        {
            20.9: 0.013760684,
            21.3: 0.27492878,
            21.7: 0.66894521,
            22.6: 0.97211927,
            23.8: 0.99948142,
        },
    ),
}

# `WifiPhy::CalculateTxDuration` in the 2.4 GHz band, long preamble, for these bytes.
SIZES = (14, 20, 66, 364, 1564, 2360)
AIR_US = {
    ("802.11b", 1): (304, 352, 720, 3104, 12704, 19072),
    ("802.11b", 2): (248, 272, 456, 1648, 6448, 9632),
    ("802.11b", 5.5): (213, 222, 288, 722, 2467, 3625),
    ("802.11b", 11): (203, 207, 240, 457, 1330, 1909),
    ("802.11g", 6): (50, 58, 118, 518, 2118, 3178),
    ("802.11g", 9): (42, 50, 90, 354, 1422, 2130),
    ("802.11g", 12): (38, 42, 74, 274, 1074, 1602),
    ("802.11g", 18): (34, 38, 58, 190, 726, 1078),
    ("802.11g", 24): (34, 34, 50, 150, 550, 814),
    ("802.11g", 36): (30, 34, 42, 110, 378, 554),
    ("802.11g", 48): (30, 30, 38, 90, 290, 422),
    ("802.11g", 54): (30, 30, 38, 82, 262, 378),
}

# Shares of 10,000 broadcasts with 300 bytes of payload that arrived, by distance in metres, in a
# simulation like `benchmarks/ns3_reference/radio.py`, except for standard, channel and mode.
ARRIVED: dict[tuple[str, float], dict[float, float]] = {
    ("802.11b", 1): {160: 1.000, 166: 0.999, 167: 0.000, 180: 0.000},
    ("802.11b", 2): {136.6: 0.801, 140.9: 0.643, 143.8: 0.507, 146.7: 0.358},
    ("802.11b", 5.5): {111.3: 0.818, 114.8: 0.653, 117.2: 0.496, 119.5: 0.354},
    ("802.11b", 11): {88.3: 0.816, 91.1: 0.646, 93: 0.498, 94.8: 0.351},
    ("802.11g", 6): {107.4: 0.930, 110.7: 0.757, 113: 0.499, 115.3: 0.180},
    ("802.11g", 9): {86.3: 0.925, 89: 0.746, 90.9: 0.481, 92.7: 0.184},
    ("802.11g", 12): {85.2: 0.934, 87.9: 0.744, 89.7: 0.491, 91.5: 0.171},
    ("802.11g", 18): {68.5: 0.923, 70.7: 0.735, 72.1: 0.490, 73.6: 0.174},
    ("802.11g", 24): {52: 0.912, 53.6: 0.738, 54.7: 0.493, 55.8: 0.207},
    ("802.11g", 36): {41: 0.909, 42.3: 0.715, 43.1: 0.495, 44: 0.195},
    ("802.11g", 48): {28.5: 0.900, 29.4: 0.701, 30: 0.459, 30.6: 0.180},
    ("802.11g", 54): {26: 0.888, 26.8: 0.692, 27.3: 0.480, 27.9: 0.180},
}

ALL = [mode for modes in MODES.values() for mode in modes]
modes = st.sampled_from(ALL)
decibels = st.floats(-15, 40)


def each_mode() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("mode", ALL, ids=lambda mode: mode.name)


def key(mode: Mode) -> tuple[str, float]:
    return mode.standard, mode.bits_per_us


def ratio(db: float) -> float:
    return dbm_to_mw(db)


def received_dbm(phy: Phy, distance_m: float) -> float:
    return 10 * math.log10(phy.received_mw(distance_m))


# Against ns-3


@each_mode()
def test_s1_bits_survive_noise_as_in_ns3(mode: Mode) -> None:
    bits, figures = DECODED[key(mode)]

    ours = {db: math.exp(bits * mode.log_bit_success(ratio(db))) for db in figures}

    assert ours == pytest.approx(figures, abs=2e-6)


@each_mode()
def test_s1_frames_last_as_long_as_in_ns3(mode: Mode) -> None:
    assert tuple(mode.duration_us(size) for size in SIZES) == AIR_US[key(mode)]


@each_mode()
def test_s2_frames_arrive_as_far_as_in_ns3(mode: Mode) -> None:
    """ns-3 counts the 6 µs of silence after an OFDM frame as bits that can be lost; we do not. At
    54 Mb/s these are a tenth of this frame, and most of the difference."""
    phy = make_phy(mode.standard, mode.bits_per_us)

    for distance_m, share in ARRIVED[key(mode)].items():
        delivery = phy.delivery_probability(received_dbm(phy, distance_m))
        assert delivery == pytest.approx(share, abs=0.04), distance_m
        silent = phy.signal_extension_us * phy.bits_per_us
        sinr = phy.received_mw(distance_m) / dbm_to_mw(phy.noise_dbm)
        counted = delivery * math.exp(silent * phy.log_bit_success(sinr)) if delivery else 0.0
        assert counted == pytest.approx(share, abs=0.02), distance_m


def test_s1_eifs_leaves_time_for_an_acknowledgement_at_1_mbps() -> None:
    """SIFS, 304 µs and DIFS at every rate: ns-3's `GetAckTxTime` of both standards is 304 µs."""
    assert {make_phy(*key(mode)).eifs_us for mode in ALL} == {10 + 304 + 50}
    assert get_mode("802.11b", 1).duration_us(ACK_BYTES) == 304


def test_s1_slots_and_windows_are_those_of_the_standards() -> None:
    found = {
        (phy.mode.standard, phy.slot_us, phy.sifs_us, phy.difs_us, phy.cw_min)
        for phy in (make_phy(*key(mode)) for mode in ALL)
    }

    assert found == {("802.11b", 20, 10, 50, 31), ("802.11g", 20, 10, 50, 15)}


# Every mode


@given(modes, decibels, decibels)
def test_s1_more_signal_never_hurts(mode: Mode, one: float, other: float) -> None:
    low, high = sorted((one, other))

    assert mode.log_bit_success(ratio(low)) <= mode.log_bit_success(ratio(high)) + 1e-15
    assert mode.log_header_bit_success(ratio(low)) <= mode.log_header_bit_success(ratio(high))
    assert mode.log_bit_success(ratio(high)) <= 0


@given(st.sampled_from(sorted(MODES)), decibels)
def test_s1_a_slower_frame_is_as_safe_or_safer(standard: str, db: float) -> None:
    """Except for a tiny difference: the bounds of 9 and 12 Mb/s cross where almost no frame is
    lost."""
    chances = [math.exp(3_000 * mode.log_bit_success(ratio(db))) for mode in get_modes(standard)]

    assert all(fast <= slow + 1e-7 for slow, fast in itertools.pairwise(chances))


@given(modes, decibels)
def test_s1_the_header_goes_at_the_lowest_rate(mode: Mode, db: float) -> None:
    lowest = get_modes(mode.standard)[0]

    assert mode.log_header_bit_success(ratio(db)) == lowest.log_bit_success(ratio(db))


@given(modes, st.integers(0, 2_400))
def test_s1_a_frame_has_time_for_its_bits_and_little_more(mode: Mode, size: int) -> None:
    duration_us = mode.duration_us(size)
    payload_us = duration_us - mode.preamble_us - mode.signal_extension_us
    bits = mode.service_tail_bits + 8 * size

    assert isinstance(duration_us, int)
    assert bits <= payload_us * mode.bits_per_us < bits + mode.symbol_us * mode.bits_per_us
    assert mode.duration_us(size + 1) >= duration_us


# Radios


@given(modes, st.floats(5, 2_000))
def test_s2_the_range_is_where_half_of_the_frames_arrive(mode: Mode, range_m: float) -> None:
    phy = make_phy(*key(mode)).with_range(range_m)

    assert phy.range_m() == pytest.approx(range_m, rel=1e-3)
    assert phy.delivery_probability(received_dbm(phy, 0.99 * range_m)) > 0.5
    assert phy.delivery_probability(received_dbm(phy, 1.01 * range_m)) < 0.5


@given(modes, st.floats(5, 500), st.floats(5, 500))
def test_s2_setting_the_range_twice_is_setting_it_once(
    mode: Mode, first_m: float, then_m: float
) -> None:
    phy = make_phy(*key(mode))

    assert phy.with_range(first_m).with_range(then_m) == phy.with_range(then_m)


def test_s2_the_default_reaches_113_m_with_the_power_it_has() -> None:
    assert Phy() == make_phy("802.11g", 6) == make_phy("802.11g") == Phy().with_range(113)
    assert Phy().range_m() == pytest.approx(113, abs=0.01)


def test_s2_with_the_same_power_a_faster_rate_reaches_less_far() -> None:
    for standard in MODES:
        reaches = [make_phy(*key(mode)).range_m() for mode in get_modes(standard)]
        assert reaches == sorted(reaches, reverse=True)


def test_s2_the_slowest_rate_reaches_as_far_as_a_receiver_notices_frames() -> None:
    phy = make_phy("802.11b", 1)

    assert phy.range_m() == pytest.approx(phy.reach_m(phy.preamble_detection_dbm), rel=1e-6)


@pytest.mark.parametrize(
    ("standard", "rate_mbps", "words"),
    [
        ("802.11n", 6, "standard '802.11n' is unknown; there is 802.11b, 802.11g"),
        ("802.11g", 5.5, "802.11g has no rate of 5.5 Mb/s; there is 6, 9, 12, 18, 24, 36, 48, 54"),
        ("802.11b", 6, "802.11b has no rate of 6 Mb/s; there is 1, 2, 5.5, 11"),
        ("802.11b", math.nan, "802.11b has no rate of nan Mb/s"),
    ],
)
def test_s1_what_no_standard_has_is_refused(standard: str, rate_mbps: float, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make_phy(standard, rate_mbps)


# On the air


@each_mode()
def test_s1_a_frame_and_its_acknowledgement_go_at_the_rate(mode: Mode) -> None:
    phy = make_phy(*key(mode))
    kernel = make_kernel()
    heard: list[tuple[list[int], int]] = []
    done: list[tuple[str, int]] = []
    radio = Radio(
        kernel,
        [(0.0, 0.0), (0.5 * phy.range_m(), 0.0), (2 * phy.range_m(), 0.0)],
        seed=1,
        config=RadioConfig(phy=phy, mac=MacConfig(cw_min=phy.cw_min)),
        on_received=lambda _, receivers, now_us: heard.append((members_of(receivers), now_us)),
        on_done=lambda _, how: done.append((how, kernel.now_us)),
    )

    radio.send(0, 1, 300, "one")
    kernel.run(50_000)
    radio.send(1, BROADCAST, 300, "all")
    kernel.run(100_000)

    data_us = AIR_US[key(mode)][3]
    ack_us = AIR_US[key(mode)][0]
    assert heard == [([1], 50 + data_us), ([0], 50_000 + 50 + data_us)]
    assert done[0] == ("sent", 50 + data_us + 10 + ack_us)
