"""Populated areas of any shape: messages reach their cell, or its proxy.

With nodes in the middle of their cells the result is always right, and Hypothesis searches for
shapes where it is not. With nodes at random positions, local knowledge may not be enough, once in
tens of thousands of sparse networks: see the benchmark.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.routing.cells.field import Field, Place, name, question
from thyme.model.ids import NodeId
from thyme.protocol.messages.cell_records import CellId
from thyme.routing.cells import CellRoutingConfig, Destination, Grid
from thyme.routing.cells.grid import CELL_M, Offset

TOUCHING_M = 1.5 * CELL_M
"""Between centres: adjacent cells hear each other, and no others."""


def middles(grid: Grid, cells: set[int]) -> dict[int, Place]:
    """A node in the middle of each cell."""
    return {number: grid.centre_of(CellId(cell)) for number, cell in enumerate(sorted(cells))}


def within(range_m: float):  # type: ignore[no-untyped-def]
    return lambda one, other: math.dist(one, other) <= range_m


def wrong_answers(field: Field, sources: list[NodeId]) -> list[tuple[NodeId, int, list[CellId]]]:
    """Sends a message from each of these nodes to every cell; returns the wrong results."""
    field.logging = False
    wrong = []
    for source in sources:
        reached = field.component(source)
        for cell in map(CellId, range(len(field.grid))):
            for ear in field.ears.values():
                ear.arrivals.clear()
            field.nodes[source].send([Destination(cell)], question(1), field.now_us)
            field.run(source)
            where = field.closest(reached, cell)
            told = {n: ear.arrivals for n, ear in field.ears.items() if ear.arrivals}
            first = [n for n, arrivals in told.items() for one in arrivals if one.is_first]
            everybody = {n for n in reached if field.cell(n) == where}
            once = all(len(arrivals) == 1 for arrivals in told.values())
            if not (len(first) == 1 and once and set(told) == everybody):
                wrong.append((source, cell, [field.cell(n) for n in first]))
    return wrong


@st.composite
def shapes(draw: st.DrawFn) -> tuple[Grid, set[int]]:
    """Some cells of a small grid; halls, rings, combs and islands are among them."""
    grid = Grid(columns=draw(st.integers(1, 8)), rows=draw(st.integers(1, 8)))
    cells = draw(st.sets(st.integers(0, len(grid) - 1), min_size=1))
    return grid, cells


@settings(max_examples=100, deadline=None)
@given(shapes(), st.sampled_from([TOUCHING_M, 2.1 * CELL_M, math.sqrt(8) * CELL_M]), st.booleans())
def test_d5_d6_a_message_reaches_its_cell_or_the_closest_populated_one(
    shape: tuple[Grid, set[int]], range_m: float, loop_always: bool
) -> None:
    """From everywhere to everywhere; the same proxy from every source of a connected part."""
    grid, cells = shape
    config = CellRoutingConfig(always_perimeter=loop_always)
    field = Field(grid, middles(grid, cells), hears=within(range_m), config=config).settle()

    assert wrong_answers(field, list(field.nodes)[::3]) == []


def picture(text: str) -> tuple[Grid, set[int]]:
    """A grid drawn with # for populated cells."""
    lines = text.split()
    grid = Grid(columns=len(lines[0]), rows=len(lines))
    return grid, {at for at, sign in enumerate("".join(lines)) if sign == "#"}


SHAPES = {
    "ring": "##########  #........#  #........#  #........#  #........#  ##########",
    "U": "#........#  #........#  #........#  #........#  ##########",
    "spiral": "##########  .........#  ########.#  #......#.#  #.####.#.#  #.#....#.#"
    "  #.######.#  #........#  ##########",
    "comb": "##########  #..#..#..#  #..#..#..#  #..#..#..#  #..#..#..#",
    "parts": "###....###  #.#....#.#  ###....###  ..........  ..........  ..........  ####......",
    "diagonal": "#.........  .#........  ..#.....#.  ...#...#..  ....#.#...  .....#....",
}


@pytest.mark.parametrize("range_m", [TOUCHING_M, math.sqrt(8) * CELL_M], ids=["short", "long"])
@pytest.mark.parametrize("shape", SHAPES)
def test_d5_d6_voids_of_every_shape_are_gone_around(shape: str, range_m: float) -> None:
    grid, cells = picture(SHAPES[shape])
    config = CellRoutingConfig(hops_max=1_000)  # the spiral is a labyrinth
    field = Field(grid, middles(grid, cells), hears=within(range_m), config=config).settle()

    assert wrong_answers(field, list(field.nodes)[::4]) == []


def crossing(one: tuple[Offset, Offset], other: tuple[Offset, Offset]) -> bool:
    """Whether two edges cross between their ends."""
    (a, b), (c, d) = one, other
    if len({a, b, c, d}) < 4:
        return False

    def side(p: Offset, q: Offset, r: Offset) -> int:
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


def edges_of(field: Field) -> dict[Offset, set[Offset]]:
    """The cell graph that the nodes compute; all nodes of a cell must agree."""
    found: dict[Offset, set[Offset]] = {}
    for node in field.nodes.values():
        column, row = node.cell % field.grid.columns, node.cell // field.grid.columns
        edges = node.neighbours.neighbourhood(node.cell).edges
        ends = {(column + right, row + down) for right, down in edges}
        assert found.setdefault((column, row), ends) == ends
    return found


@settings(max_examples=100, deadline=None)
@given(shapes(), st.sampled_from([TOUCHING_M, 2.1 * CELL_M, math.sqrt(8) * CELL_M]))
def test_d5_the_cell_graph_is_plane_and_both_ends_of_an_edge_agree(
    shape: tuple[Grid, set[int]], range_m: float
) -> None:
    grid, cells = shape
    field = Field(grid, middles(grid, cells), hears=within(range_m)).settle()

    edges = edges_of(field)

    assert all(start in edges[end] for start, ends in edges.items() for end in ends)
    pairs = [(start, end) for start, ends in edges.items() for end in ends if start < end]
    assert not any(crossing(*both) for both in itertools.combinations(pairs, 2))


def anywhere(seed: int) -> tuple[Grid, Mapping[int, Place]]:
    """Nodes at random positions, often with holes, from sparse to dense."""
    rng = Random(seed)
    grid = Grid(columns=rng.randint(3, 10), rows=rng.randint(3, 8))
    width_m, height_m = grid.columns * CELL_M, grid.rows * CELL_M
    count = max(3, round(len(grid) * rng.choice([0.3, 0.5, 1.0, 2.0])))
    places = [(rng.uniform(0, width_m), rng.uniform(0, height_m)) for _ in range(count)]
    for _ in range(rng.randint(0, 3)):
        hole = (rng.uniform(0, width_m), rng.uniform(0, height_m))
        radius_m = rng.uniform(30, 120)
        places = [place for place in places if math.dist(place, hole) > radius_m] or places
    return grid, dict(enumerate(places))


@pytest.mark.parametrize("seed", range(20))
def test_d5_d6_nodes_may_stand_anywhere(seed: int) -> None:
    grid, places = anywhere(seed)
    field = Field(grid, places, seed=seed).settle()
    sources = Random(seed).sample(list(field.nodes), min(3, len(places)))

    assert wrong_answers(field, sources) == []


@pytest.mark.parametrize("seed", range(40, 46))
def test_d4_d6_when_nodes_go_or_move_the_others_find_new_ways(seed: int) -> None:
    """A third is switched off and some move: soon all is as if it had always been so."""
    grid, places = anywhere(seed)
    field = Field(grid, places, seed=seed).settle()
    rng = Random(seed)
    for number in rng.sample(list(places), len(places) // 3):
        field.remove(number)
    for number in rng.sample(list(field.places), len(field.places) // 4):
        elsewhere = grid.centre_of(CellId(rng.randrange(len(grid))))
        field.move(number, elsewhere, serving=True)
    field.settle(9)

    assert wrong_answers(field, rng.sample(list(field.nodes), min(3, len(field.nodes)))) == []


@pytest.mark.parametrize("seed", range(50, 58))
def test_d9_to_all_cells_at_once_is_as_good_as_to_each(seed: int) -> None:
    """The same nodes get the message for the same cells, over fewer links."""
    grid, places = anywhere(seed)
    field = Field(grid, places, seed=seed).settle()
    cells = [CellId(number) for number in range(len(grid))]
    source = name(0)

    def told(*batches: list[Destination]) -> tuple[set[tuple[NodeId, CellId]], int]:
        field.log.clear()
        for ear in field.ears.values():
            ear.arrivals.clear()
        for batch in batches:
            field.nodes[source].send(batch, question(1), field.now_us)
            field.run(source)
        pairs = [(n, one.cell) for n, ear in field.ears.items() for one in ear.arrivals]
        assert len(set(pairs)) == len(pairs)
        return set(pairs), len(field.hops())

    together, links = told([Destination(cell) for cell in cells])
    one_by_one, links_alone = told(*([Destination(cell)] for cell in cells))

    assert together == one_by_one
    assert links < links_alone or links_alone == 0


def test_d5_ways_are_hardly_longer_than_the_shortest() -> None:
    """At most half as long again, in the mean over populated cells."""
    hops = shortest = 0
    for seed in range(20, 30):
        grid, places = anywhere(seed)
        field = Field(grid, places, seed=seed).settle()
        source = name(0)
        reached = field.component(source)
        for cell in sorted({field.cell(n) for n in reached} - {field.cell(source)}):
            field.nodes[source].send([Destination(cell)], question(1), field.now_us)
            field.run(source)
            [arrival] = [e.arrivals[-1] for n, e in field.ears.items() if first_in(field, n, cell)]
            hops += arrival.hops
            shortest += min(far for n, far in reached.items() if field.cell(n) == cell)

    assert shortest > 100
    assert hops <= 1.5 * shortest


def first_in(field: Field, node_id: NodeId, cell: CellId) -> bool:
    arrivals = field.ears[node_id].arrivals
    return bool(arrivals) and arrivals[-1].is_first and arrivals[-1].cell == cell
