"""The grid: positions, cells, keys (D1–D3)."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells import Grid
from thyme.routing.cells.grid import RANGE_M

FIELD = Grid.covering(400.0, 200.0)
"""The area of the papers' 100 nodes: 10 by 5 cells."""
grids = st.builds(
    Grid,
    columns=st.integers(1, 30),
    rows=st.integers(1, 30),
    corner_m=st.tuples(st.floats(-1e4, 1e4), st.floats(-1e4, 1e4)),
)
inside = st.floats(0.0, 1.0, exclude_max=True)


def test_d1_the_area_is_cut_into_equal_squares() -> None:
    assert (FIELD.columns, FIELD.rows, len(FIELD)) == (10, 5, 50)
    assert FIELD.cell_at((0.0, 0.0)) == 0
    assert FIELD.cell_at((39.9, 0.0)) == 0
    assert FIELD.cell_at((40.0, 0.0)) == 1
    assert FIELD.cell_at((399.0, 199.0)) == 49
    assert FIELD.centre_of(CellId(11)) == (60.0, 60.0)


def test_d1_the_last_column_and_row_may_stick_out() -> None:
    grid = Grid.covering(401.0, 199.0)

    assert (grid.columns, grid.rows) == (11, 5)


@given(grids, st.data())
def test_d1_every_cell_holds_its_centre(grid: Grid, data: st.DataObject) -> None:
    cell = CellId(data.draw(st.integers(0, len(grid) - 1)))

    assert cell in grid
    assert grid.cell_at(grid.centre_of(cell)) == cell
    assert CellId(len(grid)) not in grid
    assert CellId(-1) not in grid


@given(grids, st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_d1_whoever_is_outside_counts_for_the_nearest_cell(grid: Grid, x: float, y: float) -> None:
    assert grid.cell_at((x, y)) in grid


@given(grids, st.data())
def test_d1_offsets_and_cells_agree(grid: Grid, data: st.DataObject) -> None:
    cells = st.integers(0, len(grid) - 1).map(CellId)
    one, other = data.draw(cells), data.draw(cells)

    assert grid.cell_at_offset(one, grid.offset(one, other)) == other
    metres = math.dist(grid.centre_of(one), grid.centre_of(other))
    assert grid.distance_m(one, other) == pytest.approx(metres, abs=1e-6)
    assert grid.cell_at_offset(one, (grid.columns, 0)) is None


@given(st.integers(-5, 5), st.integers(-5, 5), inside, inside, inside, inside)
def test_d2_who_surely_hears_whom_does_and_who_never_does_does_not(
    right: int, down: int, x: float, y: float, other_x: float, other_y: float
) -> None:
    """Wherever in their cells two nodes are."""
    far_m = 40.0 * math.hypot(right + other_x - x, down + other_y - y)

    if FIELD.always_in_range((right, down)):
        assert far_m <= RANGE_M + 1e-6
    if not FIELD.maybe_in_range((right, down)):
        assert far_m >= RANGE_M - 1e-6


def test_d2_the_cells_around_are_surely_in_reach_and_those_beyond_perhaps() -> None:
    span = range(-4, 5)
    sure = {(x, y) for x in span for y in span if FIELD.always_in_range((x, y))}
    perhaps = {(x, y) for x in span for y in span if FIELD.maybe_in_range((x, y))}

    assert sure == {(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)}
    assert {(x, y) for x in range(-2, 3) for y in range(-2, 3)} < perhaps
    assert (3, 2) in perhaps
    assert (3, 3) not in perhaps
    assert (4, 0) not in perhaps


def test_d2_cells_follow_the_radio() -> None:
    grid = Grid.for_range(400.0, 200.0, range_m=50.0)

    assert grid.always_in_range((1, 1))
    with pytest.raises(ValueError, match="smaller cells"):
        Grid(columns=2, rows=2, cell_m=40.0, range_m=100.0)


@pytest.mark.parametrize(
    ("columns", "rows"), [(0, 1), (1, 0), (-1, -1), (257, 256)], ids=["0x1", "1x0", "-", "many"]
)
def test_d1_a_grid_has_a_bounded_number_of_cells(columns: int, rows: int) -> None:
    """No more than 3 bytes can number (C22)."""
    with pytest.raises(ValueError, match=r"columns, rows and cell_m|cells"):
        Grid(columns=columns, rows=rows)


def test_d3_a_key_has_the_same_cell_everywhere() -> None:
    """Golden values: another process, platform or version must find what this one stored."""
    found = {key: FIELD.cell_of_key(key) for key in ("goal", "éder", "日本", "", "a" * 64)}

    assert found == {"goal": 6, "éder": 36, "日本": 41, "": 20, "a" * 64: 28}


@pytest.mark.parametrize("grid", [FIELD, Grid(columns=7, rows=3), Grid(columns=14, rows=7)])
def test_d3_keys_are_spread_evenly(grid: Grid) -> None:
    """Pearson's statistic is within five standard deviations of its mean."""
    keys = 200 * len(grid)
    counts = Counter(grid.cell_of_key(f"tag-{number}") for number in range(keys))

    expected, freedom = keys / len(grid), len(grid) - 1
    statistic = sum((counts[CellId(cell)] - expected) ** 2 / expected for cell in range(len(grid)))
    assert abs(statistic - freedom) < 5 * math.sqrt(2 * freedom)


@given(grids, st.data())
def test_d6_of_two_cells_one_is_always_closer(grid: Grid, data: st.DataObject) -> None:
    cells = st.integers(0, len(grid) - 1).map(CellId)
    one, other, target = data.draw(cells), data.draw(cells), data.draw(cells)

    assert (grid.distance_key(one, target) == grid.distance_key(other, target)) == (one == other)
    assert grid.distance_key(target, target) <= grid.distance_key(one, target)
