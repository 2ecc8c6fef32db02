"""P1: draws are functions of seed, number and lane, even, and apart from each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.model.errors import InputError
from thyme.traces.synthetic.counter_rng import (
    PURPOSES,
    WeightedChoice,
    draw,
    mix64,
    origin_from_seed,
    scale_below,
)


def test_the_sequence_is_splitmix64() -> None:
    """The first values of the published generator with state 0."""
    sequence = [mix64(0x9E3779B97F4A7C15 * n % 2**64) for n in (1, 2, 3)]
    assert sequence == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [draw(0, 0, lane) for lane in range(3)] == sequence


def test_no_two_draws_of_a_seed_are_the_same() -> None:
    origin = origin_from_seed(7)
    drawn = {draw(origin, number, lane) for number in range(500) for lane in range(PURPOSES)}
    assert len(drawn) == 500 * PURPOSES


def test_seeds_and_lanes_do_not_follow_each_other() -> None:
    """Half of the bits differ between neighbours, within five standard deviations."""
    for pairs in (
        [
            (draw(origin_from_seed(n), 0, 0), draw(origin_from_seed(n + 1), 0, 0))
            for n in range(1000)
        ],
        [(draw(5, n, 0), draw(5, n, 1)) for n in range(1000)],
        [(draw(5, n, 0), draw(5, n + 1, 0)) for n in range(1000)],
    ):
        assert abs(sum((a ^ b).bit_count() for a, b in pairs) / 1000 - 32) < 5 * 4 / 1000**0.5


@given(st.integers(1, 10**6), st.integers(0, 2**64 - 1))
def test_below_stays_below(most: int, drawn: int) -> None:
    assert 0 <= scale_below(most, drawn) < most


def test_a_wheel_keeps_the_weights() -> None:
    wheel = WeightedChoice([1, 0, 2, 5])
    origin = origin_from_seed(3)
    found = [wheel.choose(draw(origin, number, 0)) for number in range(8_000)]
    assert [found.count(n) for n in range(4)] == [
        pytest.approx(1_000, abs=150),
        0,
        pytest.approx(2_000, abs=200),
        pytest.approx(5_000, abs=220),
    ]


@given(
    st.lists(st.floats(0, 1e6), min_size=1).filter(lambda weights: sum(weights) > 1e-6),
    st.integers(0, 2**64 - 1),
)
def test_a_wheel_never_chooses_what_has_no_weight(weights: list[float], drawn: int) -> None:
    assert weights[WeightedChoice(weights).choose(drawn)] > 0


@pytest.mark.parametrize("weights", [[], [0.0, 0.0], [1.0, -1.0], [float("nan")]])
def test_weights_that_are_none_are_refused(weights: list[float]) -> None:
    with pytest.raises(InputError):
        WeightedChoice(weights)


def test_whole_columns_can_be_drawn_at_once() -> None:
    """What arrays of 64-bit integers give is what the functions here give, bit for bit."""
    numpy = pytest.importorskip("numpy")
    wheel, origin, lane = WeightedChoice([3.0, 1.0, 0.5]), origin_from_seed(11), 2

    value = numpy.arange(2_000, dtype=numpy.uint64) * numpy.uint64(PURPOSES) + numpy.uint64(
        lane + 1
    )
    value = value * numpy.uint64(0x9E3779B97F4A7C15) + numpy.uint64(origin)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        value = (value ^ (value >> numpy.uint64(shift))) * numpy.uint64(factor)
    value = value ^ (value >> numpy.uint64(31))
    sectors = numpy.searchsorted(
        numpy.array(wheel.ends, dtype=numpy.uint64), value >> numpy.uint64(11), side="right"
    )

    drawn = [draw(origin, number, lane) for number in range(2_000)]
    assert value.tolist() == drawn
    assert sectors.tolist() == [wheel.choose(each) for each in drawn]
