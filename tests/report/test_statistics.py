"""S16: confidence intervals of ratios, by bootstrap over the runs."""

from __future__ import annotations

import pytest

from tests.report.made_up import tables
from thyme.report.claims.finding import ProfileTables
from thyme.report.claims.static import check_c1_phy_bytes
from thyme.report.statistics import ratio_interval


def test_s16_an_interval_contains_the_ratio_and_does_not_depend_on_the_order() -> None:
    upper, lower = [5.0, 5.5, 4.5, 5.2, 4.8], [2.0, 2.1, 1.9, 2.05]
    found = ratio_interval(upper, lower)
    assert found is not None
    low, high = found
    assert 4.5 / 2.1 < low < 2.5 < high < 5.5 / 1.9
    assert ratio_interval(upper[::-1], lower[::-1]) == found


def test_s16_more_runs_make_the_interval_narrower() -> None:
    few, many = ([4.0, 6.0] * times for times in (2, 50))
    widths = []
    for values in (few, many):
        found = ratio_interval(values, [2.0, 2.0])
        assert found is not None
        widths.append(found[1] - found[0])
    assert widths[1] < widths[0] / 2


@pytest.mark.parametrize(("upper", "lower"), [([5.0], [2.0, 2.0]), ([5.0, 5.0], [0.0, 2.0])])
def test_s16_a_single_run_or_a_zero_has_no_interval(upper: list[float], lower: list[float]) -> None:
    assert ratio_interval(upper, lower) is None


def test_s16_equal_runs_have_an_interval_without_width() -> None:
    assert ratio_interval([4.0, 4.0], [2.0, 2.0]) == (2.0, 2.0)


def test_c1_the_scorecard_shows_the_interval_of_a_ratio() -> None:
    found = check_c1_phy_bytes(ProfileTables(tables(), "paper"))
    assert found.ours.startswith("at 196 nodes: ES/DCS 2.50× (2.")
