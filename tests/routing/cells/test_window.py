"""Windows and faces, against plain twins: sets of offsets, and angles (D4, D5)."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from thyme.protocol.cells import CellId
from thyme.routing.cells import Grid
from thyme.routing.cells.faces import next_edge
from thyme.routing.cells.grid import Offset
from thyme.routing.cells.window import Window

GRID = Grid(columns=20, rows=20)
WINDOW = Window(GRID)
WIDE = Window(Grid(columns=20, rows=20, range_m=230.0))
sets = st.sets(st.sampled_from(WINDOW.offsets))
windows = st.sampled_from([WINDOW, WIDE])


def test_a_window_holds_whoever_may_be_heard() -> None:
    assert WINDOW.radius == 3
    assert len(WINDOW.offsets) == 48
    assert WIDE.radius == 6
    assert set(WINDOW.each(WINDOW.sure)) == {
        (x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)
    }
    assert len(list(WINDOW.each(WINDOW.linkable))) == 44  # all but the corners


@given(windows, st.data())
def test_d4_sets_survive_the_wire(window: Window, data: st.DataObject) -> None:
    some = st.sets(st.sampled_from(window.offsets))
    direct, second = data.draw(some), data.draw(some)

    packed = window.packed(window.of(iter(direct)), window.of(iter(second)))
    unpacked = window.unpacked(packed)

    assert len(packed) == window.bytes
    assert unpacked is not None
    assert set(window.each(unpacked[0])) == direct
    assert set(window.each(unpacked[1])) == second


def test_d4_two_sets_take_twelve_bytes_and_other_lengths_are_refused() -> None:
    assert WINDOW.bytes == 12
    for length in (0, 11, 13, 42):
        assert WINDOW.unpacked(bytes(length)) is None
    odd = Window(Grid(columns=9, rows=9, range_m=200.0))
    assert odd.unpacked(b"\xff" * odd.bytes) is not None


@given(windows, st.data())
def test_d4_what_a_neighbour_knows_is_seen_from_here(window: Window, data: st.DataObject) -> None:
    offsets = st.sampled_from(window.offsets)
    cells, (right, down) = data.draw(st.sets(offsets)), data.draw(offsets)

    moved = window.moved(window.of(iter(cells)), (right, down))

    there = {(x + right, y + down) for x, y in cells}
    assert set(window.each(moved & window.all)) == there & set(window.offsets)
    assert bool(moved & window.middle) == ((0, 0) in there)


@given(sets, sets)
def test_d5_edges_are_those_with_nobody_in_the_circle_between(
    ends: set[Offset], known: set[Offset]
) -> None:
    known |= ends

    edges = WINDOW.edges(WINDOW.of(iter(ends)), WINDOW.of(iter(known)))

    def alone(end: Offset) -> bool:
        middle = (end[0] / 2, end[1] / 2)
        radius = math.hypot(*middle)
        return all(math.dist(one, middle) > radius + 1e-9 for one in known - {end})

    assert set(edges) == {end for end in ends if alone(end)}


@pytest.mark.parametrize("cell", [0, 19, 210, 399])
def test_beyond_the_grid_there_is_nothing(cell: int) -> None:
    inside = set(WINDOW.each(WINDOW.inside(GRID, CellId(cell))))

    assert inside == {o for o in WINDOW.offsets if GRID.beside(CellId(cell), o) is not None}


directions = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).filter(any)


@given(st.lists(directions, min_size=1, max_size=9, unique=True), directions)
def test_d5_the_next_edge_is_the_first_counterclockwise(edges: list[Offset], start: Offset) -> None:
    """The edge one came by is the last resort."""

    def turn(edge: Offset) -> float:
        angle = math.atan2(edge[1], edge[0]) - math.atan2(start[1], start[0])
        return (angle - 1e-9) % (2 * math.pi)

    turns = sorted(turn(edge) for edge in edges)
    assume(all(later - earlier > 1e-6 for earlier, later in itertools.pairwise(turns)))

    assert next_edge(edges, start) == min(edges, key=turn)
