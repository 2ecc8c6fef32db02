"""Round-trip times: a node waits longer while replies take longer, and soon less again (D28)."""

from __future__ import annotations

from thyme.model.time_frames import SECOND_US
from thyme.protocol.round_trip import RoundTripTimes

USUAL_US = SECOND_US // 2


def test_without_measurements_and_with_quick_replies_the_wait_is_as_usual() -> None:
    times = RoundTripTimes(4 * SECOND_US)
    assert times.wait_us(USUAL_US) == USUAL_US

    for _ in range(20):
        times.add(10_000)

    assert times.wait_us(USUAL_US) == USUAL_US


def test_d28_slow_replies_make_the_wait_longer_up_to_its_maximum() -> None:
    times = RoundTripTimes(4 * SECOND_US)
    for _ in range(20):
        times.add(SECOND_US)
    assert SECOND_US <= times.wait_us(USUAL_US) < 2 * SECOND_US

    for _ in range(20):
        times.add(60 * SECOND_US)
    assert times.wait_us(USUAL_US) == 4 * SECOND_US


def test_d28_one_slow_reply_among_quick_ones_is_forgotten() -> None:
    times = RoundTripTimes(4 * SECOND_US)
    for _ in range(20):
        times.add(10_000)
    times.add(SECOND_US)
    assert times.wait_us(USUAL_US) > USUAL_US

    for _ in range(10):
        times.add(10_000)
    assert times.wait_us(USUAL_US) == USUAL_US


def test_d28_the_channel_is_busy_while_replies_take_more_than_a_second() -> None:
    times = RoundTripTimes(4 * SECOND_US)
    assert not times.is_busy

    for _ in range(30):
        times.add(3 * SECOND_US)
    assert times.is_busy

    for _ in range(30):
        times.add(20_000)
    assert not times.is_busy


def test_d28_the_channel_is_slow_long_before_it_is_busy() -> None:
    times = RoundTripTimes(4 * SECOND_US)
    assert not times.is_slow

    for _ in range(30):
        times.add(20_000)
    assert not times.is_slow

    for _ in range(30):
        times.add(300_000)
    assert times.is_slow
    assert not times.is_busy
