"""Cell bitmaps and faces, compared with naive versions: sets of offsets, and angles (D4, D5)."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells import Grid
from thyme.routing.cells.cell_bitmap import CellBitmapLayout
from thyme.routing.cells.faces import next_edge
from thyme.routing.cells.grid import Offset

GRID = Grid(columns=20, rows=20)
WINDOW = CellBitmapLayout(GRID)
WIDE = CellBitmapLayout(Grid(columns=20, rows=20, range_m=230.0))
sets = st.sets(st.sampled_from(WINDOW.offsets))
windows = st.sampled_from([WINDOW, WIDE])


def test_a_window_holds_whoever_may_be_heard() -> None:
    assert WINDOW.radius == 3
    assert len(WINDOW.offsets) == 48
    assert WIDE.radius == 6
    assert set(WINDOW.offsets_in(WINDOW.always_in_range)) == {
        (x, y) for x in (-1, 0, 1) for y in (-1, 0, 1) if (x, y) != (0, 0)
    }
    assert len(list(WINDOW.offsets_in(WINDOW.maybe_in_range))) == 44  # all but the corners


@given(windows, st.data())
def test_d4_sets_survive_the_wire(window: CellBitmapLayout, data: st.DataObject) -> None:
    some = st.sets(st.sampled_from(window.offsets))
    direct, second = data.draw(some), data.draw(some)

    packed = window.encode(window.from_offsets(iter(direct)), window.from_offsets(iter(second)))
    unpacked = window.decode(packed)

    assert len(packed) == window.encoded_bytes
    assert unpacked is not None
    assert set(window.offsets_in(unpacked[0])) == direct
    assert set(window.offsets_in(unpacked[1])) == second


def test_d4_two_sets_take_twelve_bytes_and_other_lengths_are_refused() -> None:
    assert WINDOW.encoded_bytes == 12
    for length in (0, 11, 13, 42):
        assert WINDOW.decode(bytes(length)) is None
    odd = CellBitmapLayout(Grid(columns=9, rows=9, range_m=200.0))
    assert odd.decode(b"\xff" * odd.encoded_bytes) is not None


@given(windows, st.data())
def test_d4_what_a_neighbour_knows_is_seen_from_here(
    window: CellBitmapLayout, data: st.DataObject
) -> None:
    offsets = st.sampled_from(window.offsets)
    cells, (right, down) = data.draw(st.sets(offsets)), data.draw(offsets)

    moved = window.shifted(window.from_offsets(iter(cells)), (right, down))

    there = {(x + right, y + down) for x, y in cells}
    assert set(window.offsets_in(moved & window.all)) == there & set(window.offsets)
    assert bool(moved & window.centre) == ((0, 0) in there)


@given(sets, sets)
def test_d5_edges_are_those_with_nobody_in_the_circle_between(
    ends: set[Offset], known: set[Offset]
) -> None:
    known |= ends

    edges = WINDOW.gabriel_edges(WINDOW.from_offsets(iter(ends)), WINDOW.from_offsets(iter(known)))

    def alone(end: Offset) -> bool:
        middle = (end[0] / 2, end[1] / 2)
        radius = math.hypot(*middle)
        return all(math.dist(one, middle) > radius + 1e-9 for one in known - {end})

    assert set(edges) == {end for end in ends if alone(end)}


@pytest.mark.parametrize("cell", [0, 19, 210, 399])
def test_beyond_the_grid_there_is_nothing(cell: int) -> None:
    inside = set(WINDOW.offsets_in(WINDOW.grid_mask(GRID, CellId(cell))))

    assert inside == {o for o in WINDOW.offsets if GRID.cell_at_offset(CellId(cell), o) is not None}


directions = st.tuples(st.integers(-9, 9), st.integers(-9, 9)).filter(any)


@given(st.lists(directions, min_size=1, max_size=9, unique=True), directions)
def test_d5_the_next_edge_is_the_first_counterclockwise(edges: list[Offset], start: Offset) -> None:
    """The edge on which the packet came is the last choice."""

    def turn(edge: Offset) -> float:
        angle = math.atan2(edge[1], edge[0]) - math.atan2(start[1], start[0])
        return (angle - 1e-9) % (2 * math.pi)

    turns = sorted(turn(edge) for edge in edges)
    assume(all(later - earlier > 1e-6 for earlier, later in itertools.pairwise(turns)))

    assert next_edge(edges, start) == min(edges, key=turn)
