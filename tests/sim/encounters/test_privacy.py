"""What an eavesdropper learns from generated profiles (U2)."""

from __future__ import annotations

import pytest

from thyme.model.errors import OptionError
from thyme.sim.encounters.privacy import measure_privacy


def test_u2_without_added_topics_one_profile_tells_everything() -> None:
    [first, *_] = measure_privacy(topics_added=0)

    assert (first.precision, first.recall) == (1.0, 1.0)


def test_u2_the_more_topics_are_added_the_less_one_profile_tells() -> None:
    firsts = [measure_privacy(topics_added=added)[0].precision for added in (0, 2, 6, 12)]

    assert firsts == sorted(firsts, reverse=True)
    assert firsts[1] == pytest.approx(0.5)  # two of four


def test_u2_an_eavesdropper_that_follows_a_device_learns_its_topics_in_the_end() -> None:
    points = measure_privacy(topics_added=2)

    assert [point.profiles for point in points] == [1, 2, 4, 8, 16, 32]
    assert all(point.recall == 1.0 for point in points)
    assert points[0].precision < points[-1].precision


def test_the_same_seed_gives_the_same_points() -> None:
    assert measure_privacy(seed=3) == measure_privacy(seed=3)


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(OptionError):
        measure_privacy(devices=1)
